// The live feed of /wader/events, shared by all pages of a document: one connection, opened again when it
// breaks, and let go while the document is hidden, because a browser gives a server only six.
import { ApiError, getJson, readEvents } from "./api.js";

const kRetrySeconds = [1, 2, 4, 8, 10];
const kHiddenMs = 5000;

// States: 'connecting', 'live', 'offline' (no answer), 'denied' (key), 'absent' (a server without events).
export class Feed {
  #listeners = new Map();
  #abort = null;
  #tries = 0;
  #greeted = false;
  #timer = 0;
  #hiddenTimer = 0;
  state = "connecting";
  facts = null; // the last whole /wader/stats
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

  async refreshFacts() {
    this.facts = await getJson("wader/stats");
    this.#emit("facts", this.facts);
    return this.facts;
  }

  #emit(name, value) {
    for (const callback of this.#listeners.get(name) ?? []) callback(value);
  }

  #setState(state) {
    if (state === this.state) return;
    this.state = state;
    this.#emit("state", state);
  }

  #visibility() {
    clearTimeout(this.#hiddenTimer);
    if (document.hidden) this.#hiddenTimer = setTimeout(() => this.#close(), kHiddenMs);
    else if (!this.#abort) this.restart();
  }

  #close() {
    clearTimeout(this.#timer);
    this.#abort?.abort();
    this.#abort = null;
  }

  async #open() {
    const abort = new AbortController();
    this.#abort = abort;
    if (this.state !== "live") this.#setState("connecting");
    try {
      await this.refreshFacts();
      if (abort.signal.aborted) return;
      this.#greeted = false;
      await readEvents("wader/events", { signal: abort.signal, take: (event) => this.#take(event) });
      throw new ApiError("the feed ended", 0);
    } catch (error) {
      if (abort.signal.aborted) return;
      this.#abort = null;
      const state = { 401: "denied", 404: "absent" }[error.status] ?? "offline";
      this.#setState(state);
      if (state === "denied") return; // until a key comes
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
    this.#setState("live");
    if (event.event === "hello") {
      // Not the connection's first: another model is served now.
      if (this.#greeted) this.refreshFacts().catch(() => {});
      this.#greeted = true;
    }
    if (event.event === "pass") this.lost += Number(data.lost) || 0;
    this.#emit(event.event, data);
  }
}
