// The chat without a page: streams, answers, the tree of a conversation, what the browser keeps.
import assert from "node:assert/strict";
import { test } from "node:test";
import { Answer, parseProgress, waterfall } from "../../src/web/chat/answer.js";
import * as tree from "../../src/web/chat/conversation.js";
import { kCharactersMax, kConversationsMax, Library } from "../../src/web/chat/library.js";
import { changedCount, kFields, parseField, requestParameters } from "../../src/web/chat/settings.js";
import { SseParser } from "../../src/web/lib/sse.js";

const kStream =
  '\ufeff: queued, 1 before this\r\n\r\nevent: a\rdata: one\rdata:two\r\rdata: {"x":"ü"}\n\nid: 7\nretry: 5\ndata\n\nevent: gone\n\n';
const kEvents = [
  { comment: "queued, 1 before this" },
  { event: "a", data: "one\ntwo" },
  { event: "message", data: '{"x":"ü"}' },
  { event: "message", data: "" },
];

test("a stream may be cut anywhere", () => {
  assert.deepEqual(new SseParser().push(kStream), kEvents);
  for (let size = 1; size < 6; size++) {
    const parser = new SseParser();
    const events = [];
    for (let i = 0; i < kStream.length; i += size) events.push(...parser.push(kStream.slice(i, i + size)));
    assert.deepEqual(events, kEvents, `pieces of ${size}`);
  }
});

test("a line without an end is refused", () => {
  const parser = new SseParser();
  assert.throws(() => {
    for (let i = 0; i < 6; i++) parser.push("x".repeat(1 << 20));
  }, /4 MiB/);
});

test("comments say where the work stands", () => {
  assert.deepEqual(parseProgress("queued, 2 before this"), { stage: "queued", before: 2 });
  assert.deepEqual(parseProgress("prompt 40 % (400 of 1000 tokens), about 3 s left"), {
    stage: "prompt",
    done: 400,
    total: 1000,
    share: 0.4,
    secondsLeft: 3,
  });
  assert.equal(parseProgress("prompt 0 % (0 of 1000 tokens)").secondsLeft, null);
  assert.deepEqual(parseProgress("working"), { stage: "working" });
  assert.equal(parseProgress("something new"), null);
});

const chunk = (delta, more = {}) => ({
  data: JSON.stringify({ choices: [{ index: 0, delta, finish_reason: null, ...more }] }),
});

test("an answer grows out of its chunks", () => {
  const answer = new Answer(1000);
  answer.take({ comment: "prompt 50 % (5 of 10 tokens)" }, 1100);
  assert.equal(answer.progress.share, 0.5);
  answer.take(chunk({ role: "assistant", content: "" }), 1150);
  assert.equal(answer.firstTokenMs, null);
  answer.take(chunk({ reasoning_content: "Hm" }), 1200);
  answer.take(chunk({ content: "Yes" }), 1500);
  answer.take(chunk({ content: "!" }), 1600);
  answer.take(chunk({ tool_calls: [{ index: 0, function: { name: "f", arguments: '{"a"' } }] }), 1610);
  answer.take(chunk({ tool_calls: [{ index: 0, function: { arguments: ":1}" } }] }), 1620);
  answer.take(chunk({}, { finish_reason: "stop" }), 1700);
  answer.take(
    {
      data: JSON.stringify({
        choices: [],
        usage: { prompt_tokens: 10, completion_tokens: 5 },
        timings: {
          queue_seconds: 0,
          prefill_seconds: 0.2,
          decode_seconds: 0.5,
          bytes_read: 7,
          hit_rate: 0.5,
        },
      }),
    },
    1701,
  );
  answer.take({ data: "[DONE]" }, 1702);
  assert.deepEqual(
    [answer.text, answer.reasoning, answer.finish, answer.error, answer.progress],
    ["Yes!", "Hm", "stop", null, null],
  );
  assert.deepEqual(answer.calls, [{ name: "f", arguments: '{"a":1}' }]);
  assert.deepEqual([answer.firstTokenMs, answer.reasoningMs], [200, 300]);
  const figures = answer.figures();
  assert.equal(figures.rate, 8); // 4 tokens after the first, in half a second
  assert.equal(figures.firstToken, 0.2);
  assert.equal(figures.cachedTokens, 0);
});

test("an error in the stream is kept, with the text before it", () => {
  const answer = new Answer(0);
  answer.take(chunk({ content: "half" }), 1);
  answer.take({ data: '{"error": {"message": "the disk failed"}}' }, 2);
  assert.deepEqual([answer.text, answer.error, answer.figures()], ["half", "the disk failed", null]);
});

test("a waterfall is one after the other and adds up", () => {
  const parts = waterfall({ queue: 1, prefill: 1, decode: 2 });
  assert.deepEqual(
    parts.map(({ from, share }) => [from, share]),
    [
      [0, 0.25],
      [0.25, 0.25],
      [0.5, 0.5],
    ],
  );
  assert.deepEqual(
    waterfall({ queue: 0, prefill: 0, decode: 0 }).map(({ share }) => share),
    [0, 0, 0],
  );
});

function talk() {
  const conversation = tree.newConversation("c", { system: " Be kind. " }, 1);
  const question = tree.append(conversation, tree.kRoot, { role: "user", text: "Why?\nmore" }, 2);
  const answer = tree.append(conversation, question.id, { role: "assistant", text: "Because." }, 3);
  return { conversation, question, answer };
}
const texts = (conversation) => tree.path(conversation).map(({ text }) => text);

test("a conversation has its title from its first line", () => {
  const { conversation } = talk();
  assert.deepEqual([conversation.title, conversation.updated], ["Why?", 3]);
  assert.equal(tree.titleOf("x".repeat(100)).length, 60);
});

test("an edit and a second answer are branches, and none is lost", () => {
  const { conversation, question, answer } = talk();
  const again = tree.append(conversation, question.id, { role: "assistant", text: "Or not." }, 4);
  assert.deepEqual(texts(conversation), ["Why?\nmore", "Or not."]);
  assert.deepEqual(tree.variants(conversation, again.id), { index: 1, count: 2 });
  const edited = tree.append(conversation, question.parent, { role: "user", text: "How?" }, 5);
  assert.deepEqual(texts(conversation), ["How?"]);
  assert.equal(tree.lastId(conversation), edited.id);
  tree.showVariant(conversation, edited.id, 0);
  assert.deepEqual(texts(conversation), ["Why?\nmore", "Or not."]);
  tree.showVariant(conversation, again.id, -5);
  assert.deepEqual(texts(conversation), ["Why?\nmore", "Because."]);
  assert.equal(tree.path(conversation).at(-1), answer);
});

test("a request has the branch above it alone, and no answer that came to nothing", () => {
  const { conversation, question, answer } = talk();
  const second = tree.append(conversation, answer.id, { role: "user", text: "And?" }, 4);
  const broken = tree.append(conversation, second.id, { role: "assistant", text: "" }, 5);
  const third = tree.append(conversation, broken.id, { role: "user", text: "Again?" }, 6);
  assert.deepEqual(tree.requestMessages(conversation, question.id), [
    { role: "system", content: "Be kind." },
    { role: "user", content: "Why?\nmore" },
  ]);
  assert.deepEqual(
    tree.requestMessages(conversation, third.id).map(({ content }) => content),
    ["Be kind.", "Why?\nmore", "Because.", "And?", "Again?"],
  );
});

test("what is no conversation is not taken for one", () => {
  const broken = (change) => {
    const { conversation } = talk();
    change(conversation);
    return tree.checkConversation(JSON.parse(JSON.stringify(conversation)));
  };
  assert.ok(broken(() => {}));
  assert.equal(tree.checkConversation(null), null);
  assert.equal(tree.checkConversation("x"), null);
  assert.equal(
    broken((c) => delete c.nodes),
    null,
  );
  assert.equal(
    broken((c) => (c.nodes.m1.text = 5)),
    null,
  );
  assert.equal(
    broken((c) => (c.nodes.m1.role = "system")),
    null,
  );
  assert.equal(
    broken((c) => c.children.root.push("m9")),
    null,
  );
  assert.equal(
    broken((c) => (c.nodes.m2.parent = "m7")),
    null,
  );
  assert.equal(
    broken((c) => {
      // a ring: each the other's parent
      c.nodes.m1.parent = "m2";
      c.children = { m1: ["m2"], m2: ["m1"] };
    }),
    null,
  );
});

class FakeStorage {
  constructor(room = Infinity) {
    this.room = room;
    this.map = new Map();
  }
  get length() {
    return this.map.size;
  }
  key(i) {
    return [...this.map.keys()][i] ?? null;
  }
  getItem(key) {
    return this.map.get(key) ?? null;
  }
  removeItem(key) {
    this.map.delete(key);
  }
  setItem(key, value) {
    const used = [...this.map].reduce((sum, [k, v]) => sum + (k === key ? 0 : v.length), 0);
    if (used + value.length > this.room) throw new Error("QuotaExceededError");
    this.map.set(key, value);
  }
}
function written(id, updated, size = 10) {
  const conversation = tree.newConversation(id, {}, updated);
  tree.append(conversation, tree.kRoot, { role: "user", text: id.padEnd(size, ".") }, updated);
  return conversation;
}

test("conversations are kept one by one, newest first", () => {
  const library = new Library(new FakeStorage());
  library.save(written("a", 1));
  library.save(written("b", 2));
  assert.deepEqual(
    library.list().map(({ id }) => id),
    ["b", "a"],
  );
  assert.deepEqual(library.load("a"), written("a", 1));
  library.remove("a");
  assert.deepEqual([library.load("a"), library.list().length], [null, 1]);
});

test("what another program wrote there is skipped", () => {
  const storage = new FakeStorage();
  storage.setItem("wader.chat.x", "{broken");
  storage.setItem("wader.chat.y", JSON.stringify(written("z", 1)));
  storage.setItem("other", "1");
  assert.deepEqual(new Library(storage).list(), []);
});

test("too many, too long and no room: the oldest go, and it is said", () => {
  const library = new Library(new FakeStorage());
  for (let i = 0; i < kConversationsMax; i++) library.save(written(`c${i}`, i));
  assert.deepEqual(library.save(written("new", 100)), { kept: true, dropped: ["c0........"] });
  assert.equal(library.list().length, kConversationsMax);
  assert.deepEqual(library.save(written("new", 101)).dropped, []);

  const long = new Library(new FakeStorage());
  long.save(written("a", 1, kCharactersMax / 2));
  long.save(written("b", 2, kCharactersMax / 3));
  assert.equal(long.save(written("c", 3, kCharactersMax / 3)).dropped.length, 1);
  assert.deepEqual(
    long.list().map(({ id }) => id),
    ["c", "b"],
  );

  const small = new Library(new FakeStorage(1000));
  small.save(written("a", 1, 300));
  assert.equal(small.save(written("b", 2, 600)).kept, true);
  assert.deepEqual(
    small.list().map(({ id }) => id),
    ["b"],
  );
  assert.equal(small.save(written("c", 3, 5000)).kept, false);
});

test("settings become parameters, and empty ones nothing", () => {
  assert.deepEqual(requestParameters({}), {});
  assert.deepEqual(
    requestParameters({
      temperature: "0",
      top_k: 40,
      seed: "",
      reasoning_effort: "low",
      other: 1,
      max_tokens: "-3",
    }),
    { temperature: 0, top_k: 40, reasoning_effort: "low" },
  );
  assert.equal(requestParameters({ reasoning_effort: "wild" }).reasoning_effort, undefined);
  assert.equal(changedCount({ system: " x ", temperature: 1, reasoning_effort: "" }), 2);
});

test("a field says what is wrong with it", () => {
  const field = (name) => kFields.find((entry) => entry.name === name);
  assert.match(parseField(field("temperature"), "3").error, /Temperature: 0 to 2/);
  assert.match(parseField(field("top_k"), "1.5").error, /whole number/);
  assert.match(parseField(field("seed"), "x").error, /a number/);
  assert.deepEqual(parseField(field("top_p"), " 0.9 "), { value: 0.9 });
});
