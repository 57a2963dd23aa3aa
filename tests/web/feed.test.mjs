// The live feed without a browser: what it makes of a server that loads a model, loses one, and comes back.
import assert from "node:assert/strict";
import { afterEach, beforeEach, test } from "node:test";
import { Feed } from "../../src/web/lib/feed.js";

const kStats = { model: { id: "a" }, now: {}, counters: {} };
let server; // path → (() => Response or a promise of one)
let feed;
let seen; // states and facts, in order

const json = (body, status = 200) => new Response(JSON.stringify(body), { status });
const loading = () => json({ error: { message: "b is being loaded" } }, 503);

// A stream of events that stays open until the request is given up.
function stream() {
  let controller;
  const body = new ReadableStream({ start: (it) => (controller = it) });
  const send = (event, data) =>
    controller.enqueue(new TextEncoder().encode(`event: ${event}\ndata: ${JSON.stringify(data)}\n\n`));
  return { response: () => new Response(body), send, end: () => controller.close() };
}

// A server with model a, its feed live: its stream.
async function begin() {
  const events = stream();
  server.set("wader/stats", () => json(kStats));
  server.set("wader/events", events.response);
  feed.start();
  events.send("hello", { model: "a" });
  await settled();
  return events;
}

const settled = () => new Promise((done) => setTimeout(done, 20));

beforeEach(() => {
  server = new Map();
  globalThis.document = { hidden: false, addEventListener() {} };
  globalThis.fetch = async (path, { signal } = {}) => {
    const response = await server.get(path)();
    if (signal?.aborted) throw new DOMException("given up", "AbortError");
    return response;
  };
  feed = new Feed();
  seen = [];
  feed.on("state", (state) => seen.push(state));
  feed.on("facts", ({ model }) => seen.push(model.id));
});
afterEach(() => {
  server.set("wader/events", () => new Promise(() => {}));
  server.set("wader/stats", () => new Promise(() => {}));
  feed.restart(); // and so ends the request before, with its timers
});

test("a server without a model is loading, and its hello brings the facts", async () => {
  const events = stream();
  server.set("wader/stats", loading);
  server.set("wader/events", events.response);
  feed.start();
  await settled();
  assert.deepEqual([feed.state, feed.loading, feed.facts], ["loading", "b is being loaded", null]);
  events.send("hello", { model: "a" }); // of the model before: what a newcomer is told first
  events.send("model", { state: "loading", name: "b" });
  events.send("install", {});
  await settled();
  assert.deepEqual([feed.state, feed.loading], ["loading", "Loading b…"]);
  assert.deepEqual([...new Set(seen)], ["loading"]); // it never looked ready
  server.set("wader/stats", () => json({ ...kStats, model: { id: "b" } }));
  events.send("model", { state: "ready", name: "b" });
  events.send("hello", { model: "b" });
  await settled();
  assert.deepEqual([feed.state, feed.loading, feed.facts.model.id], ["live", null, "b"]);
});

test("facts that were asked for before the model went are not believed", async () => {
  const events = await begin();
  assert.deepEqual([feed.state, seen], ["live", ["a", "live"]]);
  let answer;
  server.set("wader/stats", () => new Promise((done) => (answer = () => done(json(kStats)))));
  const asked = feed.refreshFacts();
  events.send("model", { state: "loading", name: "b" });
  await settled();
  answer();
  await asked;
  assert.deepEqual([feed.state, feed.loading], ["loading", "Loading b…"]);
});

test("a model that could not be loaded: the former one again, or nothing and why", async () => {
  const events = stream();
  server.set("wader/stats", () => json(kStats));
  server.set("wader/events", events.response);
  feed.start();
  events.send("hello", { model: "a" });
  events.send("model", { state: "loading", name: "b" });
  await settled();
  server.set("wader/stats", loading);
  events.send("model", { state: "failed", name: "b", error: "a tensor is missing" });
  await settled();
  assert.deepEqual([feed.state, feed.loading], ["loading", "b could not be loaded: a tensor is missing"]);
  server.set("wader/stats", () => json(kStats));
  events.send("hello", { model: "a" });
  await settled();
  assert.deepEqual([feed.state, feed.loading], ["live", null]);
});

test("an event that was missed is made up for by looking at the list", async () => {
  const events = stream();
  server.set("wader/stats", loading);
  server.set("wader/events", events.response);
  server.set("wader/models", () => json({ serving: null }));
  feed.start();
  await settled();
  assert.equal(feed.state, "loading");
  server.set("wader/models", () => json({ serving: "b" }));
  server.set("wader/stats", () => json(kStats));
  await new Promise((done) => setTimeout(done, 1700));
  assert.deepEqual([feed.loading, feed.facts?.model.id], [null, "a"]);
});

test("a server whose feed ends is offline, one that wants a key is denied", async () => {
  const events = await begin();
  events.end();
  await settled();
  assert.equal(feed.state, "offline");
  server.set("wader/stats", () => json({ error: { message: "a key is needed" } }, 401));
  feed.restart();
  await settled();
  assert.equal(feed.state, "denied");
});
