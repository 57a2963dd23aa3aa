// The models of this machine: which is served, which others are there, and those that come. The list is asked for
// when it is shown and after each action; what changes in between comes with the feed.
import { getJson, postJson } from "../lib/api.js";
import { h, setText } from "../lib/dom.js";
import { bytes, count } from "../lib/format.js";
import { ConfirmDialog, PlanDialog } from "./dialogs.js";
import { InstallCard } from "./install_card.js";
import { InstallForm } from "./install_form.js";
import { ModelRow, tableHead } from "./model_row.js";
import { isUnderWay, resumeBody, shownInstalls, TransferRate } from "./models.js";
import { arrange } from "./rows.js";

const kListMs = 10000; // other programs install and remove as well
const addressOf = (name, action) => `wader/models/${encodeURIComponent(name)}/${action}`;

export class ModelsSection {
  #app;
  #list = { models: [], loading: null };
  #installs = new Map(); // name → {install, rate, at: events seen when it was told}
  #begun = new Map(); // name → the request that began its install
  #events = 0;
  #asked = 0;
  #dismissed = new Set(); // names of failed installs that somebody has seen
  #rows = new Map();
  #cards = new Map();
  #timer = 0;

  constructor(app) {
    this.#app = app;
    this.#build();
    app.feed.on("install", (install) => this.#tell(install));
    app.feed.on("model", ({ state, name }) => {
      this.#list.loading = state === "loading" ? name : null;
      this.#render();
      if (state !== "loading") this.load();
    });
    app.onModel(() => this.load());
  }

  show() {
    this.load();
    this.#timer ||= setInterval(() => this.load(), kListMs);
  }

  hide() {
    clearInterval(this.#timer);
    this.#timer = 0;
  }

  #build() {
    this.heading = h("h2", { tabindex: "-1", id: "models-title" }, "Models");
    this.where = h("p", { class: "muted" });
    this.problem = h("p", { class: "message-note error", role: "alert", hidden: true });
    this.cards = h("ul", { class: "installs", "aria-label": "Installs", hidden: true });
    this.body = h("tbody", { role: "rowgroup" });
    this.table = h(
      "table",
      { role: "table", class: "models-table", "aria-labelledby": "models-title" },
      tableHead(),
      this.body,
    );
    this.none = h("p", { class: "muted" }, "Asking the server…");
    this.status = h("p", { class: "visually-hidden", role: "status" });
    this.confirm = new ConfirmDialog();
    this.plan = new PlanDialog((name) => this.#switch(name));
    this.form = new InstallForm((body) => this.#begin(body));
    this.table.hidden = true;
    this.element = h(
      "section",
      { class: "panel wide models", "aria-labelledby": "models-title" },
      h("div", { class: "panel-head" }, this.heading, this.where),
      this.problem,
      this.cards,
      this.none,
      this.table,
      this.form.element,
      this.status,
      this.confirm.element,
      this.plan.element,
    );
  }

  async load() {
    const asked = ++this.#asked;
    const events = this.#events;
    try {
      const list = await getJson("wader/models");
      if (asked !== this.#asked) return;
      this.#list = { ...list, loading: list.loading ?? null };
      for (const install of list.installs ?? []) this.#keep(install, events);
      const told = new Set((list.installs ?? []).map(({ name }) => name));
      for (const [name, { at }] of this.#installs)
        if (!told.has(name) && at <= events) this.#installs.delete(name);
      this.#render();
    } catch (error) {
      if (asked === this.#asked && this.#rows.size === 0) setText(this.none, error.message);
    }
  }

  // What an event told after the list was asked for is newer than the list.
  #keep(install, at) {
    const before = this.#installs.get(install.name);
    if (before && before.at > at) return before;
    const goesOn = before?.install.state === install.state;
    const rate = goesOn ? before.rate : new TransferRate();
    if (install.state === "running") rate.push(performance.now() / 1000, install.done_bytes);
    const entry = { install, rate, at };
    this.#installs.set(install.name, entry);
    return entry;
  }

  #tell(install) {
    const { name, state } = install;
    const before = this.#installs.get(name)?.install;
    this.#keep(install, ++this.#events);
    if (state === "running") this.#dismissed.delete(name);
    if (state !== before?.state) {
      const said = {
        running: `Installing ${name}`,
        paused: `The install of ${name} is paused`,
        done: `${name} is installed`,
      }[state];
      // The last event of each comes again with each connection: what is long done is not told.
      const seen = isUnderWay(before);
      if (said && (seen || state === "running")) setText(this.status, said);
      if (seen && state === "done") this.#app.toast(`${name} is installed.`);
      this.load();
    }
    this.#render();
  }

  #render() {
    const { models, loading, directory, free_bytes: free } = this.#list;
    setText(
      this.where,
      [directory, Number.isFinite(free) && `${bytes(free)} free`].filter(Boolean).join(" · "),
    );
    this.none.hidden = models.length > 0;
    if (models.length === 0 && directory) setText(this.none, "None is installed yet.");
    this.table.hidden = models.length === 0;
    const names = new Set(models.map(({ name }) => name));
    for (const name of this.#rows.keys()) if (!names.has(name)) this.#rows.delete(name);
    for (const model of models) {
      if (!this.#rows.has(model.name)) this.#rows.set(model.name, new ModelRow(model, this.#rowActions()));
      this.#rows.get(model.name).update(model, { loading, install: this.#installs.get(model.name)?.install });
    }
    this.#arrange(
      this.body,
      models.map(({ name }) => this.#rows.get(name).element),
    );
    this.#renderInstalls(names);
  }

  #renderInstalls(names) {
    const installs = shownInstalls(
      [...this.#installs.values()].map(({ install }) => install),
      names,
      this.#dismissed,
    );
    const shown = new Set(installs.map(({ name }) => name));
    for (const name of this.#cards.keys()) if (!shown.has(name)) this.#cards.delete(name);
    for (const install of installs) {
      if (!this.#cards.has(install.name))
        this.#cards.set(install.name, new InstallCard(install, this.#cardActions()));
      this.#cards.get(install.name).update(install, this.#installs.get(install.name).rate.get());
    }
    this.cards.hidden = installs.length === 0;
    this.#arrange(
      this.cards,
      installs.map(({ name }) => this.#cards.get(name).element),
    );
  }

  // Whoever was in a line that went away is at the section's beginning then, and not at the document's.
  #arrange(parent, wanted) {
    const inside = parent.contains(document.activeElement);
    arrange(parent, wanted);
    if (inside && !parent.contains(document.activeElement)) this.heading.focus({ preventScroll: true });
  }

  #rowActions() {
    return {
      switch: ({ name }) => this.#switch(name),
      resume: ({ name }) => this.#resume(name),
      plan: (model) => this.plan.open(model),
      remove: (model) => this.#remove(model),
      toast: (text) => this.#app.toast(text),
    };
  }

  #cardActions() {
    return {
      pause: ({ name }) => this.#act(() => postJson(addressOf(name, "pause"), {})),
      resume: ({ name }) => this.#resume(name),
      dismiss: ({ name }) => {
        this.#dismissed.add(name);
        this.#render();
      },
    };
  }

  // Does it, says what is wrong with it, and looks what has become of the list.
  async #act(action) {
    this.problem.hidden = true;
    try {
      await action();
    } catch (error) {
      this.problem.hidden = false;
      setText(this.problem, error.message);
      this.problem.scrollIntoView({ block: "nearest" });
    }
    await this.load();
  }

  #resume(name) {
    const model = this.#list.models.find((entry) => entry.name === name) ?? {};
    return this.#act(() =>
      this.#begin(resumeBody(model, this.#installs.get(name)?.install, this.#begun.get(name))),
    );
  }

  async #begin(body) {
    const { name } = await postJson("wader/models", body);
    this.#begun.set(name, body);
    setText(this.status, `Installing ${name}`);
    await this.load();
  }

  async #switch(name) {
    const answers = await this.#answersInProgress();
    const told = answers === 1 ? "An answer is" : `${count(answers)} answers are`;
    const sure =
      answers === 0 ||
      (await this.confirm.ask({
        title: `Switch to ${name}?`,
        text: `${told} in progress. Switching ends ${answers === 1 ? "it" : "them"} where ${answers === 1 ? "it is" : "they are"}.`,
        action: "Switch",
      }));
    if (sure) await this.#act(() => postJson(addressOf(name, "load"), {}));
  }

  async #answersInProgress() {
    const facts = await this.#app.feed.refreshFacts().catch(() => null);
    return facts ? facts.now.running + facts.now.queued : 0;
  }

  async #remove({ name, disk_bytes: size, source }) {
    const again = source ? `It can be installed again from ${source}.` : "Where it came from is not known.";
    const sure = await this.confirm.ask({
      title: `Remove ${name}?`,
      text: `Its ${bytes(size)} on the disk become free. ${again}`,
      action: "Remove",
      destroys: true,
    });
    if (!sure) return;
    await this.#act(async () => {
      await postJson(addressOf(name, "remove"), {});
      this.#dismissed.add(name);
      setText(this.status, `${name} is removed`);
    });
  }
}
