// One message on the screen: its text, its reasoning folded, what can be done with it, and its figures.
import { h, icon, replace, setText } from "../lib/dom.js";
import { count, seconds } from "../lib/format.js";
import { variants } from "./conversation.js";
import { figuresView } from "./figures_view.js";
import { MarkdownStream } from "./markdown.js";
import { copyText, MarkdownView } from "./markdown_dom.js";
import { visible } from "./markdown_inline.js";

const kIcons = {
  copy: "M7 7V4h9v9h-3M4 7h9v9H4z",
  edit: "M4 16l1-4 8-8 3 3-8 8zM11.5 5.5l3 3",
  again: "M16 10a6 6 0 1 1-2-4.5M16 3v3.5h-3.5",
};
const kEnds = {
  length: "The answer reached its longest length, or the context’s end.",
  stopped: "Stopped.",
  broken: "The answer broke off.",
};

export class MessageView {
  #actions;
  #editing = false;
  #figures = null;
  #footKey = "";
  #conversation = null;

  constructor(node, actions) {
    this.node = node;
    this.#actions = actions;
    const user = node.role === "user";
    this.body = h("div", { class: "message-body" });
    this.note = h("p", { class: "message-note", hidden: true });
    this.foot = h("div", { class: "message-foot" });
    this.figures = h("div", { class: "message-figures" });
    this.element = h("article", { class: `message ${node.role}`, "aria-label": user ? "You" : "Answer" });
    if (user) {
      this.element.append(this.body, this.foot);
    } else {
      this.summary = h("summary");
      this.reasoning = h("div", { class: "reasoning-text markdown" });
      this.thought = h("details", { class: "reasoning", hidden: true }, this.summary, this.reasoning);
      this.reasoningView = new MarkdownView(this.reasoning, new MarkdownStream());
      this.body.classList.add("markdown");
      this.view = new MarkdownView(this.body, new MarkdownStream());
      this.progress = h("div", { class: "message-progress", hidden: true });
      this.calls = h("div", { class: "message-calls" });
      this.element.append(
        this.thought,
        this.progress,
        this.body,
        this.calls,
        this.note,
        this.foot,
        this.figures,
      );
    }
  }

  // `answer` while this message is being answered, else null; `busy` while any of the conversation is.
  update(conversation, answer, busy) {
    this.#conversation = conversation;
    if (this.node.role === "user") this.#updateUser();
    else this.#updateAnswer(answer);
    const { index, count: total } = variants(conversation, this.node.id);
    const key = `${index}/${total}/${Boolean(answer)}/${busy}/${this.#editing}`;
    if (key === this.#footKey) return;
    this.#footKey = key;
    replace(this.foot, answer || this.#editing ? null : this.#footItems(index, total, busy));
  }

  #updateUser() {
    if (!this.#editing) setText(this.body, visible(this.node.text));
  }

  #updateAnswer(answer) {
    const { node } = this;
    this.element.setAttribute("aria-busy", String(Boolean(answer)));
    this.element.classList.toggle("running", Boolean(answer));
    this.view.set(node.text);
    this.thought.hidden = !node.reasoning;
    if (node.reasoning) {
      this.reasoningView.set(node.reasoning);
      const done = node.text || !answer;
      const time = node.reasoningSeconds ? ` for ${seconds(node.reasoningSeconds)}` : "";
      setText(this.summary, done ? `Reasoned${time}` : "Reasoning…");
    }
    this.#showProgress(answer);
    this.#showEnd(answer);
    if (node.calls && !answer) this.#showCalls();
    if (node.figures && this.#figures !== node.figures && !answer) {
      this.#figures = node.figures;
      replace(this.figures, figuresView(node.figures));
    }
  }

  #showProgress(answer) {
    const waiting = answer && answer.firstTokenMs === null;
    this.progress.hidden = !waiting;
    if (!waiting) return;
    const progress = answer.progress;
    if (progress?.stage === "prompt") {
      const left = progress.secondsLeft === null ? "" : `, about ${seconds(progress.secondsLeft)} left`;
      const bar = h("span");
      bar.style.width = `${progress.share * 100}%`;
      replace(
        this.progress,
        h(
          "span",
          {},
          `Reading the prompt: ${count(progress.done)} of ${count(progress.total)} tokens${left}`,
        ),
        h(
          "div",
          {
            class: "progress",
            role: "progressbar",
            "aria-label": "Prompt",
            "aria-valuemin": "0",
            "aria-valuemax": "100",
            "aria-valuenow": Math.round(progress.share * 100),
          },
          bar,
        ),
      );
      return;
    }
    const text =
      progress?.stage !== "queued"
        ? "Working"
        : progress.before === 0
          ? "Next in the queue"
          : `In the queue: ${progress.before} before this`;
    if (this.progress.textContent !== text) replace(this.progress, h("span", { class: "pulse" }, text));
  }

  #showEnd(answer) {
    const { node } = this;
    // Without any end it is of a page that was closed, or a browser that was.
    const end = node.stopped ? "stopped" : (node.finish ?? "broken");
    const text = answer ? "" : (node.error ?? kEnds[end] ?? "");
    this.note.hidden = !text;
    this.note.classList.toggle("error", Boolean(node.error));
    setText(this.note, text);
  }

  #showCalls() {
    replace(
      this.calls,
      this.node.calls
        .filter(Boolean)
        .map((call) =>
          h(
            "figure",
            { class: "code" },
            h("figcaption", {}, h("span", { class: "language" }, `Call of ${visible(call.name)}`)),
            h("pre", { tabindex: "0" }, h("code", {}, visible(call.arguments))),
          ),
        ),
    );
  }

  #footItems(index, total, busy) {
    const { node } = this;
    const button = (name, path, onclick) =>
      h(
        "button",
        { type: "button", class: "icon-button", "aria-label": name, title: name, onclick },
        icon(path),
      );
    const step = (name, sign, to, possible) =>
      h(
        "button",
        {
          type: "button",
          class: "icon-button step",
          "aria-label": name,
          title: name,
          disabled: !possible,
          onclick: () => this.#actions.variant(node, to),
        },
        sign,
      );
    return [
      total > 1 &&
        h(
          "span",
          { class: "variants", role: "group", "aria-label": "Variants" },
          step("Previous variant", "‹", index - 1, index > 0),
          `${index + 1}/${total}`,
          step("Next variant", "›", index + 1, index < total - 1),
        ),
      button("Copy", kIcons.copy, (event) => this.#copy(event.currentTarget)),
      !busy && node.role === "user" && button("Edit", kIcons.edit, () => this.#edit()),
      !busy &&
        node.role !== "user" &&
        button("Regenerate", kIcons.again, () => this.#actions.regenerate(node)),
    ];
  }

  async #copy(button) {
    const copied = await copyText(this.node.text);
    replace(button, icon(copied ? "M4 10.5l4 4 8-9" : "M5 5l10 10M15 5L5 15"));
    setTimeout(() => replace(button, icon(kIcons.copy)), 1500);
  }

  #edit() {
    const input = h("textarea", {
      "aria-label": "Edited message",
      rows: Math.min(12, this.node.text.split("\n").length + 1),
    });
    input.value = this.node.text;
    const end = () => {
      this.#editing = false;
      this.#footKey = "";
      this.element.classList.remove("editing");
      replace(this.body, visible(this.node.text));
    };
    const cancel = () => {
      end();
      this.update(this.#conversation, null, false);
    };
    const send = () => {
      const text = input.value.trim();
      if (!text || this.#actions.busy()) return; // what was written stays
      end();
      this.#actions.edit(this.node, text);
    };
    input.addEventListener("keydown", (event) => {
      if (event.key === "Escape") cancel();
      if (event.key === "Enter" && !event.shiftKey && !event.isComposing) {
        event.preventDefault();
        send();
      }
    });
    this.#editing = true;
    this.element.classList.add("editing");
    replace(this.foot);
    replace(
      this.body,
      input,
      h(
        "div",
        { class: "dialog-actions" },
        h("button", { type: "button", class: "button small", onclick: cancel }, "Cancel"),
        h("button", { type: "button", class: "button small primary", onclick: send }, "Send as a new branch"),
      ),
    );
    input.focus();
  }
}
