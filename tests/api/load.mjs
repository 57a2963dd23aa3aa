// Many clients at once, some of whom abort, ask nonsense or read slowly; every answer that is finished must be the one that
// the same request gets alone.
//   node load.mjs WADER [--seconds 20] [--clients 32] [--model demo|qwen] [--threads N]
// From 180 seconds on, resident memory must be flat within 2 % after the first minute and p99 of /health under 50 ms;
// a shorter run, which may share the machine, only reports them.
import { mkdtempSync, rmSync } from "node:fs";
import { tmpdir } from "node:os";
import { join, resolve } from "node:path";
import { parseArgs } from "node:util";
import { installModel } from "./models.mjs";
import { share, startProbe } from "./probe.mjs";
import { connect } from "./raw.mjs";
import { sleep, startServer } from "./server.mjs";

const { values: options, positionals: [wader] } = parseArgs({
  allowPositionals: true,
  options: {
    seconds: { type: "string", default: "20" }, clients: { type: "string", default: "32" },
    model: { type: "string", default: "demo" }, threads: { type: "string", default: "auto" },
  },
});
const seconds = Number(options.seconds), strict = seconds >= 180;
const patience = 120_000;  // of one request; more is stuck

function randomFrom(seed) {
  let state = seed;
  return (below) => {
    state = (Math.imul(state, 1664525) + 1013904223) >>> 0;
    return Math.floor((state / 2 ** 32) * below);
  };
}

const words = ["river", "stone", "house", "green", "seven", "walks", "under", "light", "paper", "north", "Why", "is", "the"];
const text = (random, count) => Array.from({ length: count }, () => words[random(words.length)]).join(" ");
const tool = { type: "function", function: { name: "get_weather", description: "Weather of a city",
  parameters: { type: "object", properties: { city: { type: "string" } }, required: ["city"] } } };

// Requests of all kinds; each is asked alone first.
function makeJobs() {
  const random = randomFrom(7);
  const jobs = [];
  const add = (path, body) => jobs.push({ path, body: { seed: jobs.length, temperature: jobs.length % 4 === 0 ? 0 : 1, ...body } });
  const chat = (content, more) => add("/v1/chat/completions", { messages: [{ role: "user", content }], ...more });
  for (let i = 0; i < 10; ++i) chat(text(random, 5 + random(40)), { max_tokens: 20 + random(150) });
  for (let i = 0; i < 4; ++i) chat(text(random, 700), { max_tokens: 30 });
  for (let i = 0; i < 3; ++i) chat(text(random, 20), { max_tokens: 60, n: 2 + i % 2 });
  for (let i = 0; i < 4; ++i) chat(text(random, 20), { max_tokens: 80, tools: [tool] });
  for (let i = 0; i < 3; ++i) chat(text(random, 10), { max_tokens: 60, stop: ["e ", "\n", "th"], presence_penalty: 0.5, top_k: 40 });
  for (let i = 0; i < 4; ++i) add("/v1/completions", { prompt: text(random, 30), max_tokens: 20 + random(200) });
  for (let i = 0; i < 4; ++i) {
    const first = { role: "user", content: text(random, 300) };
    add("/v1/chat/completions", { max_tokens: 60, messages: [first,
      { role: "assistant", content: text(random, 20), reasoning_content: text(random, 20) }, { role: "user", content: text(random, 10) }] });
  }
  return jobs;
}

// What an answer says, without what differs each time (ids, times).
function sayingOf(body) {
  return JSON.stringify([body.usage.completion_tokens, body.choices.map((choice) => choice.text !== undefined
    ? [choice.text, choice.finish_reason]
    : [choice.message.content ?? "", choice.message.reasoning_content ?? "",
      (choice.message.tool_calls ?? []).map((call) => [call.function.name, call.function.arguments]), choice.finish_reason])]);
}

function assembled(stream) {
  const choices = [];
  let usage;
  const lines = stream.split("\n\n").flatMap((block) => block.split("\n")).filter((line) => line.startsWith("data: "));
  if (lines.pop() !== "data: [DONE]") throw new Error(`a stream without its end: …${stream.slice(-300)}`);
  for (const line of lines) {
    const chunk = JSON.parse(line.slice(6));
    if (chunk.error) throw new Error(`in a stream: ${line}`);
    usage = chunk.usage ?? usage;
    for (const { index, delta, text: piece, finish_reason } of chunk.choices) {
      const whole = choices[index] ??= piece !== undefined ? { text: "" } : { message: { content: "", reasoning_content: "", tool_calls: [] } };
      if (piece !== undefined) {
        whole.text += piece;
      } else {
        whole.message.content += delta.content ?? "";
        whole.message.reasoning_content += delta.reasoning_content ?? "";
        for (const call of delta.tool_calls ?? []) {
          if (call.id) whole.message.tool_calls[call.index] = { function: { name: call.function.name, arguments: "" } };
          whole.message.tool_calls[call.index].function.arguments += call.function.arguments;
        }
      }
      whole.finish_reason = finish_reason ?? whole.finish_reason;
    }
  }
  return sayingOf({ choices, usage });
}

const count = { streamed: 0, whole: 0, slow: 0, aborted: 0, refused: 0, tokens: 0, health: 0 };
const failures = [];
const fail = (what) => {
  if (failures.push(what) <= 10) console.error(`FAILED: ${what}`);
};

function compare(job, saying, how) {
  ++count[how];
  count.tokens += JSON.parse(saying)[0];
  if (saying !== job.saying) fail(`${how}: ${JSON.stringify(job.body).slice(0, 200)}\n  alone: ${job.saying}\n  now:   ${saying}`);
}

const post = (server, path, body, signal) => fetch(server.url + path, {
  method: "POST", headers: { "content-type": "application/json" }, signal,
  body: typeof body === "string" ? body : JSON.stringify(body),
});
const streamed = (job) => ({ ...job.body, stream: true, stream_options: { include_usage: true } });

async function stream(server, job) {
  const response = await post(server, job.path, streamed(job), AbortSignal.timeout(patience));
  compare(job, assembled(await response.text()), "streamed");
}
async function whole(server, job) {
  const response = await post(server, job.path, job.body, AbortSignal.timeout(patience));
  const body = await response.json();
  if (response.status !== 200) return fail(`${response.status}: ${JSON.stringify(body)}`);
  compare(job, sayingOf(body), "whole");
}
async function abort(server, job, random) {
  const controller = new AbortController();
  setTimeout(() => controller.abort(), random(600));
  try {
    const response = await post(server, job.path, random(2) ? streamed(job) : job.body, controller.signal);
    await response.text();
  } catch (error) {
    if (error.name !== "AbortError") fail(`abort: ${error}`);
  }
  ++count.aborted;
}
const nonsense = [
  [400, "{"], [400, { messages: [] }], [400, { messages: [{ role: "user", content: "x" }], temperature: -1 }],
  [404, { model: "no-such", messages: [{ role: "user", content: "x" }] }], [400, `{"x":${"[".repeat(5000)}`],
  [400, { messages: [{ role: "user", content: "many words ".repeat(200_000) }] }], [400, { messages: "x", n: 99 }],
];
async function refuse(server, random) {
  const [status, body] = nonsense[random(nonsense.length)];
  const response = await post(server, "/v1/chat/completions", body, AbortSignal.timeout(patience));
  await response.text();
  if (response.status !== status) fail(`nonsense got ${response.status}: ${JSON.stringify(body).slice(0, 100)}`);
  ++count.refused;
}
// Takes a piece, sleeps, takes the next. HTTP/1.0, whose answer has no chunks to be undone.
async function slow(server, job, random) {
  const body = JSON.stringify(streamed(job));
  const socket = await connect(server.port);
  socket.write(`POST ${job.path} HTTP/1.0\r\nHost: 127.0.0.1:${server.port}\r\nContent-Type: application/json\r\n`
    + `Content-Length: ${Buffer.byteLength(body)}\r\n\r\n${body}`);
  const end = Date.now() + patience;
  const parts = [];
  for await (const part of socket) {
    parts.push(part);
    if (Date.now() > end) throw new Error("a slow reader waited too long");
    if (parts.length < 12) await sleep(50 + random(250));
  }
  const answer = Buffer.concat(parts).toString();
  compare(job, assembled(answer.slice(answer.indexOf("\r\n\r\n") + 4)), "slow");
}

async function client(server, jobs, seed, end) {
  const random = randomFrom(seed * 7919 + 1);
  while (Date.now() < end && server.alive()) {
    const job = jobs[random(jobs.length)], dice = random(10);
    try {
      if (dice < 5) await stream(server, job);
      else if (dice < 6) await whole(server, job);
      else if (dice < 7) await slow(server, job, random);
      else if (dice < 9) await abort(server, job, random);
      else await refuse(server, random);
    } catch (error) {
      fail(`${job.path} (${dice}): ${error?.cause ?? error}`);
    }
  }
}

const mib = (bytes) => (bytes / 2 ** 20).toFixed(1);

async function main() {
  const directory = mkdtempSync(join(tmpdir(), "wader-load-"));
  process.on("exit", () => rmSync(directory, { recursive: true, force: true }));
  const container = installModel(resolve(wader), options.model, directory);
  const server = await startServer(resolve(wader), container, ["--memory", "256MiB", "--sessions", "4", "--context", "4096",
    "--queue", "256", "--threads", options.threads, "--quiet"]);
  const jobs = makeJobs();
  for (const job of jobs) {
    const response = await post(server, job.path, job.body);
    const body = await response.json();
    if (response.status !== 200) throw new Error(JSON.stringify(body));
    job.saying = sayingOf(body);
  }
  const health = startProbe(server.port);
  const start = Date.now(), end = start + seconds * 1000;
  const rss = [];
  const sampler = setInterval(() => {
    if (server.alive()) rss.push([(Date.now() - start) / 1000, server.rssBytes()]);
  }, 1000);
  await Promise.all(Array.from({ length: Number(options.clients) }, (_, i) => client(server, jobs, i, end)));
  const took = (Date.now() - start) / 1000;
  clearInterval(sampler);
  const { times, failed } = await health.stop();
  if (failed > 0) fail(`${failed} requests for /health failed`);
  if (!server.alive()) fail(`the server ended: ${server.errors.slice(-2000)}`);
  for (let i = 0; i < 100 && server.alive(); ++i) {
    const metrics = await server.metrics();
    if (metrics.wader_requests_running + metrics.wader_requests_queued === 0) break;
    await sleep(100);
    if (i === 99) fail(`${metrics.wader_requests_running} requests run on, ${metrics.wader_requests_queued} wait, for nobody`);
  }
  // Of half a minute the median: a body of 2 MB that is just being refused is no growth.
  const windows = [];
  for (const [at, bytes] of rss.filter(([at]) => at >= 60 && at < took)) (windows[Math.floor((at - 60) / 30)] ??= []).push(bytes);
  const medians = windows.filter((list) => list.length >= 15).map((list) => share(list.sort((x, y) => x - y), 0.5));
  const growth = Math.max(...medians) / medians[0] - 1;
  console.log(`${took.toFixed(0)} s, ${options.clients} clients, model ${options.model}: ${count.streamed} streams, ${count.slow} slow ones and `
    + `${count.whole} whole answers equal to those alone (${count.tokens} tokens), ${count.aborted} aborted, ${count.refused} refused`);
  console.log(`health of ${times.length}: p50 ${share(times, 0.5).toFixed(1)}, p99 ${share(times, 0.99).toFixed(1)}, `
    + `most ${share(times, 1).toFixed(1)} ms`);
  console.log(strict
    ? `resident MiB, medians of half minutes after the first minute: ${medians.map(mib).join(" ")}; at most ${mib(Math.max(...rss.map(([, bytes]) => bytes)))}`
    : `resident MiB: ${mib(rss.at(0)?.[1] ?? 0)} at first, ${mib(rss.at(-1)?.[1] ?? 0)} at the end`);
  if (count.streamed + count.slow + count.whole === 0 || count.aborted + count.refused === 0) fail("nothing was tried");
  if (share(times, 0.99) > (strict ? 50 : 10_000) || times.length === 0) fail("p99 of /health");
  if (strict && !(growth <= 0.02)) fail(`resident memory grows by ${(100 * growth).toFixed(1)} %`);
  const ended = server.alive() ? await server.kill("SIGTERM") : { code: 1 };
  if (ended.code !== 0) fail(`the server ended with ${JSON.stringify(ended)}: ${server.errors.slice(-2000)}`);
  if (/Sanitizer|runtime error/.test(server.errors)) fail(server.errors.slice(0, 6000));
  console.log(failures.length === 0 ? "all well" : `${failures.length} failures`);
  process.exit(failures.length === 0 ? 0 : 1);
}
await main();
