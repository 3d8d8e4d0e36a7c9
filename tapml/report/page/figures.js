// How figures are written and drawn.
const GLYPHS = { migrated: "✓", passed: "✓", "rolled back": "↩", failed: "✗", unsupported: "∅", crashed: "!", "timed out": "!",
  skipped: "–", "not judged": "…" };
const figure = (value, digits = 3) => {
  if (value === null || value === undefined) return "";
  const n = number(value);
  if (Number.isNaN(n)) return "NaN";
  if (!Number.isFinite(n)) return n > 0 ? "inf" : "-inf";
  if (n === 0) return "0";
  const size = Math.abs(n);
  return size >= 1e5 || size < 1e-3 ? n.toExponential(digits - 1).replace("e+", "e") : String(Number(n.toPrecision(digits)));
};
const seconds = (s) =>
  s < 1e-3 ? `${(s * 1e6).toFixed(0)} us` : s < 1 ? `${(s * 1e3).toFixed(1)} ms` : s < 60 ? `${s.toFixed(1)} s`
    : `${Math.floor(s / 60)} min ${Math.floor(s % 60)} s`;
const bytes = (n) => (n < 1000 ? `${n} B` : n < 1e6 ? `${(n / 1e3).toFixed(1)} kB` : `${(n / 1e6).toFixed(1)} MB`);
const percent = (share) => {
  if (share === null) return "";
  if (Number.isNaN(share)) return "not recorded";
  if (share === 0) return "exact";
  if (!Number.isFinite(share)) return "no limit";
  return share < 0.01 ? "< 1 %" : share < 10 ? `${(share * 100).toFixed(0)} %` : `${figure(share)} times`;
};
const statusText = (status, count) =>
  h("span", { class: `s-${status.replace(" ", "-")}` }, `${GLYPHS[status] || "?"} `, count ? `${count} ` : "", status);
function meter(share) {
  if (share === null) return null;
  if (share === 0 || !Number.isFinite(share)) return h("span", null, percent(share));
  const width = Math.min(1, Math.max(0, share)) * 100;
  return h("span", null,
    svg("svg", { class: "meter", "aria-hidden": "true", viewBox: "0 0 100 10", preserveAspectRatio: "none" },
      svg("rect", { width, height: 10, class: share > 1 ? "over" : null })),
    percent(share));
}
const place = (index) => `[${index.join(", ")}]`;

// Bars are the candidate's, the line is the reference's; heights are logarithmic, for one value may be all that is wrong.
function histogram(data) {
  const bins = Math.max(data.reference.length, data.candidate.length);
  const sampled = data.sampled_every ? `every ${data.sampled_every}th element` : "all elements";
  const [lostReference, lostCandidate] = data.nonfinite;
  const lost = lostReference || lostCandidate
    ? ` Not finite, and in no bin: ${lostReference} of the reference, ${lostCandidate} of the candidate.` : "";
  if (!bins) return h("p", { class: "muted" }, `No finite values.${lost}`);
  const [low, high, scale] = [number(data.low), number(data.high), number(data.scale)];
  const [width, height, foot] = [460, 110, 16];
  const top = Math.log1p(Math.max(...data.reference, ...data.candidate));
  const y = (count) => height - (Math.log1p(count) / (top || 1)) * (height - 4);
  const step = width / bins;
  const edge = (i) => scale * Math.sinh(Math.asinh(low / scale) + (i / bins) * (Math.asinh(high / scale) - Math.asinh(low / scale)));
  const line = data.reference.map((count, i) => `${i ? "L" : "M"}${i * step},${y(count)}H${(i + 1) * step}`).join("");
  const differ = data.reference.reduce((sum, count, i) => sum + Math.abs(count - data.candidate[i]), 0) / 2;
  const bars = data.candidate.map((count, i) =>
    svg("rect", { class: "candidate", x: i * step + 0.5, width: Math.max(1, step - 1), y: y(count), height: height - y(count) },
      svg("title", null, `${figure(edge(i))} to ${figure(edge(i + 1))}: candidate ${count}, reference ${data.reference[i]}`)));
  const tick = (i, anchor) => svg("text", { x: i * step, y: height + foot - 3, "text-anchor": anchor }, figure(edge(i)));
  return h("figure", null,
    svg("svg", { class: "histogram", viewBox: `0 0 ${width} ${height + foot}`, role: "img",
      "aria-label": `Histogram of values from ${figure(low)} to ${figure(high)}` },
      bars, svg("path", { class: "reference", d: line }), svg("path", { class: "axis", d: `M0,${height}H${width}` }),
      tick(0, "start"), tick(bins / 4, "middle"), tick(bins / 2, "middle"), tick((3 * bins) / 4, "middle"), tick(bins, "end")),
    h("figcaption", null, `Values of candidate (bars) and reference (line), counts on a logarithmic scale; ${sampled}. `,
      differ ? `${differ} lie in another bin.` : "No bin differs.", lost));
}
