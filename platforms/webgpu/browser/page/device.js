// The page's side of the socket: requests come in, one at a time; what happens is shown.

const query = new URLSearchParams(location.search);
const { Failure, openGpu } = await import(`./gpu.js?token=${encodeURIComponent(query.get("token"))}`);
const { show } = await import(`./view.js?token=${encodeURIComponent(query.get("token"))}`);

const AGAIN_MS = 1000; // between attempts to reach the hub
const STUCK = 4003; // the hub's code: a request took too long
const FINAL = [4001, 4002]; // the hub's codes for: another connection is this page now; it is no use without a device
const KEEP_BYTES = query.has("keep") ? Number(query.get("keep")) * 1e6 : (navigator.deviceMemory ?? 4) >= 8 ? 1e9 : 256e6;

const tab = (sessionStorage.tapmlTab ??= Array.from(crypto.getRandomValues(new Uint8Array(8)), (b) => b.toString(16)).join(""));
let gpu = null;
let queue = Promise.resolve();

/** A message: length of the header, header as JSON, then binary parts, each padded to a multiple of 4 bytes. */
function pack(header, parts = []) {
  const lengths = parts.map((p) => p.byteLength);
  const text = new TextEncoder().encode(JSON.stringify({ ...header, parts: lengths }));
  const start = (4 + text.length + 3) & ~3;
  const total = lengths.reduce((sum, n) => sum + ((n + 3) & ~3), start);
  const bytes = new Uint8Array(total).fill(0x20, 0, start);
  new DataView(bytes.buffer).setUint32(0, start - 4, true);
  bytes.set(text, 4);
  let at = start;
  for (const part of parts) {
    bytes.set(part, at);
    at += (part.byteLength + 3) & ~3;
  }
  return bytes;
}

function unpack(buffer) {
  const length = new DataView(buffer).getUint32(0, true);
  const header = JSON.parse(new TextDecoder().decode(new Uint8Array(buffer, 4, length)));
  let at = 4 + length;
  const parts = header.parts.map((n) => {
    const size = (n + 3) & ~3;
    at += size;
    return new Uint8Array(buffer, at - size, size);
  });
  return { header, parts };
}

/** "chromium-156": of the user agent's brands, the one that says most. */
function browser() {
  const brands = (navigator.userAgentData?.brands ?? []).filter((b) => !/not.?a.?brand/i.test(b.brand));
  const best = brands.find((b) => b.brand !== "Chromium") ?? brands[0];
  if (best) return `${best.brand.replace(/^(Google|Microsoft) /, "")}-${best.version}`;
  const found = /(Firefox|Edg|Chrome|Version)\/(\d+)/.exec(navigator.userAgent);
  return found ? `${found[1] === "Version" ? "safari" : found[1]}-${found[2]}` : "browser";
}

function name() {
  if (query.get("name") || sessionStorage.tapmlName) return query.get("name") || sessionStorage.tapmlName;
  return `${browser()}-${gpu ? gpu.adapter.architecture || gpu.adapter.vendor || "gpu" : "none"}`;
}

/** The device may take long to open, or for ever where a driver is stuck: tapml is told before and after. */
async function introduce(to) {
  const about = { tab, browser: browser(), agent: navigator.userAgent };
  to.send(pack({ type: "opening", name: name(), ...about }));
  await new Promise((done) => setTimeout(done, 0)); // the browser may block the page while it opens the device
  const problem = gpu ? "" : await open();
  const { adapter, features, limits } = gpu ?? { adapter: {}, features: [], limits: {} };
  to.send(pack({ type: "hello", name: name(), problem, adapter, features, limits, ...about }));
}

async function open() {
  try {
    gpu = await openGpu({ keepBytes: KEEP_BYTES, onProblem: show.error, onLost: lost });
    show.adapter(gpu, navigator.userAgent);
    return "";
  } catch (error) {
    gpu = null;
    show.noAdapter(error.message);
    return error.message;
  }
}

/** The device went: all that was on it too.  A new one is opened behind the requests that wait. */
function lost(reason, which) {
  if (which !== gpu) return; // it was abandoned
  show.error(reason);
  queue = queue.then(open);
}

/** The device does not answer any more: it is left to itself, with the requests that wait for it. */
function abandon() {
  show.error("a request took too long: the device is opened anew");
  show.doing("idle", []);
  gpu?.device.destroy();
  gpu = null;
  queue = Promise.resolve();
}

async function answer({ header, parts }) {
  const problem = gpu ? "" : await open(); // it was lost
  if (problem) throw new Failure("device", problem);
  switch (header.type) {
    case "load": {
      const names = Object.keys(header.plan.kernels);
      show.doing("compiling", names);
      await gpu.load(header.id, header.plan, header.files);
      show.compiled(names.length);
      return [{}];
    }
    case "run": {
      const plan = gpu.plans.get(header.id)?.plan;
      show.doing("running", plan ? plan.steps.map((step) => step[0]) : []);
      const inputs = header.inputs.map(([index, key, part]) => [index, key, part === null ? null : parts[part]]);
      const { outputs, seconds, uploaded } = await gpu.run(header.id, inputs);
      show.ran(plan.steps.length, seconds, uploaded, gpu.keptBytes);
      const launches = plan.steps.length;
      return [{ outputs: outputs.map(([index]) => index), seconds, uploaded, launches }, outputs.map(([, b]) => b)];
    }
    default:
      throw new Failure("device", `the page does not know requests of type ${header.type}: reload it`);
  }
}

async function serve(from, message) {
  const { header } = message;
  let reply;
  try {
    const [more, parts] = await answer(message);
    reply = pack({ type: "reply", request: header.request, ok: true, ...more }, parts);
  } catch (error) {
    const kind = error instanceof Failure ? error.kind : "device";
    const text = error instanceof Failure ? error.message : `${error.name}: ${error.message}`;
    if (kind !== "missing") show.error(text);
    reply = pack({ type: "reply", request: header.request, ok: false, kind, message: text, more: error.more ?? {} });
  }
  show.doing("idle", []);
  if (from.readyState === WebSocket.OPEN) from.send(reply);
}

function receive(from, buffer) {
  const message = unpack(buffer);
  const { header } = message;
  if (header.type === "welcome") {
    sessionStorage.tapmlName = header.name;
    show.connected(header.name);
  } else if (header.type === "clients") {
    show.clients(header.count);
  } else if (header.type === "forget") {
    queue = queue.then(() => {
      gpu?.forget(header.prefix);
      show.kept(gpu?.keptBytes ?? 0);
    });
  } else {
    queue = queue.then(() => serve(from, message));
  }
}

function connect() {
  show.state("wait", "connecting");
  const scheme = location.protocol === "https:" ? "wss" : "ws";
  const own = new WebSocket(`${scheme}://${location.host}/page?token=${encodeURIComponent(query.get("token"))}`);
  own.binaryType = "arraybuffer";
  own.onopen = () => introduce(own);
  own.onmessage = (event) => receive(own, event.data);
  own.onclose = (event) => {
    if (FINAL.includes(event.code)) {
      show.state("bad", event.reason);
      return;
    }
    if (event.code === STUCK) abandon();
    show.state("bad", event.code === STUCK ? "a request took too long" : "tapml is not listening; trying again");
    setTimeout(connect, AGAIN_MS);
  };
}

connect();
// a phone that falls asleep takes the device with it
const awake = () => document.visibilityState === "visible" && navigator.wakeLock?.request("screen").catch(() => show.noWakeLock());
document.addEventListener("visibilitychange", awake);
awake();
