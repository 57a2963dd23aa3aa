// Connections that mean harm, or whose machine has gone: while each kind is there, and after it, small requests are answered
// and memory is what it was.
//   node hostile.mjs WADER [--long]      --long waits for the server's own time limits of a minute
// Times are reported; what fails a run is a bound that also a busy machine keeps.
import { spawn } from "node:child_process";
import { mkdtempSync, rmSync } from "node:fs";
import { tmpdir } from "node:os";
import { join, resolve } from "node:path";
import { parseArgs } from "node:util";
import { installModel } from "./models.mjs";
import { share, startProbe } from "./probe.mjs";
import { connect, exchange, received, request, statusOf } from "./raw.mjs";
import { sleep, startServer, until } from "./server.mjs";

const { values: { long, count }, positionals: [wader] } = parseArgs({
  allowPositionals: true, options: { long: { type: "boolean", default: false }, count: { type: "string", default: "5000" } } });
const bound_ms = 10_000;
const MiB = 2 ** 20;
const failures = [];
const check = (condition, what) => {
  if (!condition) failures.push(what), console.error(`FAILED: ${what}`);
};

const directory = mkdtempSync(join(tmpdir(), "wader-hostile-"));
process.on("exit", () => rmSync(directory, { recursive: true, force: true }));
const container = installModel(resolve(wader), "demo", directory);
const server = await startServer(resolve(wader), container,
  ["--memory", "256MiB", "--context", "16384", "--sessions", "2", "--queue", "1000", "--quiet"]);
const { port } = server;
const host = `Host: 127.0.0.1:${port}`, json = "Content-Type: application/json";
const small = JSON.stringify({ messages: [{ role: "user", content: "Hi" }], max_tokens: 1 });
const post = (...headers) => ["POST /v1/chat/completions HTTP/1.1", host, json, ...headers, "", ""].join("\r\n");
const chat = () => exchange(port, request("POST", "/v1/chat/completions", [host, json], small));

const open = async (howMany) => {
  const sockets = [];
  while (sockets.length < howMany) {
    const batch = await Promise.all(Array.from({ length: Math.min(200, howMany - sockets.length) }, () => connect(port)));
    batch.forEach((socket) => socket.on("error", () => {}));
    sockets.push(...batch);
  }
  return sockets;
};
// The statuses of what each socket gets until it is closed.
const ends = (sockets, seconds) => Promise.all(sockets.map(async (socket) => statusOf(await received(socket, seconds))));

async function phase(name, action) {
  const before = server.rssBytes();
  let top = before;
  const sampler = setInterval(() => { if (server.alive()) top = Math.max(top, server.rssBytes()); }, 50);
  const probes = [startProbe(port), startProbe(port, { path: "/v1/chat/completions", body: small })];
  await sleep(200);
  try {
    await Promise.all([action(), sleep(1500)]);  // a few of the small requests at least
  } catch (error) {
    check(false, `${name}: ${error.stack}`);
  }
  const during = await Promise.all(probes.map((probe) => probe.stop()));
  clearInterval(sampler);
  if (!server.alive()) throw new Error(`${name}: the server ended: ${server.errors.slice(-3000)}`);
  const start = performance.now();
  check(statusOf(await chat()) === 200, `${name}: the next request`);
  const after = performance.now() - start;
  for (const { times, failed } of during) {
    check(times.length > 0 && failed === 0, `${name}: ${failed} small requests failed meanwhile`);
    check(share(times, 1) < bound_ms, `${name}: a small request took ${share(times, 1)} ms meanwhile`);
  }
  // Bodies in progress may take 96 MiB; sanitizers keep up to 256 MiB of what was freed.
  check(top - before < 400 * MiB, `${name}: memory rose by ${((top - before) / MiB).toFixed(0)} MiB`);
  const [health, answer] = during.map(({ times }) => `p99 ${share(times, 0.99).toFixed(1)}, most ${share(times, 1).toFixed(1)}`);
  console.log(`${name}: health ${health} ms; chat of one token ${answer} ms; the next one ${after.toFixed(1)} ms; `
    + `MiB ${(before / MiB).toFixed(1)} before, ${(top / MiB).toFixed(1)} at most, ${(server.rssBytes() / MiB).toFixed(1)} after`);
}

await chat();
await phase("idle connections", async () => {
  const sockets = await open(Number(count));
  const open_now = (await server.metrics()).wader_http_connections;
  check(open_now >= Number(count), `${open_now} of ${count} idle connections are open`);
  await sleep(1000);
  sockets.forEach((socket) => socket.destroy());
  await until("they are gone", async () => (await server.metrics()).wader_http_connections < 20);
});

await phase("slowloris", async () => {
  const sockets = await open(500);
  const answers = ends(sockets, 25);
  const text = `GET /health HTTP/1.1\r\n${host}\r\nX: ${"x".repeat(1000)}`;
  let at = 0;
  const drip = setInterval(() => {
    sockets.forEach((socket) => socket.writable && socket.write(text[at]));
    ++at;
  }, 500);
  const statuses = await answers;
  clearInterval(drip);
  check(statuses.every((status) => status === 408), `slowloris got ${[...new Set(statuses)]}`);
});

await phase("a body of 1 GB, announced", async () => {
  const answer = await exchange(port, post("Content-Length: 1073741824"));
  check(statusOf(answer) === 413, `got ${statusOf(answer)}`);
});

async function pour(socket, head, chunk, total) {
  let over = false;
  const closed = new Promise((done) => {
    for (const event of ["close", "end"]) socket.once(event, () => done(over = true));
  });
  socket.write(head);
  let sent = 0;
  for (; sent < total && !over; sent += chunk.length) {
    if (!socket.write(chunk)) await Promise.race([new Promise((done) => socket.once("drain", done)), closed]);
  }
  return sent;
}
const chunkOf = (size) => Buffer.concat([Buffer.from(`${size.toString(16)}\r\n`), Buffer.alloc(size, "x"), Buffer.from("\r\n")]);

await phase("a body of 1 GB, in chunks", async () => {
  const socket = await connect(port);
  const answer = received(socket, 60);
  const sent = await pour(socket, post("Transfer-Encoding: chunked"), chunkOf(65536), 2 ** 30);
  check(statusOf(await answer) === 413, "chunks without end");
  check(sent < 300 * MiB, `${sent} bytes were taken`);
});

await phase("40 bodies of 30 MB that stop before their end", async () => {
  const sockets = await open(40);
  const got = sockets.map((socket) => received(socket, 8));
  await Promise.all(sockets.map((socket) => pour(socket, post(`Content-Length: ${31 * MiB}`), Buffer.alloc(65536, "x"), 30 * MiB)));
  const statuses = (await Promise.all(got)).map(statusOf);
  check(statuses.includes(503), `all of ${statuses} were taken`);
});

await phase("JSON 100,000 deep", async () => {
  for (const body of ["[".repeat(1e5), `${"[".repeat(1e5)}${"]".repeat(1e5)}`, `${'{"a":'.repeat(1e5)}1${"}".repeat(1e5)}`,
    `{"messages": ${"[".repeat(1e5)}`, `{"messages": ${"[".repeat(1e5)}${"]".repeat(1e5)}}`])
    check(statusOf(await exchange(port, request("POST", "/v1/chat/completions", [host, json], body))) === 400, body.slice(0, 30));
});

await phase("half-open and reset connections", async () => {
  // Who closed the sending half alone still gets an answer that is short; who sends nothing more gets a close.
  const half = await connect(port);
  const answer = received(half);
  half.end(request("GET", "/health", [host]));
  check(statusOf(await answer) === 200, "an answer to a half-closed connection");
  const sockets = await open(600);
  sockets.forEach((socket, i) => {
    if (i % 3 === 0) socket.end("GET /health HT");
    if (i % 3 === 1) socket.write(post("Content-Length: 100")), socket.end();
    if (i % 3 === 2) socket.write(request("POST", "/v1/chat/completions", [host, json], small)), socket.resetAndDestroy();
  });
  await ends(sockets.filter((_, i) => i % 3 !== 2), 10);
  await until("they are gone", async () => (await server.metrics()).wader_http_connections < 20);
});

await phase("garbage", async () => {
  let state = 1;
  const random = (size) => Buffer.from(Array.from({ length: size }, () => (state = (Math.imul(state, 1664525) + 1013904223) >>> 0) >>> 24));
  const hello = Buffer.from("16030100c8010000c40303", "hex");
  const texts = [random(10), random(5000), random(200_000), hello, Buffer.alloc(1 << 20), Buffer.from("GET ".repeat(50_000)),
    Buffer.from("\r\n".repeat(100_000)), Buffer.from("PRI * HTTP/2.0\r\n\r\nSM\r\n\r\n"), Buffer.from(`GET / HTTP/9.9\r\n${host}\r\n\r\n`),
    Buffer.from(`GET ${"/a".repeat(1e5)} HTTP/1.1\r\n${host}\r\n\r\n`), Buffer.from(`GET /\u0000 HTTP/1.1\r\n${host}\r\n\r\n`)];
  const statuses = await Promise.all(texts.map(async (text) => {
    const socket = await connect(port);
    const answer = received(socket, 14);
    socket.end(text);
    return statusOf(await answer);
  }));
  check(statuses.every((status) => status === 0 || (status >= 400 && status < 600)), `garbage got ${statuses}`);
});

await phase("pipelines that nobody reads", async () => {
  const get = `GET /openapi.json HTTP/1.1\r\n${host}\r\n\r\n`;
  const sockets = await open(20);
  sockets.forEach((socket) => socket.pause());
  for (let i = 0; i < 10; ++i) {
    sockets.forEach((socket) => socket.write(get.repeat(1000)));
    await sleep(100);
  }
  sockets.forEach((socket) => socket.destroy());
  // One that is read gets all its answers, in order.
  const socket = await connect(port);
  const answer = received(socket, 60);
  socket.write(`GET /health HTTP/1.1\r\n${host}\r\n\r\n`.repeat(500) + request("GET", "/nothing", [host]));
  const text = await answer;
  check(text.split("HTTP/1.1 200 OK").length === 501 && text.includes("HTTP/1.1 404"), "answers to a pipeline");
});

await phase("clients that are stopped", async () => {
  const script = `const http = require("node:http");
    const body = JSON.stringify({ prompt: "x", max_tokens: 3000, stream: true, logprobs: 5 });
    const request = http.request({ port: ${port}, host: "127.0.0.1", method: "POST", path: "/v1/completions",
      headers: { "content-type": "application/json", "content-length": body.length } }, (r) => r.once("data", () => console.log("stream")));
    request.end(body);`;
  const clients = [];
  try {
    for (let i = 0; i < 4; ++i) {
      const child = spawn(process.execPath, ["-e", script], { stdio: ["ignore", "pipe", "inherit"] });
      clients.push(child);
      await Promise.race([new Promise((done) => child.stdout.once("data", done)), sleep(5000)]);
      child.kill("SIGSTOP");
    }
    await sleep(long ? 70_000 : 3000);
  } finally {
    clients.forEach((child) => child.kill("SIGKILL"));
  }
  await until("their work ends", async () => {
    const metrics = await server.metrics();
    return metrics.wader_requests_running + metrics.wader_requests_queued <= 1;
  });
});

if (long) {
  await phase("bodies of one byte a second", async () => {
    const sockets = await open(200);
    const answers = ends(sockets, 90);
    sockets.forEach((socket) => socket.write(post("Content-Length: 10000")));
    const drip = setInterval(() => sockets.forEach((socket) => socket.writable && socket.write("x")), 1000);
    const statuses = await answers;
    clearInterval(drip);
    check(statuses.every((status) => status === 408), `slow bodies got ${[...new Set(statuses)]}`);
  });
}

const ended = await server.kill("SIGTERM");
check(ended.code === 0, `the server ended with ${JSON.stringify(ended)}: ${server.errors.slice(-2000)}`);
console.log(failures.length === 0 ? "all well" : `${failures.length} failures`);
process.exit(failures.length === 0 ? 0 : 1);
