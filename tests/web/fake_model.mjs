// A made-up model whose router has taste: every expert has a topic it likes, neighbouring tokens choose alike,
// and a cache of half of all experts keeps the latest. Its random numbers are seeded.

const kTopics = [
  "python",
  "sql",
  "proofs",
  "poetry",
  "contracts",
  "clinical",
  "chinese",
  "japanese",
  "russian",
  "json",
  "chat",
  "history",
];

function random(seed) {
  let state = seed >>> 0;
  return () => {
    state = (state + 0x6d2b79f5) >>> 0;
    let t = state;
    t = Math.imul(t ^ (t >>> 15), t | 1);
    t ^= t + Math.imul(t ^ (t >>> 7), t | 61);
    return ((t ^ (t >>> 14)) >>> 0) / 4294967296;
  };
}

export class FakeModel {
  constructor({ model = "128x36", rate = 30, range = "map", name } = {}) {
    [this.experts, this.layers] = model.split("x").map(Number);
    this.rate = Number(rate);
    this.k = this.experts >= 256 ? 10 : 4;
    this.random = random(7);
    this.cells = this.layers * this.experts;
    this.slots = Math.ceil(this.cells / 2);
    this.expertBytes = 13271040;
    this.facts = {
      id: name ?? `mock-${model}`,
      family: "gpt_oss",
      source: "mock",
      layers: this.layers,
      moe_layers: Array.from({ length: this.layers }, (_, i) => i),
      experts: this.experts,
      experts_per_token: this.k,
      context: 4096,
      vocab_rows: 201088,
      expert_bytes: this.expertBytes,
      expert_format: "mxfp4",
      trunk_format: "affine8",
      disk_bytes: this.cells * this.expertBytes + 2.1e9,
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
    this.range = range === "map" ? this.#rangeMap() : null;
    this.timers = [
      setInterval(() => this.#emit("stats", { now: this.now(), counters: this.counters }), 1000),
      setInterval(() => this.#emit("resident", { bits: this.#residentBits() }), 500),
    ];
  }

  stop() {
    this.timers.forEach(clearInterval);
    clearInterval(this.ticker);
  }

  listen(callback) {
    this.listeners.add(callback);
    callback("hello", {
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
    const gib = 2 ** 30;
    return {
      uptime_seconds: (performance.now() - this.began) / 1000,
      version: "0.1.0",
      model: this.facts,
      plan: {
        budget_bytes: 2.1e9 + 4 * gib + this.slots * this.expertBytes,
        process_bytes: 0.04 * gib,
        trunk_bytes: 2.1e9,
        state_bytes: 1.2 * gib,
        snapshots_bytes: 0.4 * gib,
        scratch_bytes: 0.6 * gib,
        io_bytes: 0.13 * gib,
        slots_bytes: this.slots * this.expertBytes,
        reserve_bytes: 0.25 * gib,
        slots: this.slots,
        sessions: 4,
        chunk: 512,
        threads: 16,
      },
      engine: { kernels: "avx512", reads: "io_uring, O_DIRECT", lookahead: true },
      now: this.now(),
      counters: this.counters,
    };
  }

  models() {
    const { family, expert_format, trunk_format, layers, experts, disk_bytes } = this.facts;
    return {
      models: [
        {
          name: this.facts.id,
          state: "complete",
          family,
          expert_format,
          trunk_format,
          layers,
          experts,
          disk_bytes,
          serving: true,
        },
        {
          name: "demo",
          state: "complete",
          family,
          expert_format,
          trunk_format,
          layers: 8,
          experts: 32,
          disk_bytes: 17406361,
          serving: false,
        },
        {
          name: "qwen3-next-80b",
          state: "unfinished",
          family: "qwen3_next",
          expert_format: "affine4",
          trunk_format,
          layers: 48,
          experts: 512,
          disk_bytes: 21.4e9,
          problem: "install it again to go on where it stopped",
          serving: false,
        },
      ],
    };
  }

  buildRange() {
    if (this.building) return;
    this.building = true;
    let done = 0;
    const timer = setInterval(() => {
      done++;
      if (done === 24) {
        clearInterval(timer);
        this.building = false;
        this.range = this.#rangeMap();
      }
      this.#emit("range", { done, total: 24, state: done === 24 ? "done" : "running" });
    }, 120);
    this.timers.push(timer);
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

  #rangeMap() {
    const draw = random(11);
    const normal = () => Math.sqrt(-2 * Math.log(1 - draw())) * Math.cos(2 * Math.PI * draw());
    const centres = kTopics.map((_, i) => {
      const y = 1 - (2 * (i + 0.5)) / kTopics.length;
      const r = Math.sqrt(1 - y * y);
      return [r * Math.cos(2.4 * i), y, r * Math.sin(2.4 * i)];
    });
    const experts = [];
    for (let layer = 0; layer < this.layers; layer++) {
      for (let expert = 0; expert < this.experts; expert++) {
        const liking = Math.floor(draw() * kTopics.length);
        const specialisation = Math.min(0.97, Math.max(0.02, 0.3 + 0.22 * normal()));
        const activations = Math.floor(-60 * Math.log(1 - draw()));
        const topic = activations > 24 && specialisation > 0.35 ? liking : null;
        experts.push({
          layer,
          expert,
          activations,
          specialisation,
          topic,
          position: centres[liking].map((x) => x * specialisation * 1.1 + 0.09 * normal()),
          repeats: topic === null ? null : draw() < 0.8,
        });
      }
    }
    const credited = experts.filter(({ topic }) => topic !== null);
    return {
      version: 1,
      topics: kTopics,
      variance_explained: [0.31, 0.19, 0.13],
      repeat_rate: credited.filter(({ repeats }) => repeats).length / credited.length,
      credited: credited.length,
      experts,
    };
  }
}
