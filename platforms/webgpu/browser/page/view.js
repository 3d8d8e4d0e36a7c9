// What the page shows.

const element = (id) => document.getElementById(id);
const total = { launches: 0, runs: 0, compiled: 0, seconds: 0, uploaded: 0 };
const MAX_ERRORS = 8;
let pending = false;
let last = ""; // kernels that ran last, or run now
const texts = new Map(); // id -> text: written once a frame, however fast kernels are

function text(id, value) {
  texts.set(id, value);
  if (pending) return;
  pending = true;
  requestAnimationFrame(() => {
    pending = false;
    for (const [key, words] of texts) element(key).textContent = words;
    texts.clear();
  });
}

const count = (n) => n.toLocaleString("en");

function bytes(n) {
  for (const unit of ["B", "kB", "MB", "GB"]) {
    if (n < 1000) return `${unit === "B" || n >= 100 ? Math.round(n) : n.toFixed(1)} ${unit}`;
    n /= 1000;
  }
  return `${n.toFixed(1)} TB`;
}

/** Sizes of memory, which are powers of two. */
function memory(n) {
  const unit = n >= 2 ** 30 ? ["GiB", 30] : n >= 2 ** 20 ? ["MiB", 20] : n >= 2 ** 10 ? ["KiB", 10] : ["B", 0];
  return `${Number((n / 2 ** unit[1]).toFixed(1)).toLocaleString("en")} ${unit[0]}`;
}

function seconds(s) {
  if (s < 1) return `${Math.round(s * 1000)} ms`;
  return s < 60 ? `${s.toFixed(1)} s` : `${Math.floor(s / 60)} min ${Math.floor(s % 60)} s`;
}

/** A limit as people read it: "maxComputeWorkgroupSizeX" -> "compute workgroup size X", bytes with their unit. */
function limit(name, value) {
  const words = name.replace(/^max/, "").replace(/([a-z])([A-Z])/g, "$1 $2").toLowerCase().replace(/ ([xyz])$/, " $1");
  const isBytes = /(BufferSize|BindingSize|StorageSize)$/.test(name);
  return [words, isBytes ? memory(value) : count(value)];
}

function rows(id, pairs) {
  element(id).replaceChildren(...pairs.map(([name, value]) => {
    const row = document.createElement("div");
    const term = document.createElement("dt");
    const description = document.createElement("dd");
    term.textContent = name;
    description.textContent = value;
    row.append(term, description);
    return row;
  }));
}

/** ["a", "a", "b"] -> "a ×2, b" */
function counted(names) {
  const times = new Map();
  for (const name of names) times.set(name, (times.get(name) ?? 0) + 1);
  return [...times].map(([name, n]) => (n > 1 ? `${name} ×${n}` : name)).join(", ");
}

export const show = {
  state(kind, words) {
    element("state").dataset.state = kind;
    element("state").textContent = words;
  },
  connected(name) {
    show.state("good", "connected");
    element("name").textContent = name;
    element("target").textContent = `tapml migrate SUITE --device webgpu:remote/${name}`;
    element("target").className = "command";
    document.title = `${name} · tapml device`;
  },
  clients(n) {
    show.state("good", n ? `connected, ${n} ${n === 1 ? "client" : "clients"}` : "connected");
  },
  adapter({ adapter, features, limits }, agent) {
    rows("adapter", [
      ["vendor", adapter.vendor], ["architecture", adapter.architecture], ["device", adapter.device],
      ["description", adapter.description], ["kind", adapter.software ? "software (no GPU)" : "hardware"],
      ["browser", agent],
    ].filter(([, value]) => value));
    element("features").replaceChildren(...(features.length ? features : ["none of those that kernels use"]).map((f) => {
      const item = document.createElement("li");
      item.textContent = f;
      return item;
    }));
    rows("limits", Object.entries(limits).map(([name, value]) => limit(name, value)));
  },
  noAdapter(reason) {
    element("features").replaceChildren();
    element("limits").replaceChildren();
    rows("adapter", [["state", reason]]);
    show.error(reason);
  },
  doing(what, names) {
    if (what !== "idle") last = counted(names);
    text("doing", what);
    text("kernels", what === "idle" && last ? `last: ${last}` : last);
    element("doing").classList.toggle("busy", what !== "idle");
  },
  compiled(n) {
    text("compiled", count((total.compiled += n)));
  },
  ran(launches, time, uploaded, kept) {
    text("launches", count((total.launches += launches)));
    text("runs", count((total.runs += 1)));
    text("seconds", seconds((total.seconds += time)));
    text("uploaded", bytes((total.uploaded += uploaded)));
    show.kept(kept);
  },
  kept(size) {
    text("kept", bytes(size));
  },
  noWakeLock() {
    element("now-title").title = "the screen may fall asleep: this browser did not allow to keep it awake";
  },
  error(words) {
    element("no-errors").hidden = true;
    const item = document.createElement("li");
    const time = document.createElement("time");
    time.textContent = new Date().toLocaleTimeString("en-GB");
    const message = document.createElement("p");
    message.textContent = words;
    item.append(time, message);
    element("errors").prepend(item);
    while (element("errors").children.length > MAX_ERRORS) element("errors").lastChild.remove();
  },
};
