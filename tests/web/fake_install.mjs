// Made-up installs: they progress, pause and go on, and some fail.

const kTickMs = 250; // four events a second, as the server sends them at most
const kReleases = {
  "openai/gpt-oss-20b": { model: "32x24", family: "gpt_oss", bytes: 13.76e9, format: "mxfp4" },
  "openai/gpt-oss-120b": { model: "128x36", family: "gpt_oss", bytes: 65.25e9, format: "mxfp4" },
  "Qwen/Qwen3-30B-A3B-Instruct-2507": {
    model: "128x48",
    family: "qwen3_moe",
    bytes: 61.06e9,
    format: "affine4",
  },
  "Qwen/Qwen3-Next-80B-A3B-Instruct": {
    model: "512x48",
    family: "qwen3_next",
    bytes: 162.7e9,
    format: "affine4",
  },
  "example/breaks-off": { model: "32x8", family: "gpt_oss", bytes: 4e9, format: "mxfp4", breaks: true },
};
const kFormats = {
  mxfp4: "MXFP4, as released",
  affine4: "affine4, 4.5 bits a weight",
  affine8: "affine8, 8.5 bits a weight",
  bf16: "BF16",
};

export const nameOf = (source) => source.split("/").at(-1).toLowerCase();

function released(source) {
  const release = kReleases[source];
  if (!release) throw Object.assign(new Error(`the hub knows no model '${source}'`), { status: 404 });
  return release;
}

export class FakeInstalls {
  #jobs = new Map(); // name → {entry of "installs", timer}
  #models;
  #emit;
  #seconds;

  // `models`: the list that finished ones go to; `seconds`: how long one takes.
  constructor({ models, emit, seconds = 20 }) {
    this.#models = models;
    this.#emit = emit;
    this.#seconds = Number(seconds);
  }

  list() {
    return [...this.#jobs.values()].map(({ entry }) => entry);
  }

  running(name) {
    return ["running", "pausing"].includes(this.#jobs.get(name)?.entry.state);
  }

  preview(source, experts = "auto", free = 0) {
    const { bytes, format } = released(source);
    const chosen = experts === "auto" ? format : experts;
    const written = Math.round(bytes * (chosen === "affine4" ? 0.29 : 1));
    const held = this.#model(nameOf(source))?.disk_bytes ?? 0;
    return {
      source,
      revision: "0d1f9a4c6b7e8d2a3c5f",
      destination: `/home/u/.local/share/wader/models/${nameOf(source)}`,
      source_bytes: bytes,
      fetch_bytes: Math.round(bytes * 0.98),
      read_bytes: Math.round(bytes * 0.98),
      write_bytes: written,
      peak_bytes: written + 2e9,
      held_bytes: held,
      free_bytes: free,
      experts: kFormats[chosen],
      trunk: "affine8, 8.5 bits a weight",
      weight_files: Math.ceil(bytes / 4.6e9),
      sha256_verifiable_files: Math.ceil(bytes / 4.6e9),
      bytes_per_second: 92e6,
      seconds: (bytes * 0.98) / 92e6,
    };
  }

  // → its name, or null while it runs already.
  start(source, experts) {
    const release = released(source);
    const name = nameOf(source);
    if (this.running(name)) return null;
    const total = this.preview(source, experts).fetch_bytes;
    const before = this.#jobs.get(name)?.entry;
    const entry = {
      name,
      source,
      state: "running",
      stage: "reading headers",
      done_bytes: before?.done_bytes ?? 0,
      total_bytes: total,
    };
    if (!this.#model(name)) this.#models.push(this.#unfinished(name, source, release));
    const job = { entry, timer: setInterval(() => this.#step(job, release), kTickMs) };
    this.#jobs.set(name, job);
    this.#tell(job);
    return name;
  }

  // → false for one that does not run.
  pause(name) {
    if (!this.running(name)) return false;
    const job = this.#jobs.get(name);
    job.entry.state = "pausing";
    this.#tell(job);
    clearInterval(job.timer);
    setTimeout(() => this.#end(job, "paused"), 400).unref();
    return true;
  }

  forget(name) {
    this.#jobs.delete(name);
  }

  stop() {
    for (const { timer } of this.#jobs.values()) clearInterval(timer);
  }

  #model(name) {
    return this.#models.find((model) => model.name === name);
  }

  #unfinished(name, source, { model, family, format }) {
    const [experts, layers] = model.split("x").map(Number);
    const problem = "install it again to go on where it stopped";
    return {
      name,
      state: "unfinished",
      source,
      family,
      expert_format: format,
      trunk_format: "affine8",
      layers,
      experts,
      disk_bytes: 0,
      problem,
    };
  }

  #step(job, { breaks }) {
    const { entry } = job;
    const step = (entry.total_bytes * kTickMs) / 1000 / this.#seconds;
    entry.done_bytes = Math.min(
      entry.total_bytes,
      Math.round(entry.done_bytes + step * (0.7 + 0.6 * Math.random())),
    );
    entry.stage = entry.done_bytes < 0.1 * entry.total_bytes ? "trunk" : "experts";
    const model = this.#model(entry.name);
    model.disk_bytes = Math.round(entry.done_bytes * 0.95);
    if (breaks && entry.done_bytes > entry.total_bytes / 2)
      return this.#end(job, "failed", "the connection broke three times; what came so far is kept");
    if (entry.done_bytes < entry.total_bytes) return this.#tell(job);
    model.state = "complete";
    delete model.problem;
    this.#end(job, "done");
  }

  #end(job, state, error) {
    clearInterval(job.timer);
    job.entry.state = state;
    if (error) job.entry.error = error;
    this.#tell(job);
  }

  #tell({ entry }) {
    this.#emit("install", { ...entry });
  }
}
