// What the page shows.  Numbers that JSON lacks come as the texts "inf", "-inf" and "nan".
const DATA = JSON.parse(byId("data").textContent);
const number = (value) =>
  typeof value === "number" ? value : value === "inf" ? Infinity : value === "-inf" ? -Infinity : NaN;
const largest = (values) => {
  const found = values.filter((v) => v !== null && v !== undefined && v !== false);
  if (found.some(Number.isNaN)) return NaN; // what is not known may be larger
  return found.length ? Math.max(...found) : null;
};
const shareOf = (item) => (item.share === null || item.share === undefined ? null : number(item.share));
// "layers.3.mlp" -> "layers.*.mlp": modules that differ by a number do the same.
const merged = (module) => module.replace(/(^|\.)\d+(?=\.|$)/g, "$1*");
const SIGNATURES = DATA.signatures.map((signature, index) => {
  const modules = signature.modules.map(([m]) => DATA.modules[m]);
  return {
    ...signature,
    index,
    haystack: [signature.operator, signature.id, signature.text, ...modules].join("\n").toLowerCase(),
    shares: DATA.migrations.map((m) => (m.outcomes[index] ? largest(m.outcomes[index].cases.map(shareOf)) : null)),
    seconds: DATA.migrations.map((m) =>
      Object.values((m.outcomes[index] || {}).seconds || {}).reduce((sum, seconds) => sum + seconds, 0)),
  };
});
const statusOf = (migration, index) => DATA.migrations[migration].statuses[index];

// The texts of kernels, unpacked when the first is asked for.
let unpacked = null;
function kernelTexts() {
  unpacked = unpacked || unpack(byId("texts").textContent);
  return unpacked;
}
async function unpack(base64) {
  if (typeof DecompressionStream === "undefined") {
    throw new Error("This browser cannot unpack the sources; one of 2023 or later can. They are in the cache of kernels, too.");
  }
  const bytes = Uint8Array.from(atob(base64), (c) => c.charCodeAt(0));
  const stream = new Blob([bytes]).stream().pipeThrough(new DecompressionStream("gzip"));
  return JSON.parse(await new Response(stream).text());
}
