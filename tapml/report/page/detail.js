// What opens below a signature: its cases on each migration, side by side.
function detail(signature, shown) {
  return h("div", null,
    h("p", null, h("span", { class: "mono" }, signature.operator + signature.text), " → ",
      h("span", { class: "mono" }, signature.results.join(", "))),
    h("p", { class: "muted" }, `${signature.calls.toLocaleString("en")} calls in `, modulesText(signature),
      `; arguments `, h("code", null, signature.arguments)),
    h("div", { class: "panels" }, shown.map((m) => panel(signature, m))));
}

function modulesText(signature) {
  const counts = new Map();
  for (const [m] of signature.modules) {
    const name = merged(DATA.modules[m]) || "the program";
    counts.set(name, (counts.get(name) || 0) + 1);
  }
  const names = [...counts].map(([name, n]) => (n > 1 ? `${name} (${n} modules)` : name));
  return names.length > 4 ? `${names.slice(0, 3).join(", ")} and ${names.length - 3} more` : names.join(", ");
}

function panel(signature, m) {
  const migration = DATA.migrations[m];
  const outcome = migration.outcomes[signature.index];
  const heading = h("h3", null, migration.label, emulated(migration), " ", statusText(statusOf(m, signature.index)));
  if (!outcome) return h("article", { class: "panel" }, heading, h("p", null, "The migration has not come to it."));
  const said = [
    ...(outcome.attempts || []).map(([route, status, message]) => `route ${route}: ${status}: ${message}`),
    ...(outcome.warnings || []).map((w) => `warning: ${w}`),
    ...(outcome.notes || []).map((n) => `note: ${n}`),
  ];
  const spent = Object.entries(outcome.seconds || {}).map(([phase, s]) => `${phase} ${seconds(s)}`).join(", ");
  const launches = outcome.launches ? `${outcome.launches} kernel launch${outcome.launches === 1 ? "" : "es"} a call` : "nothing was launched";
  return h("article", { class: "panel" }, heading, h("p", null, outcome.message),
    said.length ? h("ul", null, said.map((s) => h("li", null, s))) : null,
    outcome.output ? h("details", null, h("summary", null, "Last lines of the process"), h("pre", null, outcome.output.join("\n"))) : null,
    outcome.cases.length ? casesTable(signature, outcome) : null,
    h("p", { class: "muted" }, [launches, outcome.route && `route ${outcome.route}`, (outcome.converters || []).join(", "),
      outcome.cached ? "kernel from the cache" : "", spent].filter(Boolean).join("; ")),
    outcome.artifact ? sources(outcome.artifact) : null);
}

// One row a result of a case; a case can be chosen, and its worst elements, channels and histogram are below.
function casesTable(signature, outcome) {
  const below = h("div", null);
  const choose = (found) => below.replaceChildren(...closer(found));
  const worst = outcome.cases.reduce((a, b) => (!b.passed ? b : !a.passed ? a : (shareOf(b) || 0) > (shareOf(a) || 0) ? b : a));
  const name = `case-${Math.random().toString(36).slice(2)}`;
  const rows = outcome.cases.flatMap((found) => {
    const origin = signature.cases.find((c) => c.id === found.id) || { module: -1 };
    const results = found.results.length ? found.results : [{ name: "", code: found.code, figures: {}, share: null, passed: found.passed }];
    return results.map((result, i) => {
      const f = result.figures;
      const ratio = f.rmse_reference ? `${figure(number(f.rmse) / number(f.rmse_reference), 2)}x` : f.rmse ? "reference exact" : "";
      return h("tr", null,
        h("th", { scope: "row" }, i === 0 ? h("label", { class: "check" },
          h("input", { type: "radio", name, checked: found === worst, onchange: () => choose(found) }),
          h("span", { class: "mono" }, found.id.split("/")[1]), ` ${DATA.modules[origin.module] || "the program"}`) : "",
        results.length > 1 ? ` ${result.name}` : ""),
        h("td", null, `${result.passed ? "✓" : "✗"} ${result.code}`),
        h("td", null, h("div", { class: "cell" }, meter(shareOf(result)))),
        h("td", { class: "number" }, f.max_abs ? figure(f.max_abs.error) : ""),
        h("td", { class: "number" }, ratio),
        h("td", { class: "number" }, figure(f.ulp)),
        h("td", { class: "number" }, figure(f.sqnr_db)),
        h("td", { class: "number" }, i === 0 && found.seconds ? seconds(found.seconds) : ""));
    });
  });
  choose(worst);
  const heads = ["case and module", "verdict", "tolerance used", "max error", "rms vs reference's", "ulp", "SQNR dB", "warm run"];
  return h("div", null,
    h("div", { class: "scroll", tabindex: 0 }, h("table", null,
      h("thead", null, h("tr", null, heads.map((t, i) => h("th", { scope: "col", class: i > 2 ? "number" : null }, t)))),
      h("tbody", null, rows))),
    notRun(signature, outcome), below);
}

function notRun(signature, outcome) {
  const missing = signature.cases.length - outcome.cases.length;
  return missing > 0 ? h("p", { class: "muted" }, `${missing} more case${missing === 1 ? " was" : "s were"} not run after that.`) : null;
}

function closer(found) {
  const parts = [h("h4", null, `Case ${found.id}`), h("p", null, found.explanation)];
  for (const result of found.results) {
    const f = result.figures;
    if (found.results.length > 1) parts.push(h("h4", null, result.name));
    if (f.tolerance) {
      parts.push(h("p", null, `Nearest to its limit: ${f.tolerance.of} ${figure(f.tolerance.error)}, allowed ${figure(f.tolerance.allowed)}.`));
    }
    if (f.first) {
      parts.push(h("p", null, `First difference at ${place(f.first.index)}: candidate ${f.first.candidate}, PyTorch ${f.first.reference}.`));
    }
    if (f.worst_elements && f.worst_elements.length) {
      parts.push(h("div", { class: "pair" }, elementsTable(f.worst_elements), channelsTable(f.worst_channels || [], f.worst_elements[0].index.length)));
    }
    if (f.histogram) parts.push(histogram(f.histogram));
    const whole = (n) => n.toLocaleString("en");
    const exactly = (n) => figure(n, 4);
    const rest = [["elements", f.elements, whole], ["compared", f.compared === f.elements ? null : f.compared, whole],
      ["different", f.different, whole], ["terms", f.terms, whole], ["largest relative error", f.max_rel && f.max_rel.error, exactly],
      ["smallest rtol that passes", f.smallest_rtol, exactly], ["mean error", f.bias, exactly],
      ["1 - cosine", f.cosine_gap, exactly]].filter(([, value]) => value !== null && value !== undefined);
    if (rest.length) parts.push(h("p", { class: "muted" }, rest.map(([name, value, write]) => `${name} ${write(value)}`).join("; "), "."));
  }
  if (found.headroom) {
    const [peak, limit, dtype] = found.headroom;
    parts.push(h("p", { class: "muted" }, `Largest magnitude ${figure(peak)}, of ${figure(limit)} that ${dtype} holds.`));
  }
  return parts;
}

const small = (heads, rows) => h("div", { class: "scroll", tabindex: 0 }, h("table", null,
  h("thead", null, h("tr", null, heads.map((t, i) => h("th", { scope: "col", class: i ? "number" : null }, t)))),
  h("tbody", null, rows.map((row) => h("tr", null, row.map((cell, i) => h(i ? "td" : "th", i ? { class: "number" } : { scope: "row" }, cell)))))));
const elementsTable = (elements) => small(["worst elements", "candidate", "float64", "error"],
  elements.map((e) => [place(e.index), figure(e.candidate, 5), figure(e.float64, 5), figure(e.error)]));
const channelsTable = (channels, rank) => channels.length ? small(["worst channels", "rms error", "reference's"],
  channels.map((c) => [place(Array.from({ length: rank }, (_, d) => (d === c.dim ? c.index : ":"))), figure(c.rmse), figure(c.rmse_reference)])) : null;

function sources(key) {
  const kernel = DATA.kernels[key];
  if (!kernel) return h("p", { class: "muted" }, "The kernel is no longer in the cache.");
  const binaries = kernel.binaries.map(([name, size]) => `${name} (${bytes(size)}, binary)`).join(", ");
  const folded = ([name, text, size], what) => {
    const pre = h("pre", { tabindex: 0 }, "…");
    const open = () => kernelTexts().then((texts) => { pre.textContent = texts[text]; }, (error) => { pre.textContent = error.message; });
    return h("details", { ontoggle: (event) => event.target.open && open() }, h("summary", null, `${what}: ${name} (${bytes(size)})`), pre);
  };
  return h("div", null,
    kernel.files.map((f) => folded(f, "Kernel source")),
    kernel.lowered.map((f) => folded(f, "TVM module that it was compiled from")),
    kernel.lowered.length ? null : h("p", { class: "muted" }, "The cache has no TVM module for it."),
    binaries ? h("p", { class: "muted" }, binaries) : null);
}
