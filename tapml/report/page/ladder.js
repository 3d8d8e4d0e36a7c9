// The table of operators, their signatures below them when unfolded, and the filters.
const filters = byId("filters");
const unfolded = new Set();
const opened = new Set();

function chosen() {
  const form = new FormData(filters);
  return {
    words: String(form.get("text")).toLowerCase().split(/\s+/).filter(Boolean),
    share: Number(form.get("share")),
    order: form.get("order"),
    warned: form.get("warned") !== null,
    statuses: new Set(form.getAll("status")),
    migrations: form.getAll("migration").map(Number),
  };
}

// A signature is shown when one of the migrations shown has the outcome, tolerance and warnings asked for.
function matches(signature, want) {
  if (!want.words.every((word) => signature.haystack.includes(word))) return false;
  return want.migrations.some((m) => {
    if (!want.statuses.has(statusOf(m, signature.index))) return false;
    if (want.share >= 0 && !((signature.shares[m] || 0) > want.share)) return false;
    return !want.warned || Boolean((DATA.migrations[m].outcomes[signature.index] || {}).warnings);
  });
}

function groups(want) {
  const found = new Map();
  for (const signature of SIGNATURES.filter((s) => matches(s, want))) {
    if (!found.has(signature.operator)) found.set(signature.operator, []);
    found.get(signature.operator).push(signature);
  }
  const most = (members, values) => Math.max(0, ...members.flatMap((s) => want.migrations.map((m) => values(s)[m] || 0)));
  const key = { share: (members) => most(members, (s) => s.shares), time: (members) => most(members, (s) => s.seconds) }[want.order];
  const list = [...found];
  return key ? list.map(([o, members]) => [o, [...members].sort((a, b) => key([b]) - key([a]))]).sort((a, b) => key(b[1]) - key(a[1])) : list;
}

function drawLadder() {
  const want = chosen();
  const list = groups(want);
  const count = list.reduce((sum, [, members]) => sum + members.length, 0);
  byId("shown").textContent = `${count} of ${SIGNATURES.length} signatures, ${list.length} operators`;
  const allOpen = list.length > 0 && list.every(([operator]) => unfolded.has(operator));
  byId("all").textContent = allOpen ? "Fold all" : "Unfold all";
  byId("operators").replaceChildren(
    h("thead", null, h("tr", null, h("th", { scope: "col" }, "operator"), h("th", { scope: "col", class: "number" }, "calls"),
      want.migrations.map((m) => h("th", { scope: "col" }, DATA.migrations[m].label, emulated(DATA.migrations[m]))))),
    ...list.map(([operator, members]) => body(operator, members, want)));
  if (!list.length) byId("operators").append(h("tbody", null, h("tr", null, h("td", { colspan: 2 + want.migrations.length }, "Nothing matches these filters."))));
  drawHeat(want);
}

function body(operator, members, want) {
  const open = unfolded.has(operator);
  const toggle = () => {
    if (open) unfolded.delete(operator); else unfolded.add(operator);
    redrawKeepingFocus(`fold-${operator}`);
  };
  const counts = (m) => {
    const found = new Map();
    for (const s of members) found.set(statusOf(m, s.index), (found.get(statusOf(m, s.index)) || 0) + 1);
    return [...found].map(([status, n]) => statusText(status, n));
  };
  return h("tbody", null,
    h("tr", { class: "operator" },
      h("th", { scope: "row" }, h("button", { type: "button", class: "fold", id: `fold-${operator}`, "aria-expanded": String(open), onclick: toggle }, operator)),
      h("td", { class: "number", "data-label": "calls" }, members.reduce((sum, s) => sum + s.calls, 0).toLocaleString("en")),
      want.migrations.map((m) => h("td", { "data-label": headingOf(m) },
        h("div", { class: "cell" }, counts(m), meter(largest(members.map((s) => s.shares[m]))))))),
    open ? members.flatMap((s) => signatureRows(s, want)) : null);
}

const headingOf = (m) => DATA.migrations[m].label + (DATA.migrations[m].mode === "emulated" ? " (emulated)" : "");

function signatureRows(signature, want) {
  const open = opened.has(signature.id);
  const toggle = () => {
    if (open) opened.delete(signature.id); else opened.add(signature.id);
    redrawKeepingFocus(`s-${signature.id}`);
  };
  const row = h("tr", { class: open ? "signature open" : "signature" },
    h("th", { scope: "row" }, h("button", { type: "button", class: "fold", id: `s-${signature.id}`, "aria-expanded": String(open), onclick: toggle },
      h("span", { class: "mono" }, signature.text)), h("div", { class: "muted" }, modulesText(signature))),
    h("td", { class: "number", "data-label": "calls" }, signature.calls.toLocaleString("en")),
    want.migrations.map((m) => h("td", { "data-label": headingOf(m) },
      h("div", { class: "cell" }, statusText(statusOf(m, signature.index)), meter(signature.shares[m])))));
  return open ? [row, h("tr", { class: "detail" }, h("td", { colspan: 2 + want.migrations.length }, detail(signature, want.migrations)))] : [row];
}

function redrawKeepingFocus(id) {
  drawLadder();
  const button = byId(id);
  if (button) button.focus({ preventScroll: true });
}

function openSignature(id) {
  const signature = SIGNATURES.find((s) => s.id === id);
  if (!signature) return;
  if (!matches(signature, chosen())) filters.reset();
  unfolded.add(signature.operator);
  opened.add(id);
  redrawKeepingFocus(`s-${id}`);
  byId(`s-${id}`).scrollIntoView({ block: "start" });
}
