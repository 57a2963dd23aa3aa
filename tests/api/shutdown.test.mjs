// How the program starts and ends: signals, readiness, keys, ports.
import assert from "node:assert/strict";
import { spawn, spawnSync } from "node:child_process";
import { chmodSync, existsSync, mkdirSync, mkdtempSync, readFileSync, rmSync, writeFileSync } from "node:fs";
import { tmpdir } from "node:os";
import { join } from "node:path";
import test from "node:test";
import { connect } from "./raw.mjs";
import { sleep, startServer, until } from "./server.mjs";

const wader = process.env.WADER_BINARY, container = process.env.WADER_CONTAINER;
const skip = wader && container ? false : "WADER_BINARY and WADER_CONTAINER say no program";
const flags = ["--memory", "512MiB", "--context", "16384", "--sessions", "2", "--quiet"];
const directory = mkdtempSync(join(tmpdir(), "wader-shutdown-"));
process.on("exit", () => rmSync(directory, { recursive: true, force: true }));

// Its answer is the text that came, and whether the connection was cut in its midst.
function open(server, maxTokens, stream) {
  const stops = Object.fromEntries([2, ...Array.from({ length: 24 }, (_, i) => (process.env.WADER_MODEL === "qwen" ? 1000 : 8168) + i)]
    .map((id) => [id, -100]));
  const body = { prompt: [40, 41, 42], max_tokens: maxTokens, temperature: 1, seed: 1, logit_bias: stops, stream };
  const answer = { text: "", cut: false, status: 0 };
  answer.done = fetch(`${server.url}/v1/completions`,
    { method: "POST", headers: { "content-type": "application/json" }, body: JSON.stringify(body) }).then(async (response) => {
    answer.status = response.status;
    for await (const part of response.body) answer.text += Buffer.from(part).toString();
  }).catch(() => {
    answer.cut = true;
  });
  return answer;
}
const running = async (server) => (await server.metrics()).wader_requests_running;
const secondsSince = (start) => (performance.now() - start) / 1000;

test("SIGTERM with answers at work and idle connections", { skip }, async () => {
  const server = await startServer(wader, container, flags);
  const idle = await Promise.all(Array.from({ length: 50 }, () => connect(server.port)));
  idle.forEach((socket) => socket.on("error", () => {}));
  const endless = [open(server, 16_000, true), open(server, 16_000, false)];
  await until("both run", async () => (await running(server)) === 2);
  const start = performance.now();
  server.child.kill("SIGTERM");
  await sleep(100);
  await assert.rejects(connect(server.port), "no new connections");
  assert.deepEqual(await server.ended, { code: 0, signal: null });
  assert.ok(secondsSince(start) < 5, `${secondsSince(start)} s`);
  await Promise.all(endless.map((answer) => answer.done));
  assert.ok(endless[0].text.includes('"text_completion"'));
  idle.forEach((socket) => socket.destroy());
});

test("SIGTERM lets a short answer finish", { skip }, async () => {
  const server = await startServer(wader, container, flags);
  const short = open(server, 300, true);
  await until("it runs", () => short.status === 200);
  server.child.kill("SIGTERM");
  assert.deepEqual(await server.ended, { code: 0, signal: null });
  await short.done;
  assert.equal(short.cut, false);
  assert.ok(short.text.endsWith("data: [DONE]\n\n"), short.text.slice(-200));
});

test("a second SIGTERM, and SIGINT, end at once", { skip }, async () => {
  for (const signal of ["SIGTERM", "SIGINT"]) {
    const server = await startServer(wader, container, flags);
    const endless = open(server, 16_000, true);
    await until("it runs", async () => (await running(server)) === 1);
    server.child.kill(signal);
    await sleep(200);
    assert.ok(server.alive(), "an answer is at work");
    const start = performance.now();
    server.child.kill(signal);
    assert.deepEqual(await server.ended, { code: 0, signal: null });
    assert.ok(secondsSince(start) < 2.5, `${secondsSince(start)} s`);
    await endless.done;
  }
});

test("without anything to do, SIGTERM ends at once", { skip }, async () => {
  const server = await startServer(wader, container, flags);
  const start = performance.now();
  assert.deepEqual(await server.kill("SIGTERM"), { code: 0, signal: null });
  assert.ok(secondsSince(start) < 2, `${secondsSince(start)} s`);
});

function fails(args, env = {}) {
  const run = spawnSync(wader, ["serve", ...args], { env: { ...process.env, WADER_API_KEY: "", ...env }, timeout: 60_000, encoding: "utf8" });
  assert.equal(run.stdout, "");
  return [run.status, run.stderr];
}

test("a port in use is named", { skip }, async () => {
  const server = await startServer(wader, container, flags);
  const [status, text] = fails([container, ...flags, "--port", String(server.port)]);
  assert.equal(status, 1);
  assert.match(text, new RegExp(`127\\.0\\.0\\.1:${server.port}: address already in use`));
  await server.kill();
});

test("what cannot be served is refused with a reason", { skip }, async () => {
  const file = (name, text) => {
    writeFileSync(join(directory, name), text);
    return join(directory, name);
  };
  mkdirSync(join(directory, "folder"), { recursive: true });
  const port = [container, "--port", "0"];
  const cases = [
    [[...port, "--api-key-file", join(directory, "none")], 1, /none/],
    [[...port, "--api-key-file", file("empty", "\n")], 1, /empty holds no key/],
    [[...port, "--api-key-file", join(directory, "folder")], 1, /folder/],
    [[...port, "--api-key-file", file("two", "a b\n")], 1, /printable ASCII without spaces/],
    [[...port, "--api-key-file", file("long", "x".repeat(10_000))], 1, /long/],
    [[...port, "--host", "0.0.0.0"], 2, /--api-key-file/],
    [[...port, "--host", "::"], 2, /--api-key-file/],
    [[...port, "--host", "127.evil.example"], 2, /127\.evil\.example/],
    [[...port, "--host", "no-such-host"], 2, /./],
    [[container, "--port", "70000"], 2, /--port/],
    [[...port, "--allow-origin", "app"], 2, /app/],
    [[...port, "--sessions", "0"], 2, /--sessions/],
    [[join(directory, "no.wader")], 1, /no\.wader/],
  ];
  for (const [args, status, text] of cases) {
    const [exit, errors] = fails(args);
    assert.equal(exit, status, `${args.join(" ")}: ${errors}`);
    assert.match(errors, text);
  }
  assert.deepEqual(fails([...port], { WADER_API_KEY: "two words" })[0], 1);
});

test("a key of the environment opens other addresses", { skip }, async () => {
  const server = await startServer(wader, container, [...flags, "--host", "0.0.0.0"], { WADER_API_KEY: "from-env" });
  const status = async (headers) => (await fetch(`http://127.0.0.1:${server.port}/v1/models`, { headers })).status;
  assert.equal(await status({}), 401);
  assert.equal(await status({ authorization: "Bearer from-env" }), 200);
  const text = readFileSync(`/proc/${server.pid}/cmdline`, "utf8");
  assert.ok(!text.includes("from-env") && !server.errors.includes("from-env"), "the key is in no command line and no log");
  await server.kill();
});

test("a key file that others can read is told", { skip }, async () => {
  const name = join(directory, "open-key");
  writeFileSync(name, "key\n");
  for (const [mode, told] of [[0o644, true], [0o600, false]]) {
    chmodSync(name, mode);
    const server = await startServer(wader, container, [...flags, "--api-key-file", name]);
    await server.kill("SIGTERM");
    assert.equal(/other users/.test(server.errors), told, server.errors);
  }
});

test("the service manager is told", { skip: skip || (existsSync("/usr/bin/perl") ? false : "needs perl for a datagram socket") }, async () => {
  const path = join(directory, "notify");
  const script = `use IO::Socket::UNIX; use Socket; $| = 1; my $s = IO::Socket::UNIX->new(Type => SOCK_DGRAM, Local => $ARGV[0]) or die;
    print "bound\\n"; while (1) { my $m; $s->recv($m, 4096); print "$m\\n"; }`;
  const perl = spawn("perl", ["-e", script, path], { stdio: ["ignore", "pipe", "inherit"] });
  let told = "";
  perl.stdout.on("data", (text) => { told += text; });
  try {
    await until("the socket", () => told.includes("bound"));
    const server = await startServer(wader, container, flags, { NOTIFY_SOCKET: path });
    await until("READY=1", () => told.includes("READY=1"), 5);
    assert.ok(!told.includes("STOPPING"));
    await server.kill("SIGTERM");
    await until("STOPPING=1", () => told.includes("STOPPING=1"), 5);
  } finally {
    perl.kill("SIGKILL");
  }
});

test("pages come from their directory and from nowhere else", { skip }, async () => {
  const pages = join(directory, "pages");
  mkdirSync(join(pages, "lib"), { recursive: true });
  writeFileSync(join(pages, "index.html"), "<!doctype html>page");
  writeFileSync(join(pages, "lib", "a.js"), "let a;");
  writeFileSync(join(pages, ".secret"), "secret");
  writeFileSync(join(directory, "outside.js"), "outside");
  const server = await startServer(wader, container, [...flags, "--web-dir", pages]);
  const get = async (path) => {
    const response = await fetch(server.url + path);
    return [response.status, await response.text(), response.headers];
  };
  const [status, text, headers] = await get("/");
  assert.equal(status, 200);
  assert.equal(text, "<!doctype html>page");
  assert.match(headers.get("content-security-policy"), /default-src 'self'/);
  assert.equal(headers.get("cross-origin-resource-policy"), "same-origin");
  assert.equal((await get("/app/lib/a.js"))[1], "let a;");
  for (const path of ["/app//etc/passwd", "/app/%2Fetc/passwd", "/app/.secret", "/app/lib/.secret", "/app/lib//a.js",
    "/app/%2e%2e/outside.js", `/app/${join(directory, "outside.js")}`]) {
    const [code, body] = await get(path);
    assert.ok(code === 404 || code === 400, `${path}: ${code}`);
    assert.doesNotMatch(body, /root:|secret"|^outside/);
  }
  await server.kill("SIGTERM");
});
