// A WebGPU device that replays plans (tapml.kernels.plan): kernels compiled once, buffers re-used, inputs kept by name.

const POISON_BYTES = 1 << 22;
const POISON = 0xff; // what no kernel wrote is a NaN, or -1
const UNIFORM_STRIDE = 256; // no device asks for more between the offsets of uniforms
const MAX_BLOCKS = 65535; // along one axis
const POOL_BYTES = 1 << 28; // memory that idle buffers may keep
const FEATURES = ["shader-f16", "subgroups", "timestamp-query"];
const LIMITS = [
  "maxBufferSize", "maxStorageBufferBindingSize", "maxStorageBuffersPerShaderStage", "maxBindingsPerBindGroup",
  "maxUniformBufferBindingSize", "maxComputeWorkgroupStorageSize", "maxComputeInvocationsPerWorkgroup",
  "maxComputeWorkgroupSizeX", "maxComputeWorkgroupSizeY", "maxComputeWorkgroupSizeZ",
  "maxComputeWorkgroupsPerDimension",
];

const padded = (bytes) => Math.max(4, (bytes + 3) & ~3);

/** What went wrong: ``kind`` is "device", "compile", or "missing" (plans or inputs that the page does not have). */
export class Failure extends Error {
  constructor(kind, message, more = {}) {
    super(message);
    this.kind = kind;
    this.more = more;
  }
}

/** Why there is no WebGPU in this page, and what to do about it. */
function whyNot() {
  if (!globalThis.isSecureContext) {
    return "WebGPU needs a secure context: open this page by https, or as http://localhost through ssh -L or adb reverse";
  }
  return "this browser has no WebGPU, or has it switched off: a current Chrome, Edge, Safari or Firefox has it";
}

/** Open the best adapter.  ``onProblem`` hears what no request can be told: errors in between, and the device's loss. */
export async function openGpu({ keepBytes, onProblem, onLost }) {
  if (!navigator.gpu) throw new Failure("device", whyNot());
  const adapter = await navigator.gpu.requestAdapter({ powerPreference: "high-performance" });
  if (!adapter) throw new Failure("device", "the browser has WebGPU, but found no adapter (no GPU, or a blocked driver)");
  const info = adapter.info ?? (await adapter.requestAdapterInfo());
  const device = await adapter.requestDevice({
    requiredFeatures: FEATURES.filter((f) => adapter.features.has(f)),
    requiredLimits: Object.fromEntries(LIMITS.filter((l) => l in adapter.limits).map((l) => [l, adapter.limits[l]])),
  });
  return new Gpu(device, info, { keepBytes, onProblem, onLost });
}

class Gpu {
  constructor(device, info, { keepBytes, onProblem, onLost }) {
    this.device = device;
    this.keepBytes = keepBytes;
    this.plans = new Map(); // id -> what load() made
    this.kept = new Map(); // key -> buffer with its bytes; least recently used first
    this.keptBytes = 0;
    this.idle = new Map(); // size -> idle buffers of it
    this.idleBytes = 0;
    this.lost = null;
    this.uncaught = [];
    this.poison = device.createBuffer({ size: POISON_BYTES, usage: GPUBufferUsage.COPY_SRC, mappedAtCreation: true });
    new Uint8Array(this.poison.getMappedRange()).fill(POISON);
    this.poison.unmap();
    const text = (value) => String(value ?? "");
    this.adapter = {
      vendor: text(info.vendor), architecture: text(info.architecture), device: text(info.device),
      description: text(info.description), software: Boolean(info.isFallbackAdapter),
    };
    this.features = FEATURES.filter((f) => device.features.has(f));
    this.limits = Object.fromEntries(LIMITS.filter((l) => l in device.limits).map((l) => [l, device.limits[l]]));
    this.whenLost = device.lost.then((loss) => {
      this.lost = `the device was lost (${loss.reason || "unknown"}): ${loss.message || "the browser gives no reason"}`;
      onLost(this.lost, this);
      throw new Failure("device", this.lost);
    });
    this.whenLost.catch(() => {}); // onLost was told; whoever waits for the device at the moment is told as well
    device.addEventListener("uncapturederror", (event) => {
      this.uncaught.push(event.error.message);
      onProblem(event.error.message);
    });
  }

  /** Do ``work``; errors of validation, memory and the driver in it become one Failure.  The loss of the device too. */
  async guarded(kind, work) {
    if (this.lost) throw new Failure("device", this.lost);
    this.uncaught = [];
    const filters = ["out-of-memory", "internal", "validation"];
    for (const filter of filters) this.device.pushErrorScope(filter);
    let thrown = null;
    let result;
    try {
      result = await Promise.race([work(), this.whenLost]);
    } catch (error) {
      thrown = error;
    }
    const scopes = Promise.all(filters.map(() => this.device.popErrorScope())); // the last one first
    const errors = await Promise.race([scopes, this.whenLost]);
    const found = errors.flatMap((error) => (error ? [`${error.constructor.name}: ${error.message}`] : []));
    if (thrown instanceof Failure) throw thrown;
    found.push(...this.uncaught);
    if (!found.length && thrown) found.push(`${thrown.name}: ${thrown.message}`);
    if (found.length) throw new Failure(kind, found.join("; "));
    return result;
  }

  /** Compile the kernels of a plan.  ``files``: name -> WGSL. */
  async load(id, plan, files) {
    const kernels = Object.entries(plan.kernels);
    const made = await this.guarded("compile", async () => {
      const modules = new Map();
      const pipelines = new Map();
      for (const [name, [file, , writes]] of kernels) {
        if (!modules.has(file)) modules.set(file, await this.compile(name, files[file]));
        const entries = writes.map((write, binding) => ({
          binding, visibility: GPUShaderStage.COMPUTE, buffer: { type: write ? "storage" : "read-only-storage" },
        }));
        entries.push({ binding: writes.length, visibility: GPUShaderStage.COMPUTE, buffer: { type: "uniform" } });
        const layout = this.device.createBindGroupLayout({ entries });
        const pipeline = await this.device.createComputePipelineAsync({
          label: name,
          layout: this.device.createPipelineLayout({ bindGroupLayouts: [layout] }),
          compute: { module: modules.get(file), entryPoint: name },
        });
        pipelines.set(name, { pipeline, layout, writes, scalars: plan.kernels[name][3] });
      }
      return pipelines;
    });
    const parameters = new Set(plan.parameters);
    const written = new Set();
    for (const [kernel, buffers] of plan.steps) {
      made.get(kernel).writes.forEach((write, i) => { if (write) written.add(buffers[i]); });
    }
    const uniforms = await this.guarded("compile", async () => this.writeUniforms(plan, made));
    this.unload(id);
    this.plans.set(id, { plan, pipelines: made, uniforms, parameters, written, sizes: plan.sizes.map(padded) });
  }

  async compile(kernel, code) {
    const module = this.device.createShaderModule({ code, label: kernel });
    const lines = code.split("\n");
    const errors = (await module.getCompilationInfo()).messages.filter((m) => m.type === "error");
    if (errors.length) {
      const words = errors.slice(0, 5).map(
        (m) => `line ${m.lineNum}:${m.linePos}: ${m.message} (${(lines[m.lineNum - 1] ?? "").trim().slice(0, 160)})`,
      );
      throw new Failure("compile", `kernel ${kernel}, ${words.join("; ")}`);
    }
    return module;
  }

  /** One uniform a step: its scalars, then ``packGridDimX``. */
  writeUniforms(plan, pipelines) {
    const buffer = this.device.createBuffer({
      size: Math.max(1, plan.steps.length) * UNIFORM_STRIDE, usage: GPUBufferUsage.UNIFORM, mappedAtCreation: true,
    });
    const view = new DataView(buffer.getMappedRange());
    const write = { int32: "setInt32", uint32: "setUint32", float32: "setFloat32", bool: "setUint32" };
    plan.steps.forEach(([name, , scalars, grid], step) => {
      const { scalars: dtypes } = pipelines.get(name);
      scalars.forEach((value, i) => view[write[dtypes[i]]](step * UNIFORM_STRIDE + 4 * i, value, true));
      // TVM emits `if (block > packGridDimX) { return; }`, which lets block packGridDimX itself run: hence the last one
      view.setUint32(step * UNIFORM_STRIDE + 4 * scalars.length, grid[0] - 1, true);
    });
    buffer.unmap();
    return buffer;
  }

  unload(id) {
    this.plans.get(id)?.uniforms.destroy();
    this.plans.delete(id);
  }

  /** Forget what a client had: its plans, and the inputs whose key begins with its name. */
  forget(prefix) {
    for (const id of [...this.plans.keys()]) if (id.startsWith(prefix)) this.unload(id);
    for (const key of [...this.kept.keys()]) if (key.startsWith(prefix)) this.drop(key);
  }

  /**
   * Run a plan.  ``inputs``: [buffer index, key, bytes or null] for each parameter; null: the page has them by the key.
   * Gives the results' bytes by buffer index, seconds of the launches, and the bytes that were uploaded.
   */
  async run(id, inputs) {
    const loaded = this.plans.get(id);
    if (!loaded) throw new Failure("missing", "the page does not have this plan", { plan: true });
    const missing = inputs.filter(([, key, bytes]) => bytes === null && !this.kept.has(key)).map(([index]) => index);
    if (missing.length) throw new Failure("missing", "the page does not have these inputs any more", { inputs: missing });
    const borrowed = [];
    try {
      return await this.guarded("device", () => this.replay(loaded, inputs, borrowed));
    } catch (error) {
      for (const [, key, bytes] of inputs) if (bytes && this.kept.has(key)) this.drop(key); // may not have arrived
      this.clocks = null; // may be mapped
      throw error;
    } finally {
      for (const buffer of borrowed) this.giveBack(buffer);
      this.evict();
    }
  }

  async replay({ plan, pipelines, uniforms, parameters, written, sizes }, inputs, borrowed) {
    const { device } = this;
    const borrow = (size, usage) => {
      const buffer = this.take(size, usage);
      borrowed.push(buffer);
      return buffer;
    };
    const storage = GPUBufferUsage.STORAGE | GPUBufferUsage.COPY_SRC | GPUBufferUsage.COPY_DST;
    const buffers = new Array(plan.sizes.length);
    let uploaded = 0;
    const before = device.createCommandEncoder();
    for (const [index, key, bytes] of inputs) {
      if (bytes) uploaded += bytes.byteLength;
      const source = key ? this.keep(key, bytes, sizes[index]) : borrow(sizes[index], storage);
      if (!key) this.upload(source, bytes);
      buffers[index] = source;
      if (key && written.has(index)) { // what is kept has to stay as it is
        buffers[index] = borrow(sizes[index], storage);
        before.copyBufferToBuffer(source, 0, buffers[index], 0, sizes[index]);
      }
    }
    const used = new Set([...plan.steps.flatMap((step) => step[1]), ...plan.results.filter((r) => r !== null)]);
    for (const index of used) {
      if (parameters.has(index)) continue;
      buffers[index] = borrow(sizes[index], storage);
      for (let at = 0; at < sizes[index]; at += POISON_BYTES) {
        before.copyBufferToBuffer(this.poison, 0, buffers[index], at, Math.min(POISON_BYTES, sizes[index] - at));
      }
    }
    const clock = this.features.includes("timestamp-query") ? this.clock() : null;
    const encoder = device.createCommandEncoder();
    const pass = encoder.beginComputePass(
      clock ? { timestampWrites: { querySet: clock.queries, beginningOfPassWriteIndex: 0, endOfPassWriteIndex: 1 } } : {},
    );
    plan.steps.forEach(([name, indices, scalars, grid], step) => {
      const { pipeline, layout } = pipelines.get(name);
      const entries = indices.map((i, binding) => ({ binding, resource: { buffer: buffers[i], size: sizes[i] } }));
      const size = (4 * (scalars.length + 1) + 15) & ~15;
      entries.push({ binding: indices.length, resource: { buffer: uniforms, offset: step * UNIFORM_STRIDE, size } });
      pass.setPipeline(pipeline);
      pass.setBindGroup(0, device.createBindGroup({ layout, entries }));
      pass.dispatchWorkgroups(...folded(grid));
    });
    pass.end();
    const after = device.createCommandEncoder();
    const results = this.collect(after, plan, buffers, sizes, borrow);
    let seconds;
    if (clock) {
      after.resolveQuerySet(clock.queries, 0, 2, clock.resolved, 0);
      after.copyBufferToBuffer(clock.resolved, 0, clock.readable, 0, 16);
      const start = performance.now();
      device.queue.submit([before.finish(), encoder.finish(), after.finish()]); // at once: each wait is a millisecond
      await Promise.all([clock.readable.mapAsync(GPUMapMode.READ), results.map()]);
      seconds = (performance.now() - start) / 1000;
      const [first, last] = new BigUint64Array(clock.readable.getMappedRange().slice(0));
      clock.readable.unmap();
      if (last > first) seconds = Number(last - first) / 1e9; // most browsers round to 0.1 ms: 0 is no measurement
    } else {
      device.queue.submit([before.finish()]);
      await device.queue.onSubmittedWorkDone();
      const start = performance.now();
      device.queue.submit([encoder.finish()]);
      await device.queue.onSubmittedWorkDone();
      seconds = (performance.now() - start) / 1000;
      device.queue.submit([after.finish()]);
      await results.map();
    }
    return { outputs: results.read(), seconds, uploaded };
  }

  /** Copy all results into one buffer that can be mapped. */
  collect(encoder, plan, buffers, sizes, borrow) {
    const offsets = new Map();
    let total = 0;
    for (const index of plan.results) {
      if (index === null || offsets.has(index)) continue;
      offsets.set(index, total);
      total += (sizes[index] + 7) & ~7; // mapped ranges begin at multiples of 8
    }
    if (!total) return { map: async () => {}, read: () => [] };
    const readable = borrow(total, GPUBufferUsage.MAP_READ | GPUBufferUsage.COPY_DST);
    for (const [index, at] of offsets) encoder.copyBufferToBuffer(buffers[index], 0, readable, at, sizes[index]);
    const read = () => {
      const range = readable.getMappedRange();
      const outputs = [...offsets].map(([index, at]) => [index, new Uint8Array(range.slice(at, at + plan.sizes[index]))]);
      readable.unmap();
      return outputs;
    };
    return { map: () => readable.mapAsync(GPUMapMode.READ), read };
  }

  clock() {
    this.clocks ??= {
      queries: this.device.createQuerySet({ type: "timestamp", count: 2 }),
      resolved: this.device.createBuffer({ size: 16, usage: GPUBufferUsage.QUERY_RESOLVE | GPUBufferUsage.COPY_SRC }),
      readable: this.device.createBuffer({ size: 16, usage: GPUBufferUsage.MAP_READ | GPUBufferUsage.COPY_DST }),
    };
    return this.clocks;
  }

  upload(buffer, bytes) { // bytes are padded to a multiple of 4 by whoever sends them
    if (bytes.byteLength) this.device.queue.writeBuffer(buffer, 0, bytes);
  }

  /** The buffer that keeps a named input, made now when its bytes came along. */
  keep(key, bytes, size) {
    let buffer = this.kept.get(key);
    if (buffer && buffer.size !== size) {
      this.drop(key);
      buffer = undefined;
      if (!bytes) throw new Failure("device", `the input kept as ${key} has another size than ${size} bytes`);
    }
    if (!buffer) {
      const usage = GPUBufferUsage.STORAGE | GPUBufferUsage.COPY_SRC | GPUBufferUsage.COPY_DST;
      buffer = this.device.createBuffer({ size, usage });
      this.keptBytes += size;
    }
    if (bytes) this.upload(buffer, bytes);
    this.kept.delete(key);
    this.kept.set(key, buffer); // the most recently used one is last
    return buffer;
  }

  drop(key) {
    const buffer = this.kept.get(key);
    this.keptBytes -= buffer.size;
    buffer.destroy();
    this.kept.delete(key);
  }

  evict() {
    for (const key of [...this.kept.keys()]) {
      if (this.keptBytes <= this.keepBytes) break;
      this.drop(key);
    }
  }

  take(size, usage) {
    const name = `${size} ${usage}`;
    const found = this.idle.get(name)?.pop();
    if (found) {
      this.idleBytes -= size;
      return found;
    }
    return this.device.createBuffer({ size, usage });
  }

  giveBack(buffer) {
    if (this.lost || buffer.mapState !== "unmapped" || buffer.size > POOL_BYTES) {
      buffer.destroy();
      return;
    }
    if (this.idleBytes + buffer.size > POOL_BYTES) { // sizes that were needed once would stay for ever
      for (const buffers of this.idle.values()) for (const old of buffers) old.destroy();
      this.idle.clear();
      this.idleBytes = 0;
    }
    const name = `${buffer.size} ${buffer.usage}`;
    if (!this.idle.has(name)) this.idle.set(name, []);
    this.idle.get(name).push(buffer);
    this.idleBytes += buffer.size;
  }
}

/** The grid as it is launched: x beyond the limit goes into z, from where TVM's code takes it back. */
export function folded([x, y, z]) {
  let wide = x;
  let deep = z;
  if (wide > MAX_BLOCKS && z !== 1) throw new Failure("device", `a grid of ${x} x ${y} x ${z}: z is taken by the folding of x`);
  while (wide > MAX_BLOCKS) {
    wide = Math.ceil(wide / 2);
    deep *= 2;
  }
  return [wide, y, deep];
}
