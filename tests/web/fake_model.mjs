// A made-up model whose router has taste: every expert has a topic it likes, neighbouring tokens choose alike,
// and a cache of half of all experts keeps the latest. Its random numbers are seeded.
import { fakeRange, random } from "./fake_range.mjs";

const kExpertBytes = 13271040;
const kTrunkBytes = 2.1e9;
const kGib = 2 ** 30;
const kRest = { process: 0.04, state: 1.2, snapshots: 0.4, scratch: 0.6, io: 0.13, reserve: 0.25 }; // GiB
const kFixedBytes = Object.values(kRest).reduce((sum, gib) => sum + gib * kGib, 0);
const kDiskBytesPerSecond = 3.1e9;
const kProbeBytes = 24 * 1900; // two texts on each of twelve topics

// The memory plan of a model of `cells` experts; slots below 1: it does not fit.
export function planOf(cells, budget, trunk = kTrunkBytes) {
  const slots = Math.min(cells, Math.floor((budget - trunk - kFixedBytes) / kExpertBytes));
  const bytes = Object.fromEntries(
    Object.entries(kRest).map(([name, gib]) => [`${name}_bytes`, Math.round(gib * kGib)]),
  );
  return {
    budget_bytes: Math.round(budget),
    ...bytes,
    trunk_bytes: trunk,
    slots_bytes: slots * kExpertBytes,
    slots,
    sessions: 4,
    chunk: 512,
    threads: 16,
  };
}

export class FakeModel {
  // `entry`: what the list of installed models says of it; `budget`: bytes, else half of its experts stay.
  constructor({ model = "128x36", rate = 30, range = "map", name, entry = {}, budget } = {}) {
    [this.experts, this.layers] = model.split("x").map(Number);
    this.rate = Number(rate);
    this.k = this.experts >= 256 ? 10 : 4;
    this.random = random(7);
    this.cells = this.layers * this.experts;
    this.expertBytes = kExpertBytes;
    this.plan = budget
      ? planOf(this.cells, budget, entry.trunk_bytes)
      : planOf(this.cells, kTrunkBytes + kFixedBytes + Math.ceil(this.cells / 2) * kExpertBytes);
    this.slots = this.plan.slots;
    this.facts = {
      id: name ?? `mock-${model}`,
      family: entry.family ?? "gpt_oss",
      source: entry.source ?? "mock",
      layers: this.layers,
      moe_layers: Array.from({ length: this.layers }, (_, i) => i),
      experts: this.experts,
      experts_per_token: this.k,
      context: 4096,
      vocab_rows: 201088,
      expert_bytes: this.expertBytes,
      expert_format: entry.expert_format ?? "mxfp4",
      trunk_format: entry.trunk_format ?? "affine8",
      disk_bytes: entry.disk_bytes ?? this.cells * this.expertBytes + kTrunkBytes,
    };
    this.listeners = new Set();
    this.liked = Array.from({ length: this.layers }, () => this.#permutation());
    this.previous = Array.from({ length: this.layers }, () => []);
    this.used = new Map(); // cell → when, oldest first: the cache
    this.n = 0;
    this.request = 0;
    this.running = 0;
    this.began = performance.now();
    this.counters = Object.fromEntries(
      [
        "hits",
        "misses",
        "bytes_read",
        "wait_seconds",
        "reading_seconds",
        "predicted",
        "predicted_right",
        "wasted_bytes",
        "hidden_seconds",
        "prefill_tokens",
        "decode_tokens",
        "prefill_seconds",
        "decode_seconds",
        "mixer_seconds",
        "router_seconds",
        "experts_seconds",
        "lookahead_seconds",
        "head_seconds",
        "finished",
        "cancelled",
        "failed",
        "refused",
        "pool_shrinks",
        "pool_growths",
      ].map((name) => [name, 0]),
    );
    for (let i = 0; i < 40; i++) this.#pass(false, 0);
    this.range = range === "map" ? fakeRange(this.layers, this.experts) : null;
    this.timers = [
      setInterval(() => this.#emit("stats", { now: this.now(), counters: this.counters }), 1000),
      setInterval(() => this.#emit("resident", { bits: this.#residentBits() }), 500),
    ];
  }

  stop() {
    this.stopped = true; // answers end where they are
    this.timers.forEach(clearInterval);
    clearInterval(this.ticker);
  }

  listen(callback) {
    this.listeners.add(callback);
    callback("hello", {
      model: this.facts.id,
      moe_layers: this.facts.moe_layers,
      experts: this.experts,
      experts_per_token: this.k,
    });
    callback("resident", { bits: this.#residentBits() });
    callback("stats", { now: this.now(), counters: this.counters });
    return () => this.listeners.delete(callback);
  }

  // Tokens fly until the function that this returns is called.
  answer() {
    this.running++;
    const request = ++this.request;
    this.#emit("pass", this.#pass(true, request));
    const timer = setInterval(() => this.#emit("pass", this.#pass(false, request)), 1000 / this.rate);
    this.timers.push(timer);
    let stopped = false;
    return () => {
      if (stopped) return;
      stopped = true;
      clearInterval(timer);
      this.running--;
      this.counters.finished++;
    };
  }

  now() {
    return {
      resident_bytes: this.used.size * this.expertBytes,
      usable_slots: this.slots,
      running: this.running,
      queued: 0,
    };
  }

  stats() {
    return {
      uptime_seconds: (performance.now() - this.began) / 1000,
      version: "0.1.0",
      model: this.facts,
      plan: this.plan,
      engine: {
        kernels: "avx512",
        reads: "io_uring, O_DIRECT",
        disk_bytes_per_second: kDiskBytesPerSecond,
        spare_cpus: 6,
      },
      now: this.now(),
      counters: this.counters,
    };
  }

  // → false while one is being built.
  buildRange() {
    if (this.building) return false;
    this.building = true;
    let texts = 0;
    const timer = setInterval(() => {
      const state = ++texts === 24 ? "done" : "running";
      if (state === "done") {
        clearInterval(timer);
        this.building = false;
        this.range = fakeRange(this.layers, this.experts);
      }
      this.#emit("range", { done: (kProbeBytes * texts) / 24, total: kProbeBytes, state });
    }, 120);
    this.timers.push(timer);
    return true;
  }

  #emit(event, data) {
    for (const listener of this.listeners) listener(event, data);
  }

  #permutation() {
    const list = Array.from({ length: this.experts }, (_, i) => i);
    for (let i = list.length - 1; i > 0; i--) {
      const j = Math.floor(this.random() * (i + 1));
      [list[i], list[j]] = [list[j], list[i]];
    }
    return list;
  }

  // A third of a token's experts are those of the token before; the others follow a skewed liking.
  #choose(layer) {
    const chosen = new Set();
    for (const expert of this.previous[layer]) if (this.random() < 0.35) chosen.add(expert);
    while (chosen.size < this.k)
      chosen.add(this.liked[layer][Math.floor(this.experts * this.random() ** 2.6)]);
    return (this.previous[layer] = [...chosen].slice(0, this.k));
  }

  #pass(prefill, request) {
    const ids = new Uint16Array(this.layers * this.k);
    const read = new Uint8Array(Math.ceil(ids.length / 8));
    for (let layer = 0; layer < this.layers; layer++) {
      this.#choose(layer).forEach((expert, i) => {
        const at = layer * this.k + i;
        const cell = layer * this.experts + expert;
        ids[at] = expert;
        if (this.used.has(cell)) {
          this.counters.hits++;
        } else {
          read[at >> 3] |= 1 << (at & 7);
          this.counters.misses++;
          this.counters.bytes_read += this.expertBytes;
        }
        this.used.delete(cell);
        this.used.set(cell, this.n);
        if (this.used.size > this.slots) this.used.delete(this.used.keys().next().value);
      });
    }
    this.counters.predicted += this.layers * this.k;
    this.counters.predicted_right += Math.round(this.layers * this.k * (0.75 + 0.1 * this.random()));
    this.counters.wait_seconds += 0.004;
    this.counters.hidden_seconds += 0.009;
    if (prefill) this.counters.prefill_tokens += 74;
    else this.counters.decode_tokens++;
    return {
      n: this.n++,
      ms: performance.now() - this.began,
      request,
      rows: prefill ? 74 : 1,
      prefill,
      ids: Buffer.from(ids.buffer).toString("base64"),
      read: Buffer.from(read).toString("base64"),
      lost: 0,
    };
  }

  #residentBits() {
    const bits = new Uint8Array(Math.ceil(this.cells / 8));
    for (const cell of this.used.keys()) bits[cell >> 3] |= 1 << (cell & 7);
    return Buffer.from(bits).toString("base64");
  }
}
