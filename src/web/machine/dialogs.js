// The dialogs of the models: a question before what cannot be undone, and what the planner says. Each gives the
// focus back to what opened it.
import { getJson } from "../lib/api.js";
import { h, replace, setText } from "../lib/dom.js";
import { sentence } from "../lib/format.js";
import { planFacts } from "./models.js";
import { PlanBar } from "./plan_bar.js";
import { rows } from "./rows.js";

function opener() {
  const element = document.activeElement;
  return () => element?.isConnected && element.focus();
}

export class ConfirmDialog {
  #answer = () => {};

  constructor() {
    this.title = h("h2", { id: "confirm-title" });
    this.text = h("p", { id: "confirm-text" });
    this.yes = h("button", { type: "submit", class: "button", value: "yes" });
    this.no = h("button", { type: "button", class: "button", onclick: () => this.element.close() }, "Cancel");
    this.element = h(
      "dialog",
      {
        class: "dialog",
        "aria-labelledby": "confirm-title",
        "aria-describedby": "confirm-text",
        onclose: () => this.#answer(this.element.returnValue === "yes"),
      },
      h(
        "form",
        { method: "dialog" },
        this.title,
        this.text,
        h("div", { class: "dialog-actions" }, this.no, this.yes),
      ),
    );
  }

  // → whether it shall be done. What destroys is not what Enter does.
  async ask({ title, text, action, destroys = false }) {
    const back = opener();
    setText(this.title, title);
    setText(this.text, text);
    setText(this.yes, action);
    this.yes.classList.toggle("danger", destroys);
    this.yes.classList.toggle("primary", !destroys);
    this.element.returnValue = "";
    this.element.showModal();
    (destroys ? this.no : this.yes).focus();
    const answer = await new Promise((done) => (this.#answer = done));
    back();
    return answer;
  }
}

export class PlanDialog {
  #name = "";
  #back = () => {};

  // switchTo(name): the button of that name.
  constructor(switchTo) {
    this.title = h("h2", { id: "plan-title" });
    this.text = h("p", { role: "status" });
    this.bar = new PlanBar();
    this.figures = h("dl", { class: "figures" });
    this.body = h("div", { class: "plan-body", hidden: true }, this.bar.element, this.figures);
    this.close = h(
      "button",
      { type: "button", class: "button", onclick: () => this.element.close() },
      "Close",
    );
    this.go = h(
      "button",
      {
        type: "button",
        class: "button primary",
        onclick: () => {
          this.element.close();
          switchTo(this.#name);
        },
      },
      "Switch to it",
    );
    this.element = h(
      "dialog",
      { class: "dialog plan-dialog", "aria-labelledby": "plan-title", onclose: () => this.#back() },
      h(
        "div",
        { class: "plan-form" },
        this.title,
        this.text,
        this.body,
        h("div", { class: "dialog-actions" }, this.close, this.go),
      ),
    );
  }

  // `model`: its line of the list.
  async open(model) {
    const { name } = model;
    this.#name = name;
    this.#back = opener();
    setText(this.title, name);
    setText(this.text, "Asking the planner…");
    this.text.classList.remove("plan-problem");
    this.body.hidden = this.go.hidden = true;
    this.element.showModal();
    this.close.focus();
    try {
      const answer = await getJson(`wader/models/${encodeURIComponent(name)}/plan`);
      if (name === this.#name && this.element.open) this.#show(model, answer);
    } catch (error) {
      if (name === this.#name && this.element.open) this.#fail(error.message);
    }
  }

  #show(model, answer) {
    if (!answer.fits) return this.#fail(sentence(`It does not fit this server’s memory: ${answer.problem}`));
    const text = this.bar.set(answer.plan);
    setText(this.text, model.serving ? `As it is served: ${text}.` : `It fits: ${text}.`);
    rows(this.figures, planFacts(answer, (model.layers ?? 0) * (model.experts ?? 0)));
    this.body.hidden = false;
    this.go.hidden = model.serving;
  }

  #fail(text) {
    this.text.classList.add("plan-problem");
    setText(this.text, text);
  }
}
