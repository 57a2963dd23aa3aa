// The box to write in. Enter sends and Shift+Enter breaks the line; while an answer runs its button stops it.
import { h, icon, replace, setText } from "../lib/dom.js";
import { changedCount } from "./settings.js";

const kSendIcon = "M10 16V4M5 9l5-5 5 5";
const kHeightMax = 220;

export class Composer {
  #callbacks;
  #running = false;
  #blocked = null;

  constructor(callbacks) {
    this.#callbacks = callbacks;
    this.input = h("textarea", {
      rows: "1",
      placeholder: "Write a message",
      "aria-label": "Message",
      enterkeyhint: "send",
      oninput: () => this.#grow(),
      onkeydown: (event) => this.#key(event),
    });
    this.button = h("button", { type: "submit", class: "send", "aria-label": "Send" }, icon(kSendIcon));
    this.settings = h("button", {
      type: "button",
      class: "button quiet small",
      onclick: () => callbacks.settings(),
    });
    this.context = h("span", { class: "context" });
    this.reason = h("p", { class: "composer-reason", id: "composer-reason", role: "status", hidden: true });
    this.element = h(
      "form",
      { class: "composer", onsubmit: (event) => this.#submit(event) },
      this.reason,
      h("div", { class: "composer-box" }, this.input, this.button),
      h("div", { class: "composer-foot" }, this.settings, this.context),
    );
    this.#grow();
  }

  focus() {
    // On a touch screen focus brings the keyboard, which nobody asked for.
    if (matchMedia("(hover: hover)").matches) this.input.focus({ preventScroll: true });
  }

  setRunning(running) {
    this.#running = running;
    this.button.setAttribute("aria-label", running ? "Stop" : "Send");
    this.button.classList.toggle("stop", running);
    replace(
      this.button,
      running ? h("span", { class: "stop-mark", "aria-hidden": "true" }) : icon(kSendIcon),
    );
    this.#grow();
  }

  // Nothing can be sent, for a reason in words; null: it can. What is being written stays, and the focus as well.
  setBlocked(reason) {
    if (reason === this.#blocked) return;
    this.#blocked = reason;
    this.reason.hidden = reason === null;
    setText(this.reason, reason ?? "");
    if (reason === null) this.input.removeAttribute("aria-describedby");
    else this.input.setAttribute("aria-describedby", this.reason.id);
    this.element.classList.toggle("blocked", reason !== null);
    this.#grow();
  }

  setSettings(settings) {
    const changed = changedCount(settings);
    replace(
      this.settings,
      icon("M3 6h7M14 6h3M3 14h3M10 14h7M12 4v4M8 12v4"),
      changed > 0 ? `Settings · ${changed} changed` : "Settings",
    );
  }

  setContext(text) {
    setText(this.context, text);
  }

  #submit(event) {
    event.preventDefault();
    if (this.#running) return this.#callbacks.stop();
    const text = this.input.value.trim();
    if (!text || this.#blocked !== null || this.#callbacks.send(text) === false) return;
    this.input.value = "";
    this.#grow();
  }

  #key(event) {
    if (event.key === "Escape" && this.#running) this.#callbacks.stop();
    // While an input method composes, Enter chooses a word.
    if (event.key !== "Enter" || event.shiftKey || event.isComposing) return;
    event.preventDefault();
    if (!this.#running && this.#blocked === null) this.element.requestSubmit();
  }

  #grow() {
    this.input.style.height = "auto";
    this.input.style.height = `${Math.min(this.input.scrollHeight, kHeightMax)}px`;
    this.button.disabled = !this.#running && (this.#blocked !== null || !this.input.value.trim());
  }
}
