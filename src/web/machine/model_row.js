// A line of the table of models. It lives as long as its model is listed: an update writes what changed.
import { h, icon, setText } from "../lib/dom.js";
import { modelFacts } from "./models.js";
import { allow } from "./rows.js";

const kRemoveIcon = "M4 6h12M8 6V4h4v2M6 6l.7 10h6.6L14 6M8.5 9v4M11.5 9v4";
// Narrow windows show a line as a block (machine.css), which would take the table's roles away.
const cell = (...children) => h("td", { role: "cell" }, ...children);

export const kColumns = ["Model", "State", "Layers × experts", "Formats", "On disk", "Actions"];

export function tableHead() {
  return h(
    "thead",
    { role: "rowgroup" },
    h(
      "tr",
      { role: "row" },
      kColumns.map((name) =>
        h(
          "th",
          { role: "columnheader", scope: "col" },
          name === "Actions" ? h("span", { class: "visually-hidden" }, name) : name,
        ),
      ),
    ),
  );
}

export class ModelRow {
  #model;
  #facts;

  // actions: {switch, resume, plan, remove} (model), and toast(text) for why one cannot be.
  constructor(model, actions) {
    const { name } = model;
    const act = (whyNot, action) => {
      const reason = whyNot(this.#facts);
      if (reason === null) action(this.#model);
      else actions.toast(`${reason}.`);
    };
    this.badge = h("span", { class: "badge" });
    this.problem = h("span", { class: "muted problem" });
    this.shape = h("span");
    this.family = h("span", { class: "muted" });
    this.formats = h("span");
    this.size = h("span");
    this.source = h("span", { class: "muted model-source" });
    this.main = h("button", {
      type: "button",
      class: "button small main-action",
      onclick: () =>
        act(
          (facts) => facts.mainWhyNot,
          (of) => actions[this.#facts.main](of),
        ),
    });
    this.plan = h(
      "button",
      {
        type: "button",
        class: "button small",
        "aria-label": `Plan of ${name}`,
        onclick: () =>
          act(
            (facts) => facts.planWhyNot,
            (of) => actions.plan(of),
          ),
      },
      "Plan",
    );
    this.remove = h(
      "button",
      {
        type: "button",
        class: "icon-button remove-model",
        "aria-label": `Remove ${name}`,
        onclick: () =>
          act(
            (facts) => facts.removeWhyNot,
            (of) => actions.remove(of),
          ),
      },
      icon(kRemoveIcon),
    );
    this.element = h(
      "tr",
      { role: "row", "data-model": name },
      h("th", { scope: "row", role: "rowheader" }, h("span", { class: "model-name" }, name), this.source),
      cell(this.badge, this.problem),
      (this.shapeCell = cell(this.shape, this.family)),
      (this.formatsCell = cell(this.formats)),
      cell(this.size),
      h("td", { role: "cell", class: "row-actions" }, this.main, this.plan, this.remove),
    );
  }

  // context: {loading: name or null, install: of this name}.
  update(model, context) {
    this.#model = model;
    const facts = (this.#facts = modelFacts(model, context));
    const badge = `badge ${facts.badge}`;
    if (this.badge.className !== badge) this.badge.className = badge;
    setText(this.badge, facts.badge);
    setText(this.problem, facts.problem);
    setText(this.source, model.source ?? "");
    setText(this.shape, facts.shape);
    setText(this.family, model.family ?? "");
    setText(this.formats, facts.formats);
    setText(this.size, facts.size);
    this.shapeCell.classList.toggle("unknown", facts.shape === "–");
    this.formatsCell.classList.toggle("unknown", facts.formats === "–");
    const label = facts.main === "resume" ? "Resume" : "Switch to";
    setText(this.main, label);
    this.main.setAttribute("aria-label", `${label} ${model.name}`);
    allow(this.main, facts.mainWhyNot);
    allow(this.plan, facts.planWhyNot);
    allow(this.remove, facts.removeWhyNot, "Remove");
  }
}
