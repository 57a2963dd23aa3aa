// The memory plan as a bar of its parts with a legend below; drawn anew only when the plan is another one.
import { h, replace } from "../lib/dom.js";
import { bytes } from "../lib/format.js";
import { planParts } from "./plan.js";

export class PlanBar {
  #shown = "";

  constructor() {
    this.bar = h("div", { class: "plan-bar", role: "img" });
    this.list = h("ul", { class: "plan-list" });
    this.element = h("div", {}, this.bar, this.list);
  }

  // → the plan in words.
  set(plan) {
    const { parts, used, free, budget } = planParts(plan);
    const text = `${bytes(used)} planned of a budget of ${bytes(budget)}`;
    const key = JSON.stringify(plan);
    if (key === this.#shown) return text;
    this.#shown = key;
    const words = parts.map(({ name, bytes: size }) => `${name} ${bytes(size)}`).join(", ");
    this.bar.setAttribute("aria-label", words);
    replace(
      this.bar,
      parts.map(({ name, bytes: size, share, colour }) => {
        const part = h("span", { title: `${name}: ${bytes(size)}` });
        part.style.width = `${share * 100}%`;
        part.style.background = `var(--${colour})`;
        return part;
      }),
    );
    replace(
      this.list,
      parts.map(({ name, help, bytes: size, colour }) => legendItem(name, help, size, colour)),
      free > 0 && legendItem("Free", "Of the budget, not planned for", free, "sunken"),
    );
    return text;
  }
}

function legendItem(name, help, size, colour) {
  const swatch = h("i", { class: "swatch" });
  swatch.style.background = `var(--${colour})`;
  return h("li", { title: help }, swatch, h("span", {}, name), h("span", { class: "muted" }, bytes(size)));
}
