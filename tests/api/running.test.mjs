// Cases that need servers of their own: clients that go away, keys and origins, the same text from any cache, second turns.
import assert from "node:assert/strict";
import test from "node:test";
import { question } from "./client.mjs";
import { bodyOf, exchange, headOf, request, statusOf } from "./raw.mjs";
import { sleep, startServer, until } from "./server.mjs";
import { writeFileSync } from "node:fs";
import { dirname, join } from "node:path";

const wader = process.env.WADER_BINARY, container = process.env.WADER_CONTAINER;
const skip = wader && container ? false : "WADER_BINARY and WADER_CONTAINER say no program";

const start = (flags, env) => startServer(wader, container, ["--memory", "512MiB", "--quiet", ...flags], env);
async function withServer(flags, action) {
  const server = await start(flags);
  try {
    await action(server);
    assert.ok(server.alive(), server.errors);
  } finally {
    await server.kill();
  }
}
const post = (server, path, body, more = {}) => fetch(server.url + path,
  { method: "POST", headers: { "content-type": "application/json" }, body: JSON.stringify(body), ...more });
async function good(server, path, body) {
  const response = await post(server, path, body);
  const json = await response.json();
  assert.equal(response.status, 200, JSON.stringify(json).slice(0, 300));
  return json;
}
const chat = (server, body) => good(server, "/v1/chat/completions", body);

// A prompt of ids, and an answer that only its limit ends: every id that could end one is forbidden.
const stops = Object.fromEntries([2, ...Array.from({ length: 24 }, (_, i) => (process.env.WADER_MODEL === "qwen" ? 1000 : 8168) + i)]
  .map((id) => [id, -100]));
const endless = (promptTokens, seed = 1) => ({
  prompt: Array.from({ length: promptTokens }, (_, i) => 40 + ((i * 7 + seed) % 200)), max_tokens: 12_000, temperature: 1, seed, logit_bias: stops,
});
const cancelled = async (server) => (await server.metrics())['wader_generations_total{end="cancelled"}'] ?? 0;
const running = async (server) => (await server.metrics()).wader_requests_running;
const queued = async (server) => (await server.metrics()).wader_requests_queued;

async function assertIdle(server) {
  const before = server.cpuSeconds();
  await sleep(600);
  assert.ok(server.cpuSeconds() - before < 0.3, "the server works on, for nobody");
}

test("D-03 a client that goes away stops its work", { skip }, async () => {
  await withServer(["--context", "16384", "--sessions", "1"], async (server) => {
    const open = (body, stream) => {
      const controller = new AbortController();
      const done = post(server, "/v1/completions", { ...body, stream }, { signal: controller.signal })
        .then((response) => response.text()).then(() => "finished", () => "aborted");
      return { abort: () => controller.abort(), done };
    };
    const begun = async (name) => (await server.metrics())[name] ?? 0;
    let gone = 0;
    for (const stream of [true, false]) {
      // In decode, and in the prefill of a long prompt.
      for (const [promptTokens, where] of [[3, "wader_time_to_first_token_seconds_count"], [12_000, ""]]) {
        const before = where ? await begun(where) : 0;
        const call = open(endless(promptTokens), stream);
        await until("the request runs", () => running(server));
        if (where) await until("it decodes", async () => (await begun(where)) > before);
        call.abort();
        assert.equal(await call.done, "aborted");
        await until("its work ends", async () => (await running(server)) === 0, 5);
        assert.equal(await cancelled(server), ++gone);
        await assertIdle(server);
      }
      // In the queue: never begun.
      const prompts = await begun('wader_tokens_total{kind="prompt"}');
      const first = open(endless(50), stream);
      await until("the first runs", () => running(server));
      const second = open(endless(77), stream);
      await until("the second waits", () => queued(server));
      second.abort();
      await until("it waits no more", async () => (await queued(server)) === 0, 5);
      first.abort();
      await until("the first ends", async () => (await running(server)) === 0, 5);
      gone += 2;
      assert.equal(await cancelled(server), gone);
      assert.equal(await begun('wader_tokens_total{kind="prompt"}') - prompts, 50);
      await assertIdle(server);
      assert.equal((await good(server, "/v1/completions", { ...endless(5), max_tokens: 4 })).usage.completion_tokens, 4);
    }
  });
});

test("a queue has an end", { skip }, async () => {
  await withServer(["--context", "16384", "--sessions", "1", "--queue", "2"], async (server) => {
    const controllers = Array.from({ length: 3 }, () => new AbortController());
    const calls = [];
    for (const controller of controllers) {
      calls.push(post(server, "/v1/completions", endless(5), { signal: controller.signal }).catch(() => {}));
      await until("it is taken", async () => (await running(server)) + (await queued(server)) === calls.length);
    }
    const response = await post(server, "/v1/completions", endless(5));
    assert.equal(response.status, 429);
    assert.ok(Number(response.headers.get("retry-after")) > 0);
    assert.equal((await response.json()).error.code, "queue_full");
    controllers.forEach((controller) => controller.abort());
    await Promise.all(calls);
    await until("all is over", async () => (await running(server)) + (await queued(server)) === 0, 10);
    assert.equal((await server.metrics()).wader_requests_refused_total, 1);
  });
});

test("D-06 preflights and the key", { skip }, async () => {
  const file = join(dirname(container), "key");
  writeFileSync(file, "s3cret-key\n", { mode: 0o600 });
  await withServer(["--api-key-file", file, "--allow-origin", "https://app.example"], async (server) => {
    const host = `Host: 127.0.0.1:${server.port}`, page = "Origin: https://app.example";
    const ask = (method, path, ...headers) => exchange(server.port, request(method, path, [host, ...headers]));
    const wanted = ["Access-Control-Request-Method: POST", "Access-Control-Request-Headers: authorization,content-type"];
    const preflight = await ask("OPTIONS", "/v1/chat/completions", page, ...wanted);
    assert.equal(statusOf(preflight), 204);
    assert.match(headOf(preflight), /access-control-allow-origin: https:\/\/app\.example\r/);
    const names = /access-control-allow-headers: ([^\r]*)/.exec(headOf(preflight))[1].split(/, */);
    assert.ok(names.includes("authorization") && names.includes("content-type"), names);
    assert.match(headOf(preflight), /access-control-allow-methods: [^\r]*post/);
    const foreign = await ask("OPTIONS", "/v1/chat/completions", "Origin: https://evil.example", ...wanted);
    assert.ok(!headOf(foreign).includes("access-control-allow-origin"));
    const withKey = (key) => ask("GET", "/v1/models", page, ...(key ? [`Authorization: ${key}`] : []));
    for (const key of [undefined, "Bearer wrong", "Bearer s3cret-ke", "Bearer s3cret-keyy", "Bearer ", "s3cret-key", "Basic s3cret-key"]) {
      const answer = await withKey(key);
      assert.equal(statusOf(answer), 401, key);
      assert.match(headOf(answer), /access-control-allow-origin: https:\/\/app\.example\r/);
    }
    assert.equal(statusOf(await withKey("Bearer s3cret-key")), 200);
    const head = await ask("HEAD", "/health");
    assert.deepEqual([statusOf(head), bodyOf(head)], [200, ""]);
    assert.equal(bodyOf(await ask("HEAD", "/")), "");
    for (const path of ["/metrics", "/tokenize", "/openapi.json", "/nothing"])
      assert.equal(statusOf(await ask("GET", path)), 401, path);
  });
});

test("D-07 the same text from any cache and with any number of threads", { skip }, async () => {
  const texts = new Map();
  const text = async (server, body) => {
    const { choices: [choice], usage } = await chat(server, { messages: question, max_tokens: 40, ...body });
    return JSON.stringify([choice, usage.completion_tokens]);
  };
  for (const flags of [["--threads", "1"], ["--threads", "2"], ["--slots", "40", "--usage", "off"], ["--chunk", "16", "--io", "threads"]]) {
    await withServer(["--context", "2048", "--sessions", "2", ...flags], async (server) => {
      for (const [name, body, times] of [["42", { seed: 42, temperature: 1 }, 5], ["43", { seed: 43, temperature: 1 }, 1],
        ["44", { seed: 44, temperature: 1 }, 1], ["45", { seed: 45, temperature: 1 }, 1], ["0", { temperature: 0, seed: 1 }, 2],
        ["0", { temperature: 0, seed: 2 }, 2], ["0", { temperature: 0 }, 1]]) {
        for (let i = 0; i < times; ++i) {
          const now = await text(server, body);
          assert.equal(now, texts.get(name) ?? now, `${flags.join(" ")}: seed ${name}`);
          texts.set(name, now);
        }
      }
    });
  }
  assert.ok(new Set(["42", "43", "44", "45"].map((name) => texts.get(name))).size >= 3, "seeds vary");
});

test("a second turn takes the time of what is new", { skip }, async (t) => {
  await withServer(["--context", "8192", "--sessions", "3"], async (server) => {
    const words = (seed) => {
      const list = ["river", "stone", "house", "green", "seven", "walks", "under", "light", "paper", "north"];
      let text = "", state = seed;
      for (let i = 0; i < 1200; ++i) {
        state = (state * 1103515245 + 12345) % 2147483648;
        text += `${list[state % list.length]} `;
      }
      return text;
    };
    const talk = async (messages, seed) => {
      const { choices: [{ message }], usage, timings } = await chat(server, { messages, max_tokens: 60, temperature: 1, seed });
      if (!message.content) message.content = "Yes.";  // cut within its reasoning
      return { message, usage, seconds: timings.prefill_seconds, cached: usage.prompt_tokens_details.cached_tokens };
    };
    let reasoned = 0;
    for (let round = 0; round < 4; ++round) {
      const first = [{ role: "user", content: words(round + 1) }];
      const one = await talk(first, round);
      assert.ok(one.usage.prompt_tokens > 2000, `${one.usage.prompt_tokens} tokens`);
      assert.ok(one.cached < 200, "another text");
      reasoned += one.message.reasoning_content ? 1 : 0;
      const other = await talk([{ role: "user", content: words(round + 100) }], round);
      assert.ok(other.cached < 200);
      const two = await talk([...first, one.message, { role: "user", content: "And the next?" }], round);
      // The prompt of the first turn is there, up to its answer's header; new are the answer, as far as it is kept, and the question.
      const fresh = two.usage.prompt_tokens - two.cached;
      assert.ok(two.cached >= one.usage.prompt_tokens - 8, `${two.cached} of ${one.usage.prompt_tokens} were there`);
      assert.ok(fresh < 60 + 60, `${fresh} tokens are computed`);
      t.diagnostic(`turn 1: ${one.usage.prompt_tokens} tokens in ${one.seconds.toFixed(3)} s; turn 2: ${fresh} new in ${two.seconds.toFixed(3)} s`);
      assert.ok(two.seconds < one.seconds, `${two.seconds} s against ${one.seconds} s`);
    }
    if (process.env.WADER_MODEL === "demo") assert.ok(reasoned > 0, "no answer had reasoning");
  });
});
