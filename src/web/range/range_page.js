// The Range page: what each expert responds to, as points in space; how sure that is; and a button that finds out.
import { postJson } from "../lib/api.js";
import { h, replace, setText } from "../lib/dom.js";
import { bytes, count, number, percent } from "../lib/format.js";
import { css } from "../lib/theme.js";
import { topicColour } from "../lib/topics.js";
import { indexOf, kNone, readMap } from "./range_map.js";
import { RangeView } from "./range_view.js";

export function createPage(element, app) {
  return new RangePage(element, app);
}

class RangePage {
  #app;
  #data = null; // the map as it came, to see whether it is another one
  #map = null;
  #hidden = new Set();
  #picked = -1;
  #building = false;

  constructor(element, app) {
    this.#app = app;
    this.view = new RangeView((index, pressed) => this.#pick(index, pressed));
    this.#build(element);
    app.feed.on("range", (progress) => this.#progress(progress));
    app.feed.on("state", () => app.feed.loading !== null && this.#showLoading());
    // Another model has another map, or none.
    app.onModel(() => this.#forget());
    app.feed.on("facts", () => !element.hidden && this.#load());
  }

  async show(options) {
    await this.#load();
    if (options?.expert && this.#map) {
      this.view.canvas.focus();
      this.view.select(indexOf(this.#map, options.expert.layer, options.expert.expert));
    }
  }

  #build(element) {
    this.summary = h("p", { class: "muted" }, "What each expert responds to");
    this.legend = h("ul", { class: "range-legend", "aria-label": "Topics" });
    this.figures = h("dl", { class: "figures" });
    this.expert = h("dl", { class: "figures" });
    this.readout = h("p", { class: "visually-hidden", role: "status" });
    this.toCell = h(
      "button",
      { type: "button", class: "button small", disabled: true, onclick: () => this.#showCell() },
      "Show in Experts",
    );
    this.again = h(
      "button",
      { type: "button", class: "button small", onclick: () => this.#start() },
      "Build it again",
    );
    this.first = h(
      "button",
      { type: "button", class: "button primary", onclick: () => this.#start() },
      "Build the map",
    );
    this.bar = h("span");
    this.progressText = h("p", { class: "muted", role: "status" });
    this.meter = h(
      "div",
      { class: "progress", role: "progressbar", "aria-label": "Probes", "aria-valuemin": "0" },
      this.bar,
    );
    this.progress = h("div", { class: "panel range-progress", hidden: true }, this.progressText, this.meter);
    this.empty = h(
      "div",
      { class: "panel range-empty", hidden: true },
      h("h2", {}, "No range map yet"),
      h(
        "p",
        { class: "muted" },
        "The model reads two texts on each of twelve topics. What its experts choose shows what they respond to.",
      ),
      this.first,
    );
    this.problem = h("p", { class: "message-note error", hidden: true, role: "alert" });
    this.notice = h("p", { class: "notice", hidden: true });
    this.body = h(
      "div",
      { class: "range-body", hidden: true },
      h(
        "div",
        { class: "panel range-panel" },
        h("h2", {}, "Range"),
        this.summary,
        h(
          "p",
          { class: "visually-hidden", id: "range-help" },
          "Arrow keys turn the map, plus and minus zoom, square brackets go from point to point, Enter keeps one.",
        ),
        this.view.canvas,
      ),
      h(
        "div",
        { class: "range-side" },
        h("section", { class: "panel" }, h("h2", {}, "Topics"), this.legend),
        h(
          "section",
          { class: "panel" },
          h("h2", {}, "Expert"),
          this.expert,
          h("div", { class: "panel-actions" }, this.toCell),
        ),
        h(
          "section",
          { class: "panel" },
          h("h2", {}, "The map"),
          this.figures,
          h("div", { class: "panel-actions" }, this.again),
        ),
      ),
    );
    replace(
      element,
      h("div", { class: "page-inner" }, this.problem, this.notice, this.progress, this.empty, this.body),
      this.readout,
    );
    this.#showExpert();
  }

  // No model, no map; what was shown of the former one stays until there is another.
  #showLoading() {
    this.#setBuilding(false);
    this.empty.hidden = true;
    this.again.disabled = this.first.disabled = true;
    this.notice.hidden = this.#map !== null;
    setText(this.notice, this.#app.feed.loading);
  }

  #forget() {
    this.#data = this.#map = null;
    this.#picked = -1;
    this.#hidden.clear();
    this.#setBuilding(false);
    this.body.hidden = this.empty.hidden = true;
  }

  async #load(again = false) {
    if (this.#app.feed.loading !== null) return this.#showLoading();
    this.notice.hidden = true;
    this.again.disabled = this.first.disabled = this.#building;
    try {
      const data = await this.#app.loadRange(again);
      this.empty.hidden = data !== null || this.#building;
      this.body.hidden = data === null;
      this.problem.hidden = true;
      if (!data || data === this.#data) return;
      this.#data = data;
      this.#map = readMap(data);
      this.#hidden.clear();
      this.#picked = -1;
      this.view.setMap(this.#map, this.#hidden);
      this.#showMap();
    } catch (error) {
      // 503: a model is being loaded. Its facts come when it is there, and with them this again.
      if (error.status !== 503) this.#fail(error.message);
    }
  }

  #fail(text) {
    this.problem.hidden = false;
    setText(this.problem, text);
  }

  async #start() {
    if (this.#building) return;
    this.problem.hidden = true;
    this.#setBuilding(true);
    this.#progress({ state: "running", done: 0, total: 0 });
    try {
      await postJson("wader/range", {});
    } catch (error) {
      if (error.status === 409) return; // another window began it: the events tell how far it is
      this.#setBuilding(false);
      this.#fail(error.message);
    }
  }

  #setBuilding(building) {
    this.#building = building;
    this.progress.hidden = !building;
    this.again.disabled = this.first.disabled = building;
    if (building) this.empty.hidden = true;
    else this.empty.hidden = this.#map !== null;
  }

  async #progress({ state, done, total, error }) {
    if (state === "running") {
      if (!this.#building) this.#setBuilding(true);
      const far = total > 0 ? `: ${bytes(done)} of ${bytes(total)} of texts read` : "…";
      setText(this.progressText, `Building the range map${far}`);
      this.meter.setAttribute("aria-valuemax", String(total || 1));
      this.meter.setAttribute("aria-valuenow", String(done));
      this.bar.style.width = `${total > 0 ? (100 * done) / total : 0}%`;
      return;
    }
    // The last of these events comes again with each connection.
    const seen = this.#building;
    if (state === "done") await this.#load(true);
    this.#setBuilding(false);
    if (seen && state === "failed")
      this.#fail(`The range map could not be built: ${error ?? "the server does not say why"}`);
  }

  #showMap() {
    const map = this.#map;
    const item = (topic, name, total) => {
      const swatch = h("i", { class: "swatch" });
      swatch.style.background = topic === kNone ? "var(--muted)" : css(topicColour(topic));
      return h(
        "li",
        {},
        h(
          "button",
          { type: "button", "aria-pressed": "true", onclick: (event) => this.#toggle(topic, event) },
          swatch,
          h("span", {}, name),
          h("span", { class: "muted" }, count(total)),
        ),
      );
    };
    replace(
      this.legend,
      map.topics.map((name, topic) => item(topic, name, map.counts[topic])),
      item(kNone, "none credited", map.uncredited),
    );
    const [first, second, third] = map.varianceExplained;
    const explained = map.varianceExplained.reduce((sum, share) => sum + share, 0);
    setText(
      this.summary,
      `${count(map.credited)} of ${count(map.experts.length)} experts credited with a topic · ` +
        `credit repeats for ${percent(map.repeatRate)} · ${percent(explained)} of the variance shown`,
    );
    const { byChance } = map;
    const rows = [
      [
        "Credited",
        count(map.credited),
        `Chosen more than ${map.activationsOver} times, and clearly for one topic`,
      ],
      ["by chance", number(byChance.credited), "Mean of maps in which each token’s topic is drawn at random"],
      [
        "Repeated",
        `${count(map.repeated)} of ${count(map.tested)} tested`,
        "Texts that were held out credit the same topic; tested are those that these texts used often enough",
      ],
      ["by chance", number(byChance.repeated), "Mean of maps in which each token’s topic is drawn at random"],
      ["Credit repeats", percent(map.repeatRate), "Of the credits that could be tested"],
      [
        "by chance",
        percent(byChance.repeatRate),
        "If the topic that leads in the held-out texts had nothing to do with the credited one",
      ],
      [
        "Variance explained",
        percent(explained),
        `Axes 1, 2 and 3: ${[first, second, third].map(percent).join(", ")}`,
      ],
      [
        "Seen too seldom",
        count(map.faint.reduce((sum, faint) => sum + faint, 0)),
        "Drawn faintly, and not counted",
      ],
    ];
    replace(
      this.figures,
      rows.map(([name, value, title]) => [
        h("dt", { title, class: name === "by chance" && "by-chance" }, name),
        h("dd", { title, class: name === "by chance" && "muted" }, value),
      ]),
    );
    this.#showExpert();
  }

  // A click hides or shows a topic; with Shift, or on the only one shown, it shows that one alone or all again.
  #toggle(topic, event) {
    const all = [...this.#map.topics.keys(), kNone];
    if (event.shiftKey) {
      const alone = all.every((other) => this.#hidden.has(other) === (other !== topic));
      this.#hidden = new Set(alone ? [] : all.filter((other) => other !== topic));
    } else if (!this.#hidden.delete(topic)) {
      this.#hidden.add(topic);
    }
    [...this.legend.querySelectorAll("button")].forEach((button, i) =>
      button.setAttribute("aria-pressed", String(!this.#hidden.has(all[i]))),
    );
    this.view.filter(this.#hidden);
  }

  #pick(index, pressed) {
    this.#picked = index;
    this.#showExpert();
    if (index < 0) return;
    const { layer, expert } = this.#map.experts[index];
    if (pressed || document.activeElement === this.view.canvas)
      setText(this.readout, `Layer ${layer}, expert ${expert}, ${this.#topicName(index)}`);
  }

  #topicName(index) {
    const topic = this.#map.topicOf[index];
    return topic === kNone ? "none credited" : this.#map.topics[topic];
  }

  #showExpert() {
    const expert = this.#picked >= 0 ? this.#map.experts[this.#picked] : null;
    const repeats = expert?.repeats === true ? "yes" : expert?.repeats === false ? "no" : "–";
    const rows = [
      ["Layer", expert ? expert.layer : "–"],
      ["Expert", expert ? expert.expert : "–"],
      ["Topic", expert ? this.#topicName(this.#picked) : "–"],
      ["Specialisation", expert ? number(expert.specialisation) : "–"],
      ["Chosen", expert ? `${count(expert.activations)} times` : "–"],
      ["Repeats", repeats],
    ];
    replace(
      this.expert,
      rows.map(([name, value]) => [h("dt", {}, name), h("dd", {}, String(value))]),
    );
    this.toCell.disabled = !expert;
  }

  #showCell() {
    const { layer, expert } = this.#map.experts[this.#picked];
    const row = this.#app.recorder.shape?.layerNumbers.indexOf(layer) ?? -1;
    if (row < 0) return this.#app.toast("The grid does not know this layer: the map is of another model.");
    this.#app.show("experts", { cell: { layer: row, expert } });
  }
}
