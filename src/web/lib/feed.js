// The live feed of /wader/events, shared by all pages of a document: one connection, opened again when it
// breaks, and let go while the document is hidden, because a browser gives a server only six.
import { ApiError, getJson, readEvents } from "./api.js";

const kRetrySeconds = [1, 2, 4, 8, 10];
const kHiddenMs = 5000;
const kLoadingMs = 1500; // between two looks at whether the model has been loaded

// States: 'connecting', 'live', 'loading' (the server is there, no model is), 'offline' (no answer), 'denied' (key),
// 'absent' (a server without events).
export class Feed {
  #listeners = new Map();
  #abort = null;
  #tries = 0;
  #greeted = false;
  #timer = 0;
  #hiddenTimer = 0;
  #loadingTimer = 0;
  #asked = 0; // for facts so far
  state = "connecting";
  facts = null; // the last whole /wader/stats; of the model before while another one is being loaded
  loading = null; // what is said of it, in words, while no model answers
  lost = 0; // frames that this page did not get

  on(name, callback) {
    if (!this.#listeners.has(name)) this.#listeners.set(name, new Set());
    this.#listeners.get(name).add(callback);
    return () => this.#listeners.get(name).delete(callback);
  }

  start() {
    document.addEventListener("visibilitychange", () => this.#visibility());
    this.#open();
  }

  // Now, and not when the wait is over: a key was entered, or the user asks.
  restart() {
    this.#tries = 0;
    this.#close();
    this.#open();
  }

  // The facts of the model that is served; null while there is none.
  async refreshFacts() {
    const asked = ++this.#asked;
    let facts = null;
    try {
      facts = await getJson("wader/stats");
    } catch (error) {
      if (error.status !== 503) throw error;
      if (asked === this.#asked) this.#wait(this.loading ?? error.message);
      return null;
    }
    if (asked !== this.#asked) return this.facts; // a later answer, or event, knows better
    this.facts = facts;
    this.#loaded();
    this.#emit("facts", facts);
    return facts;
  }

  // No model answers. An event says when one does; looking as well costs little, and an event can be missed. The
  // list of models is asked, since a browser writes each 503 into its console as an error.
  #wait(text) {
    this.#asked++;
    this.loading = text;
    if (!this.#setState("loading")) this.#emit("state", "loading");
    clearTimeout(this.#loadingTimer);
    this.#loadingTimer = setTimeout(() => this.#look(), kLoadingMs);
  }

  async #look() {
    if (!this.#abort) return;
    try {
      const { serving } = await getJson("wader/models");
      if (this.loading === null) return;
      if (!serving) this.#wait(this.loading);
      else await this.refreshFacts();
    } catch {
      // The server is gone, and with it the feed, which says so.
    }
  }

  #loaded() {
    clearTimeout(this.#loadingTimer);
    this.loading = null;
    if (this.state === "loading") this.#setState(this.#greeted ? "live" : "connecting");
  }

  #emit(name, value) {
    for (const callback of this.#listeners.get(name) ?? []) callback(value);
  }

  #setState(state) {
    if (state === this.state) return false;
    this.state = state;
    this.#emit("state", state);
    return true;
  }

  #visibility() {
    clearTimeout(this.#hiddenTimer);
    if (document.hidden) this.#hiddenTimer = setTimeout(() => this.#close(), kHiddenMs);
    else if (!this.#abort) this.restart();
  }

  #close() {
    clearTimeout(this.#timer);
    clearTimeout(this.#loadingTimer);
    this.#abort?.abort();
    this.#abort = null;
  }

  async #open() {
    const abort = new AbortController();
    this.#abort = abort;
    if (this.state !== "live" && this.state !== "loading") this.#setState("connecting");
    try {
      this.#greeted = false;
      await this.refreshFacts();
      if (abort.signal.aborted) return;
      await readEvents("wader/events", { signal: abort.signal, take: (event) => this.#take(event) });
      throw new ApiError("the feed ended", 0);
    } catch (error) {
      if (abort.signal.aborted) return;
      this.#abort = null;
      clearTimeout(this.#loadingTimer);
      const state = { 401: "denied", 404: "absent", 503: "loading" }[error.status] ?? "offline";
      this.loading = state === "loading" ? error.message : null;
      this.#setState(state);
      if (state === "denied") return; // until a key comes
      if (state === "loading") this.#tries = 0;
      const wait = kRetrySeconds[Math.min(this.#tries++, kRetrySeconds.length - 1)];
      if (!document.hidden) this.#timer = setTimeout(() => this.#open(), wait * 1000);
    }
  }

  #take(event) {
    if (event.comment !== undefined) return;
    let data;
    try {
      data = JSON.parse(event.data);
    } catch {
      return; // a frame that is no JSON says nothing
    }
    this.#tries = 0;
    if (event.event === "hello") {
      // Not the connection's first, or one that may be what is waited for: the facts know.
      if (this.#greeted || this.loading !== null) this.refreshFacts().catch(() => {});
      this.#greeted = true;
    }
    if (event.event === "model") {
      if (data.state === "loading") this.#wait(`Loading ${data.name}…`);
      if (data.state === "failed" && this.loading)
        this.#wait(`${data.name} could not be loaded: ${data.error}`);
      if (data.state !== "loading") this.refreshFacts().catch(() => {}); // of this one, or the former one again
    }
    if (this.loading === null) this.#setState("live");
    if (event.event === "pass") this.lost += Number(data.lost) || 0;
    this.#emit(event.event, data);
  }
}
