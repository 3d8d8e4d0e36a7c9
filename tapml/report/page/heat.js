// Module path x operator.  A case that was kept in a module says what happened there; modules that only call the same
// signature are lent its worst case, and look so.
const mapForm = byId("map-form");
const KEYS = {
  share: "Largest error as a share of its tolerance, in percent; 0 is equal to PyTorch's result.",
  ratio: "Root mean square error against float64, as a multiple of PyTorch's own.",
  headroom: "Largest magnitude of a result; the nearer to what the dtype holds, the darker. float16 ends at 65,504.",
};

const VALUES = {
  share: (found) => {
    const value = shareOf(found);
    if (value === null || Number.isNaN(value)) return false;
    const text = value === 0 || value >= 0.01 ? figure(100 * value, 2) : "<1";
    return { value, heat: Math.min(1, value), text };
  },
  ratio: (found) => {
    const ratios = found.results.map(({ figures: f }) => (f.rmse === undefined ? (f.elements ? 0 : null) : number(f.rmse) === 0 ? 0 : f.rmse_reference ? number(f.rmse) / number(f.rmse_reference) : Infinity));
    const value = largest(ratios);
    if (value === null) return false;
    return { value, heat: Number.isFinite(value) ? Math.min(1, value / 10) : 0.5, text: Number.isFinite(value) ? figure(value, 2) : "ref. 0" };
  },
  headroom: (found) => {
    if (!found.headroom) return false;
    const [peak, limit] = found.headroom.map(number);
    const heat = Math.min(1, Math.max(0.02, Math.log2(Math.max(peak, 1)) / Math.log2(limit)));
    return { value: peak / limit, heat, text: figure(peak, 2) };
  },
};

function drawHeat(want) {
  want = want || chosen();
  const form = new FormData(mapForm);
  const valueOf = VALUES[form.get("figure")];
  const one = Number(form.get("migration"));
  const migrations = one < 0 ? want.migrations : [one];
  const merge = form.get("merge") !== null;
  const rowOf = (m) => { const name = DATA.modules[m]; return merge ? merged(name) : name; };
  const cells = new Map();
  const rows = new Map();
  const operators = new Map();
  const put = (module, signature, found, own, migration) => {
    if (!found) return;
    const row = rowOf(module);
    rows.set(row, true);
    operators.set(signature.operator, true);
    const key = `${row}\n${signature.operator}`;
    const old = cells.get(key);
    if (!old || (own && !old.own) || (own === old.own && found.value > old.value)) cells.set(key, { ...found, own, signature, row, migration });
  };
  for (const signature of SIGNATURES.filter((s) => matches(s, want))) {
    for (const m of migrations) {
      const outcome = DATA.migrations[m].outcomes[signature.index];
      if (!outcome) continue;
      const values = outcome.cases.map((c) => [c, valueOf(c)]).filter(([, v]) => v);
      if (!values.length) continue;
      const worst = values.map(([, v]) => v).reduce((a, b) => (b.value > a.value ? b : a));
      const kept = new Map();
      for (const [c, v] of values) {
        const origin = signature.cases.find((o) => o.id === c.id);
        if (origin && !(kept.has(origin.module) && kept.get(origin.module).value >= v.value)) kept.set(origin.module, v);
      }
      for (const [module] of signature.modules) put(module, signature, kept.get(module) || worst, kept.has(module), m);
    }
  }
  // What is exact everywhere says nothing in a map of errors, and would fill most of it.
  const exact = new Set(operators.keys());
  for (const found of cells.values()) if (found.value > 0) exact.delete(found.signature.operator);
  if (form.get("exact") !== null || form.get("figure") === "headroom") exact.clear();
  const columns = groups(want).map(([operator]) => operator).filter((o) => operators.has(o) && !exact.has(o));
  const filled = new Set([...cells.values()].filter((found) => columns.includes(found.signature.operator)).map((found) => found.row));
  byId("map-key").textContent = `${KEYS[form.get("figure")]} Numbers in italics are lent: no case was kept in that module itself. A number opens its signature.${exact.size ? ` Left out: ${exact.size} operators that are exact everywhere.` : ""}`;
  const cell = (row, operator) => {
    const found = cells.get(`${row}\n${operator}`);
    if (!found) return h("td", null);
    const label = `${row || "the program"}, ${operator} on ${headingOf(found.migration)}: ${found.text}${found.own ? "" : ", lent by another module"}`;
    const over = form.get("figure") === "share" && found.value > 1;
    const button = h("button", { type: "button", class: [found.own ? "" : "lent", over ? "over" : ""].join(" ").trim() || null, title: label, "aria-label": label,
      onclick: () => openSignature(found.signature.id) }, found.text);
    button.style.setProperty("--heat", found.heat.toFixed(3));
    return h("td", { class: "v" }, button);
  };
  byId("heat").replaceChildren(
    h("thead", null, h("tr", null, h("td", null, "module"), columns.map((o) => h("th", { scope: "col" }, o.replace(/^aten\./, ""))))),
    h("tbody", null, [...rows.keys()].filter((row) => filled.has(row)).map((row) => h("tr", null, h("th", { scope: "row" }, row || "the program"), columns.map((o) => cell(row, o))))));
}
