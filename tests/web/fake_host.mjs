// A made-up server with several models: one is served, others wait on the disk, are installed, do not fit, or
// cannot be loaded.
import { FakeInstalls } from "./fake_install.mjs";
import { FakeModel, planOf } from "./fake_model.mjs";

const kDiskBytes = 210e9;

function entryOf(name, model, more = {}) {
  const [experts, layers] = model.split("x").map(Number);
  const disk_bytes = experts * layers * 13271040 + 2.1e9;
  const formats = { family: "gpt_oss", expert_format: "mxfp4", trunk_format: "affine8" };
  return { name, state: "complete", source: "", ...formats, layers, experts, disk_bytes, ...more };
}

export class FakeHost {
  loading = null; // the name of the one that is being loaded
  model = null; // the one that is served
  #options;
  #served;
  #listeners = new Set();
  #forward = () => {};
  #last = new Map(); // kind → [event, data]

  // `load`: ms that loading a model takes; `install`: seconds that an install takes; `readyFirst`: a new model's
  // event comes before its hello.
  constructor(options = {}) {
    this.#options = options;
    const served = new FakeModel(options);
    this.budget = served.plan.budget_bytes;
    this.models = [
      entryOf(served.facts.id, options.model ?? "128x36", { source: "openai/gpt-oss-120b" }),
      entryOf("demo", "32x6", { source: "wader/demo", disk_bytes: 17406361 }),
      entryOf("qwen3-coder-480b", "160x62", {
        source: "Qwen/Qwen3-Coder-480B-A35B-Instruct",
        family: "qwen3_moe",
        expert_format: "affine4",
        trunk_bytes: 48e9,
      }),
      entryOf("qwen3-next-80b-a3b-instruct", "512x48", {
        source: "Qwen/Qwen3-Next-80B-A3B-Instruct",
        state: "unfinished",
        family: "qwen3_next",
        expert_format: "affine4",
        disk_bytes: 21.4e9,
        problem: "install it again to go on where it stopped",
      }),
      {
        name: "scratch",
        state: "damaged",
        source: "",
        disk_bytes: 1.2e6,
        problem: "its manifest is cut off at byte 4096",
      },
      entryOf("broken-trunk", "32x8", { source: "example/broken-trunk" }),
    ];
    this.installs = new FakeInstalls({
      models: this.models,
      emit: (event, data) => this.#emit(event, data),
      seconds: options.install,
    });
    this.#serve(served);
  }

  // What the server says while no model is there.
  absent() {
    return this.model ? null : `${this.loading} is being loaded`;
  }

  stop() {
    this.model?.stop();
    this.installs.stop();
  }

  // Everything that happens, beginning with the last event of each kind: also of what is long over.
  listen(callback) {
    this.#listeners.add(callback);
    for (const kind of [...this.#last.keys()].sort()) callback(...this.#last.get(kind));
    return () => this.#listeners.delete(callback);
  }

  list() {
    return {
      directory: "/home/u/.local/share/wader/models",
      free_bytes: this.freeBytes(),
      serving: this.#served,
      loading: this.loading,
      models: this.models.map(({ trunk_bytes, ...entry }) => ({
        ...entry,
        serving: entry.name === this.#served,
      })),
      installs: this.installs.list(),
    };
  }

  freeBytes() {
    return kDiskBytes - this.models.reduce((sum, { disk_bytes: size }) => sum + Math.min(size, 40e9), 0);
  }

  find(name) {
    return this.models.find((model) => model.name === name);
  }

  planOf({ name, layers, experts, state, trunk_bytes: trunk, problem }) {
    if (state !== "complete") return { name, fits: false, problem: problem ?? "it is not complete" };
    const plan = planOf(layers * experts, this.budget, trunk);
    if (plan.slots >= 8) return { name, fits: true, plan, context: 4096 };
    const missing = (((8 - plan.slots) * 13271040) / 2 ** 30).toFixed(1);
    return {
      name,
      fits: false,
      problem: `the trunk and 8 expert slots need ${missing} GiB more than --memory gives`,
    };
  }

  // → {status, body} when it is over.
  async load(name) {
    const fail = (status, message) => ({ status, body: { error: { message } } });
    const entry = this.find(name);
    if (!entry) return fail(404, `no model ${name}`);
    if (this.loading) return fail(409, `${this.loading} is being loaded`);
    const { fits, problem } = this.planOf(entry);
    if (!fits) return fail(409, `${name} cannot be loaded: ${problem}`);
    const former = this.find(this.#served);
    this.loading = name;
    this.#emit("model", { state: "loading", name });
    this.model.stop();
    this.model = this.#served = null;
    await new Promise((done) => setTimeout(done, Number(this.#options.load ?? 1500)));
    const fails = name.startsWith("broken");
    this.loading = null;
    const error = "tensor 'lm_head.weight': its checksum does not match";
    const told = fails ? { state: "failed", name, error } : { state: "ready", name };
    if (this.#options.readyFirst) this.#emit("model", told);
    this.#serve(this.#make(fails ? former : entry));
    if (!this.#options.readyFirst) this.#emit("model", told);
    return fails
      ? fail(500, `${name} could not be loaded: ${error}`)
      : { status: 200, body: { serving: name } };
  }

  // → {status, body}
  remove(name) {
    const fail = (status, message) => ({ status, body: { error: { message } } });
    const at = this.models.findIndex((model) => model.name === name);
    if (at < 0) return fail(404, `no model ${name}`);
    if (name === this.#served || name === this.loading) return fail(409, `${name} is being served`);
    if (this.installs.running(name)) return fail(409, `${name} is being installed`);
    this.models.splice(at, 1);
    this.installs.forget(name);
    return { status: 200, body: {} };
  }

  #make(entry) {
    const { rate, range } = this.#options;
    const model = `${entry.experts}x${entry.layers}`;
    return new FakeModel({ model, rate, range, name: entry.name, entry, budget: this.budget });
  }

  // Its hello goes to all who listen already.
  #serve(model) {
    this.#forward();
    this.model = model;
    this.#served = model.facts.id;
    this.#forward = model.listen((event, data) => this.#emit(event, data));
  }

  #emit(event, data) {
    if (event !== "pass") this.#last.set(event === "install" ? `install ${data.name}` : event, [event, data]);
    for (const listener of this.#listeners) listener(event, data);
  }
}
