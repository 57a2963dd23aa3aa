// The Experts page: the grid, live or in replay; what the cell under the cursor is; and the routing's figures.
import { h, replace, setText } from "../lib/dom.js";
import { count, percent } from "../lib/format.js";
import { GridView } from "./grid_view.js";
import { Heat } from "./heat.js";
import { RoutingFigures } from "./overlap.js";
import { chosenText, Replay } from "./replay.js";
import { residentOf } from "./routing.js";
import { kRestMs } from "../lib/pace.js";
import { Player } from "./player.js";

const kFiguresMs = 250;
const kFiguresRestMs = 1000; // where frames are few

export function createPage(element, app) {
  return new ExpertsPage(element, app);
}

class ExpertsPage {
  #app;
  #shape = null;
  #heat = null;
  #figures = null;
  #replay = null; // null while live
  #topics = new Map(); // cell → topic's name
  #cursor = null;
  #figuresTimer = 0;
  #figuresAt = 0;
  #shown = false;

  constructor(element, app) {
    this.#app = app;
    this.view = new GridView({
      tick: (seconds) => this.#tick(seconds),
      pick: (cell, keys) => this.#pick(cell, keys),
      pace: app.pace,
    });
    this.player = new Player({
      live: () => this.#live(),
      pause: () => this.#pause(),
      play: () => this.#play(),
      seek: (position) => this.#seek(position),
      speed: (rate) => this.#replay && (this.#replay.tokensPerSecond = rate),
    });
    this.#build(element);
    app.feed.on("hello", () => this.#begin());
    app.feed.on("resident", (data) => this.#resident(data));
    app.feed.on("state", () => this.#showNotice());
    app.onModel(() => this.#another());
    app.recorder.onPass((pass) => this.#pass(pass));
    this.#begin();
  }

  show(options) {
    this.#shown = true;
    this.#loadTopics();
    this.view.show(true);
    this.#showNotice();
    this.#figuresTimer ||= setInterval(() => this.#refreshFigures(), kFiguresMs);
    if (options?.cell) {
      this.view.canvas.focus();
      this.view.select(options.cell);
    }
  }

  hide() {
    this.#shown = false;
    this.view.show(false);
    clearInterval(this.#figuresTimer);
    this.#figuresTimer = 0;
  }

  #build(element) {
    const legend = [
      ["resident", "in memory"],
      ["absent", "on disk"],
      ["heat", "chosen"],
      ["disk", "chosen, read from disk"],
    ];
    this.title = h("p", { class: "muted" });
    this.notice = h("p", { class: "notice", hidden: true });
    this.cell = h("dl", { class: "figures" });
    this.toRange = h(
      "button",
      { type: "button", class: "button small", disabled: true, onclick: () => this.#showInRange() },
      "Show in Range",
    );
    this.readout = h("p", { class: "visually-hidden", role: "status" });
    this.numbers = h("dl", { class: "figures" });
    this.body = h(
      "div",
      { class: "experts-body" },
      h(
        "div",
        { class: "panel grid-panel" },
        h(
          "div",
          { class: "panel-head" },
          h("div", {}, h("h2", {}, "Experts"), this.title),
          h(
            "ul",
            { class: "legend-line" },
            legend.map(([name, label]) => h("li", {}, h("i", { class: `swatch shade-${name}` }), label)),
          ),
        ),
        h(
          "p",
          { class: "visually-hidden", id: "grid-help" },
          "Arrow keys move from cell to cell, Page Up and Page Down by sixteen experts, Home and End to the first and last layer.",
        ),
        h("p", { class: "strip-label muted" }, "Found in memory, by layer"),
        this.view.stage,
        this.player.element,
      ),
      h(
        "div",
        { class: "experts-side" },
        h(
          "section",
          { class: "panel" },
          h("h2", {}, "Expert"),
          this.cell,
          h("div", { class: "panel-actions" }, this.toRange),
        ),
        h("section", { class: "panel" }, h("h2", {}, "Routing"), this.numbers),
      ),
    );
    replace(element, h("div", { class: "page-inner" }, this.body, this.notice), this.readout);
    this.#showCell();
    this.#showFigures();
  }

  // A model to show, or another one.
  #begin() {
    const { shape } = this.#app.recorder;
    if (!shape || shape === this.#shape) return;
    this.#shape = shape;
    this.#heat = new Heat(shape.cells);
    this.#topics.clear();
    this.#figures = new RoutingFigures(shape);
    this.#replay = null;
    setText(
      this.title,
      `${count(shape.layers)} layers × ${count(shape.experts)} experts, ${shape.chosen} chosen for each token`,
    );
    // What came before this page was opened counts as well.
    for (const pass of this.#app.recorder.passes()) this.#count(pass);
    this.view.setModel(shape, this.#heat, this.#figures);
    this.player.show(null, this.#app.recorder.last() !== null);
    this.#pick(null, false);
    this.#showNotice();
    if (this.#shown) this.#loadTopics();
  }

  // Its topics are another map's. The shape came before: the recorder has it from the same event.
  #another() {
    this.#begin();
    this.#topics.clear();
    if (this.#shown) this.#loadTopics();
    this.#showCell();
  }

  #showNotice() {
    const { state, loading } = this.#app.feed;
    const text =
      {
        loading: this.#shape ? "" : loading, // the header says it
        offline: "The server does not answer. The grid comes back with it.",
        denied: "This server wants a key: the key button is at the top right.",
        absent: "This server has no live view.",
      }[state] ?? (this.#shape ? "" : "Waiting for the server…");
    this.notice.hidden = !text;
    setText(this.notice, text);
    this.body.classList.toggle("without-model", !this.#shape);
  }

  #resident(data) {
    const resident = this.#shape ? residentOf(data, this.#shape) : null;
    if (!resident) return;
    this.#heat.setResident(resident);
    this.view.kick();
    if (this.#cursor) this.#showCell();
  }

  #pass(pass) {
    if (!this.#shape) return;
    this.#count(pass);
    if (this.#replay) return;
    this.#light(pass, 1);
    this.view.kick();
  }

  #count(pass) {
    this.#figures.take(pass);
    const { layers, chosen, experts } = this.#shape;
    for (let layer = 0; layer < layers; layer++)
      for (let i = layer * chosen; i < (layer + 1) * chosen; i++)
        this.#heat.counts[layer * experts + pass.ids[i]]++;
  }

  #light(pass, heat) {
    const { layers, chosen, experts } = this.#shape;
    for (let layer = 0; layer < layers; layer++) {
      for (let i = layer * chosen; i < (layer + 1) * chosen; i++) {
        const cell = layer * experts + pass.ids[i];
        this.#heat.choose(cell, pass.read[i] === 1, heat);
        if (!this.#replay) this.#heat.setResidentCell(cell);
      }
    }
  }

  // Before each frame. In a replay nothing cools by itself: what is lit follows from the token that is shown.
  #tick(seconds) {
    if (!this.#replay) {
      this.#heat.advance(seconds);
      return this.#heat.warmCount > 0;
    }
    if (this.#replay.advance(seconds)) this.#showToken();
    return this.#replay.playing;
  }

  #showToken() {
    const { pass } = this.#replay.lit().at(-1);
    this.#heat.cool();
    for (const lit of this.#replay.lit()) this.#light(lit.pass, lit.heat);
    this.view.canvas.dataset.token = String(this.#replay.position);
    this.view.canvas.dataset.pass = String(pass.n);
    this.view.canvas.dataset.chosen = chosenText(pass, this.#shape);
    this.player.show(this.#replay, true);
    this.view.kick();
  }

  #pause() {
    const answer = this.#app.recorder.last();
    if (!answer) return;
    this.#replay ??= new Replay({ ...answer, passes: [...answer.passes] });
    this.#replay.tokensPerSecond = this.player.rate();
    this.#replay.playing = false;
    this.#showToken();
  }

  #play() {
    if (!this.#replay) this.#pause();
    if (!this.#replay) return;
    if (this.#replay.position === this.#replay.length - 1) this.#replay.seek(0);
    this.#replay.playing = true;
    this.#showToken();
  }

  #seek(position) {
    if (!this.#replay) this.#pause();
    if (!this.#replay) return;
    this.#replay.playing = false;
    this.#replay.seek(position);
    this.#showToken();
  }

  #live() {
    this.#replay = null;
    for (const name of ["token", "pass", "chosen"]) delete this.view.canvas.dataset[name];
    this.#heat.cool();
    this.player.show(null, this.#app.recorder.last() !== null);
    this.view.kick();
  }

  #pick(cell, byKeyboard) {
    this.#cursor = cell;
    this.#showCell();
    if (!byKeyboard || !cell) return;
    setText(
      this.readout,
      `Layer ${this.#shape.layerNumbers[cell.layer]}, expert ${cell.expert}, ` +
        [...this.cell.querySelectorAll("dd")]
          .slice(2)
          .map((node) => node.textContent)
          .join(", "),
    );
  }

  #showCell() {
    const cell = this.#cursor;
    const at = cell ? cell.layer * this.#shape.experts + cell.expert : -1;
    const rows = [
      ["Layer", cell ? String(this.#shape.layerNumbers[cell.layer]) : "–"],
      ["Expert", cell ? String(cell.expert) : "–"],
      ["Chosen here", cell ? `${count(this.#heat.counts[at])} times` : "–"],
      ["Weights", cell ? (this.#heat.resident[at] ? "in memory" : "on disk") : "–"],
      [
        "Topic",
        cell ? (this.#topics.get(at) ?? (this.#app.rangeMap ? "none credited" : "no range map")) : "–",
      ],
    ];
    replace(
      this.cell,
      rows.map(([name, value]) => [h("dt", {}, name), h("dd", {}, value)]),
    );
    this.toRange.disabled = !cell || !this.#app.rangeMap;
  }

  #refreshFigures() {
    const now = performance.now();
    if (this.#app.pace.restMs > 0 && now - this.#figuresAt < kFiguresRestMs) return;
    this.#figuresAt = now;
    this.#showFigures();
  }

  #showFigures() {
    if (!this.#replay) {
      this.player.show(null, this.#app.recorder.last() !== null, this.#app.pace.idle);
    }
    const figures = this.#figures;
    const hits = figures ? [...figures.hits].filter((share) => !Number.isNaN(share)) : [];
    const rows = [
      [
        "Found in memory",
        percent(hits.reduce((sum, share) => sum + share, 0) / hits.length),
        "Moving mean of the last passes, over all layers",
      ],
      [
        "Same as token before",
        percent(figures?.token),
        "Of a token’s experts, those that the token before had chosen as well",
      ],
      [
        "Same number in next layer",
        percent(figures?.layer),
        "Of a layer’s experts, those whose number the next layer chose as well",
      ],
      ["Either by chance", percent(figures?.chance), "What an even-handed router would show"],
      ["Passes seen", count(this.#app.recorder.total), "Since this page looks"],
      [
        "Frames lost",
        count(this.#app.feed.lost),
        "Frames that the server left out because this page was slow",
      ],
    ];
    if (this.#app.pace.restMs > 0)
      rows.push([
        "Frames drawn",
        `${1000 / kRestMs} / s`,
        "Every one again once the page is touched: the model computes on all CPUs of this machine",
      ]);
    const nodes = rows.map(([name, value, title]) => [h("dt", { title }, name), h("dd", {}, value)]);
    if (this.numbers.textContent !== rows.map(([name, value]) => name + value).join(""))
      replace(this.numbers, nodes);
    if (this.#cursor && !this.#replay) this.#showCell();
  }

  async #loadTopics() {
    const shape = this.#shape;
    const map = await this.#app.loadRange().catch(() => null);
    if (!map || !shape || shape !== this.#shape) return;
    this.#topics.clear();
    const rowOf = new Map(this.#shape.layerNumbers.map((number, row) => [number, row]));
    for (const { layer, expert, topic } of map.experts)
      if (topic !== null && rowOf.has(layer))
        this.#topics.set(rowOf.get(layer) * this.#shape.experts + expert, map.topics[topic]);
    this.#showCell();
  }

  #showInRange() {
    const { layer, expert } = this.#cursor;
    this.#app.show("range", { expert: { layer: this.#shape.layerNumbers[layer], expert } });
  }
}
