// The Machine page: what the memory is used for, which models there are, what the last two minutes were like, and
// the facts of model and engine.
import { niceMaxBytes, TimeChart } from "../lib/charts.js";
import { h, replace, setText } from "../lib/dom.js";
import { bytes, bytesPerSecond, count, percent, seconds, tokensPerSecond } from "../lib/format.js";
import { ModelsSection } from "./models_section.js";
import { PlanBar } from "./plan_bar.js";
import { rows } from "./rows.js";

export function createPage(element, app) {
  return new MachinePage(element, app);
}

class MachinePage {
  #app;
  #shown = false;

  constructor(element, app) {
    this.#app = app;
    this.models = new ModelsSection(app);
    this.charts = [
      new TimeChart({
        title: "Answers",
        format: tokensPerSecond,
        lines: [{ name: "answers", colour: "answer", value: (point) => point.decodeRate }],
      }),
      new TimeChart({
        title: "Prompts",
        format: tokensPerSecond,
        lines: [{ name: "prompts", colour: "prompt", value: (point) => point.prefillRate }],
      }),
      new TimeChart({
        title: "Read from disk",
        format: bytesPerSecond,
        nice: niceMaxBytes,
        limit: "the disk can do",
        lines: [{ name: "rate", colour: "disk", value: (point) => point.diskRate }],
      }),
      new TimeChart({
        title: "Experts found in memory",
        format: percent,
        max: 1,
        lines: [{ name: "hits", colour: "heat", value: (point) => point.hitRate }],
      }),
      new TimeChart({
        title: "Lookahead",
        format: percent,
        max: 1,
        lines: [
          { name: "guessed right", colour: "accent", value: (point) => point.lookaheadRight },
          { name: "waiting hidden", colour: "good", value: (point) => point.hidden },
        ],
      }),
      new TimeChart({
        title: "Conversations",
        format: count,
        lines: [
          { name: "answering", colour: "answer", value: (point) => point.running },
          { name: "in the queue", colour: "plan-3", value: (point) => point.queued },
        ],
      }),
    ];
    this.#build(element);
    app.feed.on("facts", (facts) => this.#showFacts(facts));
    app.feed.on("stats", (stats) => this.#showStats(stats));
    app.feed.on("state", () => this.#showLoading());
    if (app.feed.facts) this.#showFacts(app.feed.facts);
  }

  show() {
    this.#shown = true;
    if (this.#app.feed.loading === null) this.#app.feed.refreshFacts().catch(() => {}); // its state says what is wrong
    this.#showLoading();
    this.#showCharts();
    this.models.show();
  }

  hide() {
    this.#shown = false;
    this.models.hide();
  }

  // What stands there is of the model before, until the next one is there.
  #showLoading() {
    const { loading } = this.#app.feed;
    this.inner.classList.toggle("without-model", loading !== null);
    if (loading !== null) setText(this.planTitle, loading);
  }

  #build(element) {
    this.planTitle = h("p", { class: "muted" });
    this.planBar = new PlanBar();
    this.now = h("dl", { class: "figures" });
    this.totals = h("dl", { class: "figures" });
    this.model = h("dl", { class: "figures" });
    this.engine = h("dl", { class: "figures" });
    this.inner = h(
      "div",
      { class: "page-inner machine" },
      h(
        "section",
        { class: "panel wide", "aria-label": "Memory" },
        h("div", { class: "panel-head" }, h("h2", {}, "Memory"), this.planTitle),
        this.planBar.element,
      ),
      this.models.element,
      h(
        "div",
        { class: "charts" },
        this.charts.map((chart) => chart.element),
      ),
      h(
        "div",
        { class: "facts" },
        h("section", { class: "panel" }, h("h2", {}, "Now"), this.now),
        h("section", { class: "panel" }, h("h2", {}, "Since the start"), this.totals),
        h("section", { class: "panel" }, h("h2", {}, "Model"), this.model),
        h("section", { class: "panel" }, h("h2", {}, "Engine"), this.engine),
      ),
    );
    replace(element, this.inner);
  }

  #showFacts({ model, plan, engine, now, counters, version, uptime_seconds: uptime }) {
    this.plan = plan;
    setText(this.planTitle, this.planBar.set(plan));
    this.charts.find(({ title }) => title === "Read from disk").setLimit(engine.disk_bytes_per_second);
    rows(this.model, [
      ["Name", model.id],
      ["Family", model.family],
      ["Layers", `${count(model.layers)}, ${count(model.moe_layers.length)} with experts`],
      ["Experts", `${count(model.experts)} a layer, ${model.experts_per_token} a token`],
      ["Context", `${count(model.context)} tokens`],
      ["Formats", `${model.expert_format}, trunk ${model.trunk_format}`],
      ["An expert", bytes(model.expert_bytes)],
      ["On disk", bytes(model.disk_bytes)],
    ]);
    rows(this.engine, [
      ["Version", version],
      ["Running for", seconds(uptime)],
      ["Kernels", engine.kernels],
      ["Reads", engine.reads],
      ["Threads", count(plan.threads)],
      ["Tokens a pass", `up to ${count(plan.chunk)}`],
      ["Conversations", count(plan.sessions)],
    ]);
    this.#showStats({ now, counters });
  }

  #showStats({ now, counters }) {
    const slots = this.plan?.slots ?? NaN;
    rows(this.now, [
      ["Answering", count(now.running)],
      ["In the queue", count(now.queued)],
      ["Memory of the process", bytes(now.resident_bytes)],
      ["Slots for experts", `${count(now.usable_slots)} of ${count(slots)}`],
    ]);
    rows(this.totals, [
      ["Answers", `${count(counters.finished)} finished, ${count(counters.cancelled)} stopped`],
      ["Failed, refused", `${count(counters.failed)}, ${count(counters.refused)}`],
      ["Tokens", `${count(counters.decode_tokens)} of answers, ${count(counters.prefill_tokens)} of prompts`],
      ["Found in memory", percent(counters.hits / (counters.hits + counters.misses))],
      ["Read from disk", bytes(counters.bytes_read)],
      ["Read for nothing", bytes(counters.wasted_bytes)],
      ["Waited for the disk", seconds(counters.wait_seconds)],
      ["Memory given back", `${count(counters.pool_shrinks)} times`],
    ]);
    if (this.#shown) this.#showCharts();
  }

  #showCharts() {
    for (const chart of this.charts) chart.set(this.#app.rates.points);
  }
}
