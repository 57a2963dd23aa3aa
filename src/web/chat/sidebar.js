// The list of conversations: a column where there is room, a drawer where there is not.
import { h, icon, replace } from "../lib/dom.js";

export class Sidebar {
  #callbacks;
  #arm = null; // the id whose removal waits for the second click

  constructor(callbacks) {
    this.#callbacks = callbacks;
    this.list = h("ul", { class: "conversations" });
    this.panel = h(
      "nav",
      { class: "sidebar-panel", "aria-label": "Conversations" },
      h(
        "div",
        { class: "sidebar-head" },
        h(
          "button",
          { type: "button", class: "button new", onclick: () => callbacks.create() },
          icon("M10 4v12M4 10h12"),
          "New conversation",
        ),
        h(
          "button",
          {
            type: "button",
            class: "icon-button sidebar-close",
            "aria-label": "Close",
            onclick: () => this.toggle(false),
          },
          icon("M5 5l10 10M15 5L5 15"),
        ),
      ),
      this.list,
    );
    this.element = h(
      "aside",
      {
        class: "sidebar",
        onclick: (event) => event.target === this.element && this.toggle(false),
        onkeydown: (event) => event.key === "Escape" && this.toggle(false),
      },
      this.panel,
    );
  }

  toggle(open) {
    this.element.classList.toggle("open", open);
    if (open) this.panel.querySelector("button").focus();
  }

  set(conversations, currentId, running) {
    this.#arm = null;
    if (conversations.length === 0)
      return replace(this.list, h("li", { class: "empty" }, "Conversations are kept in this browser."));
    replace(
      this.list,
      conversations.map(({ id, title }) => {
        const name = title || "Untitled";
        return h(
          "li",
          { class: id === currentId ? "current" : null },
          h(
            "button",
            {
              type: "button",
              class: "conversation",
              title: name,
              "aria-current": id === currentId ? "true" : null,
              onclick: () => this.#callbacks.open(id),
            },
            running.has(id) && h("span", { class: "answering", role: "img", "aria-label": "answering" }),
            name,
          ),
          h(
            "button",
            {
              type: "button",
              class: "icon-button remove",
              "aria-label": `Delete “${name}”`,
              onclick: (event) => this.#remove(event.currentTarget, id),
              onblur: (event) => this.#disarm(event.currentTarget),
            },
            icon("M4 6h12M8 6V4h4v2M6 6l.7 10h6.6L14 6"),
          ),
        );
      }),
    );
  }

  #remove(button, id) {
    if (this.#arm === id) return this.#callbacks.remove(id);
    this.#arm = id;
    button.classList.add("armed");
    replace(button, "Delete");
  }

  #disarm(button) {
    if (!button.classList.contains("armed")) return;
    this.#arm = null;
    button.classList.remove("armed");
    replace(button, icon("M4 6h12M8 6V4h4v2M6 6l.7 10h6.6L14 6"));
  }
}
