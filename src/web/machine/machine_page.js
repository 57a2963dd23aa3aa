// The Machine page: what the memory is used for, what the last two minutes were like, which model this is and
// which others are installed.
import { getJson } from "../lib/api.js";
import { niceMaxBytes, TimeChart } from "../lib/charts.js";
import { h, replace, setText } from "../lib/dom.js";
import { bytes, bytesPerSecond, count, percent, seconds, tokensPerSecond } from "../lib/format.js";
import { planParts } from "./plan.js";

const kModelsMs = 10000;

export function createPage(element, app) {
  return new MachinePage(element, app);
}

class MachinePage {
  #app;
  #shown = false;
  #timer = 0;

  constructor(element, app) {
    this.#app = app;
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
    if (app.feed.facts) this.#showFacts(app.feed.facts);
  }

  show() {
    this.#shown = true;
    this.#app.feed.refreshFacts().catch(() => {}); // the feed's state says what is wrong
    this.#showCharts();
    this.#loadModels();
    this.#timer ||= setInterval(() => this.#loadModels(), kModelsMs);
  }

  hide() {
    this.#shown = false;
    clearInterval(this.#timer);
    this.#timer = 0;
  }

  #build(element) {
    this.planTitle = h("p", { class: "muted" });
    this.planBar = h("div", { class: "plan-bar", role: "img" });
    this.planList = h("ul", { class: "plan-list" });
    this.now = h("dl", { class: "figures" });
    this.totals = h("dl", { class: "figures" });
    this.model = h("dl", { class: "figures" });
    this.engine = h("dl", { class: "figures" });
    this.models = h("div", { class: "models" }, h("p", { class: "muted" }, "Asking the server…"));
    replace(
      element,
      h(
        "div",
        { class: "page-inner machine" },
        h(
          "section",
          { class: "panel wide", "aria-label": "Memory" },
          h("div", { class: "panel-head" }, h("h2", {}, "Memory"), this.planTitle),
          this.planBar,
          this.planList,
        ),
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
        h(
          "section",
          { class: "panel wide", "aria-label": "Installed models" },
          h("h2", {}, "Installed models"),
          this.models,
        ),
      ),
    );
  }

  #showFacts({ model, plan, engine, now, counters, version, uptime_seconds: uptime }) {
    this.#showPlan(plan);
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
      [
        "Lookahead",
        engine.lookahead === true ? "on" : engine.lookahead === false ? "off" : String(engine.lookahead),
      ],
      ["Threads", count(plan.threads)],
      ["Tokens a pass", `up to ${count(plan.chunk)}`],
      ["Conversations", count(plan.sessions)],
    ]);
    this.#showStats({ now, counters });
  }

  #showPlan(plan) {
    const { parts, used, free, budget } = planParts(plan);
    setText(this.planTitle, `${bytes(used)} planned of a budget of ${bytes(budget)}`);
    this.planBar.setAttribute(
      "aria-label",
      parts.map(({ name, bytes: size }) => `${name} ${bytes(size)}`).join(", "),
    );
    replace(
      this.planBar,
      parts.map(({ name, bytes: size, share, colour }) => {
        const part = h("span", { title: `${name}: ${bytes(size)}` });
        part.style.width = `${share * 100}%`;
        part.style.background = `var(--${colour})`;
        return part;
      }),
    );
    const item = (name, help, size, colour) => {
      const swatch = h("i", { class: "swatch" });
      swatch.style.background = `var(--${colour})`;
      return h(
        "li",
        { title: help },
        swatch,
        h("span", {}, name),
        h("span", { class: "muted" }, bytes(size)),
      );
    };
    replace(
      this.planList,
      parts.map(({ name, help, bytes: size, colour }) => item(name, help, size, colour)),
      free > 0 && item("Free", "Of the budget, not planned for", free, "sunken"),
    );
    this.plan = plan;
  }

  #showStats({ now, counters }) {
    const slots = this.plan?.slots ?? NaN;
    rows(this.now, [
      ["Answering", count(now.running)],
      ["In the queue", count(now.queued)],
      ["Experts in memory", bytes(now.resident_bytes)],
      ["Slots in use", `${count(now.usable_slots)} of ${count(slots)}`],
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

  async #loadModels() {
    try {
      const { models } = await getJson("wader/models");
      this.#showModels(models);
    } catch (error) {
      replace(this.models, h("p", { class: "muted" }, error.message));
    }
  }

  #showModels(models) {
    if (models.length === 0) return replace(this.models, h("p", { class: "muted" }, "None."));
    const state = ({ state: name, problem, serving }) => [
      h("span", { class: `badge ${serving ? "serving" : name}` }, serving ? "serving" : name),
      problem && h("span", { class: "muted problem" }, problem),
    ];
    const text = JSON.stringify(models);
    if (this.modelsText === text && this.models.querySelector("table")) return;
    this.modelsText = text;
    replace(
      this.models,
      h(
        "div",
        { class: "table-scroll", tabindex: "0", role: "region", "aria-label": "Table of models" },
        h(
          "table",
          {},
          h(
            "thead",
            {},
            h(
              "tr",
              {},
              ["Name", "State", "Family", "Experts", "Formats", "On disk"].map((name) =>
                h("th", { scope: "col" }, name),
              ),
            ),
          ),
          h(
            "tbody",
            {},
            models.map((model) =>
              h(
                "tr",
                {},
                h("th", { scope: "row" }, model.name),
                h("td", {}, state(model)),
                h("td", {}, model.family ?? "–"),
                h("td", {}, model.layers ? `${count(model.layers)} × ${count(model.experts)}` : "–"),
                h("td", {}, [model.expert_format, model.trunk_format].filter(Boolean).join(", ") || "–"),
                h("td", { class: "align-right" }, bytes(model.disk_bytes)),
              ),
            ),
          ),
        ),
      ),
    );
  }
}

// Writes only what changed, so that a live list neither flickers nor loses what someone has selected in it.
function rows(list, entries) {
  if (list.children.length !== 2 * entries.length)
    replace(
      list,
      entries.map(([name]) => [h("dt", {}, name), h("dd")]),
    );
  entries.forEach(([, value], i) => setText(list.children[2 * i + 1], value));
}
