// The conversations kept in the browser: one entry each, so that a long one never rewrites the others. When
// there are too many, or the browser has no more room, the one untouched for longest goes.
import { checkConversation } from "./conversation.js";

const kPrefix = "wader.chat.";
export const kConversationsMax = 60;
export const kCharactersMax = 3_000_000; // browsers give a site about five million

export class Library {
  #storage;

  constructor(storage) {
    this.#storage = storage;
  }

  // [{id, title, updated}], newest first.
  list() {
    return this.#ids()
      .map((id) => this.load(id))
      .filter(Boolean)
      .map(({ id, title, updated }) => ({ id, title, updated }))
      .sort((a, b) => b.updated - a.updated);
  }

  load(id) {
    try {
      const conversation = checkConversation(JSON.parse(this.#storage.getItem(kPrefix + id)));
      return conversation?.id === id ? conversation : null;
    } catch {
      return null;
    }
  }

  // Returns {kept, dropped: titles of those that had to go}.
  save(conversation) {
    const text = JSON.stringify(conversation);
    const dropped = [];
    const dropOne = () => {
      const oldest = this.list()
        .filter(({ id }) => id !== conversation.id)
        .at(-1);
      if (!oldest) return false;
      this.remove(oldest.id);
      dropped.push(oldest.title);
      return true;
    };
    const isNew = this.#storage.getItem(kPrefix + conversation.id) === null;
    while (this.#ids().length + (isNew ? 1 : 0) > kConversationsMax && dropOne());
    while (this.#characters(conversation.id) + text.length > kCharactersMax && dropOne());
    for (;;) {
      try {
        this.#storage.setItem(kPrefix + conversation.id, text);
        return { kept: true, dropped };
      } catch {
        if (!dropOne()) return { kept: false, dropped };
      }
    }
  }

  remove(id) {
    this.#storage.removeItem(kPrefix + id);
  }

  static isOurs(key) {
    return key === null || key.startsWith(kPrefix);
  }

  #ids() {
    const ids = [];
    for (let i = 0; i < this.#storage.length; i++) {
      const key = this.#storage.key(i);
      if (key.startsWith(kPrefix)) ids.push(key.slice(kPrefix.length));
    }
    return ids;
  }

  #characters(exceptId) {
    return this.#ids()
      .filter((id) => id !== exceptId)
      .reduce((sum, id) => sum + (this.#storage.getItem(kPrefix + id)?.length ?? 0), 0);
  }
}

// Where storage is off (a private window, a policy) conversations live as long as the page.
export function openStorage() {
  try {
    const probe = "wader.probe";
    localStorage.setItem(probe, "1");
    localStorage.removeItem(probe);
    return { storage: localStorage, lasting: true };
  } catch {
    const map = new Map();
    return {
      lasting: false,
      storage: {
        get length() {
          return map.size;
        },
        key: (i) => [...map.keys()][i] ?? null,
        getItem: (key) => map.get(key) ?? null,
        setItem: (key, value) => map.set(key, String(value)),
        removeItem: (key) => map.delete(key),
      },
    };
  }
}
