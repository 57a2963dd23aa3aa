// The Chat page: the conversations on the left, one of them in the middle, and the box to write in.
import { h, icon, replace, setText } from "../lib/dom.js";
import { count, sentence } from "../lib/format.js";
import { append, lastId, newConversation, path, showVariant } from "./conversation.js";
import { Composer } from "./composer.js";
import { Library, openStorage } from "./library.js";
import { MessageView } from "./message_view.js";
import { Run } from "./run.js";
import { kDefaults } from "./settings.js";
import { SettingsDialog } from "./settings_dialog.js";
import { Sidebar } from "./sidebar.js";

const kSettingsKey = "wader.settings";
const kNearBottomPixels = 80;
const kIdeas = [
  "Write a Python function that merges two sorted lists.",
  "Compose a short poem about a river at night.",
  "What changed between HTTP/1.1 and HTTP/2? Give me a table.",
];

export function createPage(element, app) {
  return new ChatPage(element, app);
}

class ChatPage {
  #app;
  #storage;
  #library;
  #conversation;
  #runs = new Map(); // conversation id → Run
  #views = new Map(); // message id → MessageView, of the conversation that is shown
  #atBottom = true;

  constructor(element, app) {
    this.#app = app;
    const { storage, lasting } = openStorage();
    this.#storage = storage;
    this.#library = new Library(storage);
    if (!lasting) app.toast("This browser keeps nothing for this page: conversations end with it.");
    this.#build(element);
    this.#open(this.#library.load(this.#library.list()[0]?.id) ?? this.#fresh());
    addEventListener("storage", (event) => Library.isOurs(event.key) && this.#changedElsewhere());
    addEventListener("pagehide", () => this.#save());
    app.feed.on("facts", () => this.#showContext());
    app.feed.on("state", () => this.#showBlocked());
    this.#showBlocked();
  }

  show() {
    this.composer.focus();
  }

  #build(element) {
    this.sidebar = new Sidebar({
      open: (id) => this.#open(this.#library.load(id) ?? this.#fresh()),
      create: () => this.#open(this.#fresh()),
      remove: (id) => this.#remove(id),
    });
    this.composer = new Composer({
      send: (text) => this.#send(text),
      stop: () => this.#runs.get(this.#conversation.id)?.stop(),
      settings: () => this.settings.open(this.#conversation.settings),
    });
    this.settings = new SettingsDialog((settings) => this.#setSettings(settings));
    this.thread = h("div", {
      class: "thread",
      role: "log",
      "aria-label": "Conversation",
      "aria-live": "off",
    });
    this.scroller = h(
      "div",
      { class: "thread-scroll", tabindex: "-1", onscroll: () => this.#scrolled() },
      this.thread,
    );
    this.toEnd = h(
      "button",
      {
        type: "button",
        class: "to-end icon-button",
        "aria-label": "To the newest message",
        hidden: true,
        onclick: () => this.#scrollToEnd(true),
      },
      icon("M10 4v12M5 11l5 5 5-5"),
    );
    this.status = h("p", { class: "visually-hidden", role: "status" });
    const title = h(
      "button",
      { type: "button", class: "button quiet small sidebar-open", onclick: () => this.sidebar.toggle(true) },
      icon("M3 5h14M3 10h14M3 15h9"),
      "Conversations",
    );
    const fresh = h(
      "button",
      { type: "button", class: "button quiet small", onclick: () => this.#open(this.#fresh()) },
      icon("M10 4v12M4 10h12"),
      "New",
    );
    replace(
      element,
      this.sidebar.element,
      h(
        "div",
        { class: "chat-main" },
        h("div", { class: "chat-top" }, title, fresh),
        this.scroller,
        this.toEnd,
        this.composer.element,
        this.status,
      ),
      this.settings.element,
    );
  }

  #fresh() {
    let kept = {};
    try {
      kept = JSON.parse(this.#storage.getItem(kSettingsKey)) ?? {};
    } catch {
      // Not ours, or from another version: the model's own settings then.
    }
    const id = `${Date.now().toString(36)}${Math.random().toString(36).slice(2, 8)}`;
    return newConversation(id, { ...kDefaults, ...kept }, Date.now());
  }

  #open(conversation) {
    this.#save();
    const run = this.#runs.get(conversation.id);
    this.#conversation = run?.conversation ?? conversation;
    this.#views.clear();
    replace(this.thread);
    this.#atBottom = true;
    this.#render();
    this.#showList();
    this.sidebar.toggle(false);
    this.composer.setSettings(this.#conversation.settings);
    this.composer.focus();
  }

  #remove(id) {
    this.#runs.get(id)?.stop();
    this.#library.remove(id);
    if (id === this.#conversation.id) {
      this.#conversation.nodes = {};
      this.#open(this.#library.load(this.#library.list()[0]?.id) ?? this.#fresh());
    }
    this.#showList();
  }

  #setSettings(settings) {
    this.#conversation.settings = settings;
    this.composer.setSettings(settings);
    this.#storage.setItem(kSettingsKey, JSON.stringify(settings));
    this.#save();
  }

  #save() {
    if (!this.#conversation || Object.keys(this.#conversation.nodes).length === 0) return;
    this.#keep(this.#conversation);
  }

  #keep(conversation) {
    const { kept, dropped } = this.#library.save(conversation);
    if (!kept) this.#app.toast("This conversation is too long for what the browser keeps.");
    for (const title of dropped) this.#app.toast(`Made room: “${title}” is no longer kept.`);
  }

  // Another window of this browser wrote: its list is the list, and what it said is shown unless we are talking.
  #changedElsewhere() {
    const stored = this.#library.load(this.#conversation.id);
    if (stored && stored.updated > this.#conversation.updated && !this.#runs.has(stored.id)) {
      this.#conversation = stored;
      this.#render();
    }
    this.#showList();
  }

  #showList() {
    this.sidebar.set(this.#library.list(), this.#conversation.id, new Set(this.#runs.keys()));
  }

  // Shows the branch; messages that were on the screen keep their elements.
  #render() {
    const messages = path(this.#conversation);
    const run = this.#runs.get(this.#conversation.id);
    const views = new Map();
    for (const message of messages) {
      const view = this.#views.get(message.id) ?? new MessageView(message, this.#actions());
      view.update(this.#conversation, run?.node.id === message.id ? run.answer : null, Boolean(run));
      views.set(message.id, view);
    }
    for (const [id, view] of this.#views) if (!views.has(id)) view.element.remove();
    this.#views = views;
    if (messages.length === 0) {
      replace(this.thread, this.#welcome());
      this.#showBlocked();
    } else {
      this.thread.querySelector(".welcome")?.remove();
      [...views.values()].forEach((view, i) => {
        if (this.thread.children[i] !== view.element)
          this.thread.insertBefore(view.element, this.thread.children[i]);
      });
    }
    this.composer.setRunning(Boolean(run));
    this.#showContext();
    this.#scrollToEnd();
  }

  #welcome() {
    return h(
      "div",
      { class: "welcome" },
      h("h2", {}, "What shall we talk about?"),
      h("p", { class: "muted" }, "Everything stays on this machine."),
      h(
        "div",
        { class: "ideas" },
        kIdeas.map((idea) =>
          h("button", { type: "button", class: "idea", onclick: () => this.#send(idea) }, idea),
        ),
      ),
    );
  }

  #actions() {
    return {
      busy: () => this.#busy(),
      edit: (node, text) => this.#edit(node, text),
      regenerate: (node) => this.#regenerate(node),
      variant: (node, index) => {
        showVariant(this.#conversation, node.id, index);
        this.#atBottom = false;
        this.#save();
        this.#render();
      },
    };
  }

  // While no model is loaded nothing can be asked; the conversations stay as they are.
  #showBlocked() {
    const { loading } = this.#app.feed;
    this.composer.setBlocked(loading === null ? null : `${sentence(loading)} Sending waits for it.`);
    for (const idea of this.thread.querySelectorAll(".idea")) idea.disabled = loading !== null;
  }

  #busy() {
    const { loading } = this.#app.feed;
    if (loading !== null) this.#app.toast(loading);
    return loading !== null || this.#runs.has(this.#conversation.id);
  }

  #send(text) {
    if (this.#busy()) return false;
    const node = append(this.#conversation, lastId(this.#conversation), { role: "user", text }, Date.now());
    this.#ask(node.id);
    return true;
  }

  #edit(node, text) {
    if (this.#busy()) return;
    const edited = append(this.#conversation, node.parent, { role: "user", text }, Date.now());
    this.#ask(edited.id);
  }

  #regenerate(node) {
    if (!this.#busy()) this.#ask(node.parent);
  }

  #ask(parent) {
    const conversation = this.#conversation;
    const node = append(conversation, parent, { role: "assistant", text: "", reasoning: "" }, Date.now());
    const run = new Run(conversation, node, {
      model: this.#app.modelId ?? undefined,
      changed: () => this.#progress(run),
      ended: () => this.#ended(run),
    });
    this.#runs.set(conversation.id, run);
    this.#atBottom = true;
    this.#keep(conversation);
    this.#showList();
    this.#render();
    setText(this.status, "Asked.");
    run.start();
  }

  #progress(run) {
    if (run.conversation !== this.#conversation) return;
    this.#views.get(run.node.id)?.update(this.#conversation, run.answer, true);
    this.#scrollToEnd();
  }

  #ended(run) {
    this.#runs.delete(run.conversation.id);
    const { node, conversation } = run;
    if (this.#library.load(conversation.id) || conversation === this.#conversation) this.#keep(conversation);
    this.#showList();
    if (conversation === this.#conversation) this.#render();
    setText(
      this.status,
      node.error ? `Failed: ${node.error}` : node.stopped ? "Stopped." : "The answer is complete.",
    );
  }

  #showContext() {
    const limit = this.#app.feed.facts?.model.context;
    const figures = path(this.#conversation ?? { children: {} }).findLast((node) => node.figures)?.figures;
    this.composer.setContext(
      figures && limit
        ? `${count(figures.promptTokens + figures.tokens)} of ${count(limit)} tokens of context`
        : "",
    );
  }

  #scrolled() {
    const { scrollTop, scrollHeight, clientHeight } = this.scroller;
    this.#atBottom = scrollHeight - scrollTop - clientHeight < kNearBottomPixels;
    this.toEnd.hidden = this.#atBottom;
  }

  #scrollToEnd(always = false) {
    if (!always && !this.#atBottom) return;
    this.scroller.scrollTop = this.scroller.scrollHeight;
    this.#atBottom = true;
    this.toEnd.hidden = true;
  }
}
