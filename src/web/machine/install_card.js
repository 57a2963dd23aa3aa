// One install: how far it is, how fast, how long still; stopped and gone on with by the same button.
import { h, icon, setText } from "../lib/dom.js";
import { installFacts } from "./models.js";
import { allow } from "./rows.js";

export class InstallCard {
  #install;
  #action = null;

  // actions: pause(install), resume(install), dismiss(install).
  constructor(install, actions) {
    const { name } = install;
    this.far = h("span");
    this.pace = h("span");
    this.error = h("p", { class: "install-error" });
    this.bar = h("span");
    this.meter = h(
      "div",
      {
        class: "progress",
        role: "progressbar",
        "aria-label": `Install of ${name}`,
        "aria-valuemin": "0",
        "aria-valuemax": "100",
      },
      this.bar,
    );
    this.button = h("button", {
      type: "button",
      class: "button small main-action",
      onclick: () => this.#action && actions[this.#action](this.#install),
    });
    this.dismiss = h(
      "button",
      {
        type: "button",
        class: "icon-button",
        "aria-label": `Hide the failed install of ${name}`,
        hidden: true,
        onclick: () => actions.dismiss(this.#install),
      },
      icon("M5 5l10 10M15 5L5 15"),
    );
    this.element = h(
      "li",
      { class: "install", "data-install": name },
      h(
        "div",
        { class: "install-head" },
        h(
          "div",
          { class: "install-name" },
          h("strong", {}, name),
          h("span", { class: "muted" }, install.source),
        ),
        h("div", { class: "install-actions" }, this.button, this.dismiss),
      ),
      this.meter,
      h("p", { class: "muted install-text" }, this.far, this.pace),
      this.error,
    );
  }

  update(install, rate) {
    this.#install = install;
    const { share, far, pace, action, error } = installFacts(install, rate);
    this.#action = action;
    this.element.dataset.state = install.state;
    this.bar.style.width = `${100 * share}%`;
    this.meter.setAttribute("aria-valuenow", String(Math.round(100 * share)));
    this.meter.setAttribute("aria-valuetext", [far, pace].filter(Boolean).join(", "));
    setText(this.far, far);
    setText(this.pace, pace);
    setText(this.error, error);
    const label = action === "resume" ? "Resume" : "Pause";
    setText(this.button, label);
    this.button.setAttribute("aria-label", `${label} the install of ${install.name}`);
    allow(this.button, action === null ? "It is stopping" : null);
    this.dismiss.hidden = install.state !== "failed";
  }
}
