// /wader/models and /wader/range: models are planned, loaded in place of each other, installed, paused, removed; a range map
// is built among requests. A server of its own, with a models directory of its own and the stub hub.
import assert from "node:assert/strict";
import { execFileSync, spawn } from "node:child_process";
import { cpSync, existsSync, mkdtempSync, readFileSync, rmSync, writeFileSync } from "node:fs";
import { cpus, tmpdir } from "node:os";
import { join } from "node:path";
import test, { after, before } from "node:test";
import { fileURLToPath } from "node:url";
import { installModel } from "./models.mjs";
import { sleep, startServer, until } from "./server.mjs";

const wader = process.env.WADER_BINARY;
const skip = wader && process.env.WADER_MODEL === "demo" ? false : "runs once, with the demo model";
const directory = mkdtempSync(join(tmpdir(), "wader-library-"));
process.on("exit", () => rmSync(directory, { recursive: true, force: true }));
const checkpoint = fileURLToPath(new URL("../../models/demo", import.meta.url));
const budgetBytes = 128 * 1024 * 1024;
const home = join(directory, "models");
const environment = { WADER_HOME: home, HF_HOME: join(directory, "hf"), HF_TOKEN: "hf_good" };
let server, hub;

async function startHub() {
  const script = fileURLToPath(new URL("../hub/stub_hub.mjs", import.meta.url));
  const child = spawn(process.execPath, [script, "--watch-stdin", "--rate", "4000000", "--repo", `org/slow=${checkpoint}`],
    { stdio: ["pipe", "pipe", "inherit"] });
  const line = await new Promise((resolve) => child.stdout.once("data", (data) => resolve(String(data).split("\n")[0])));
  return { child, url: JSON.parse(line).hub };
}

before(async () => {
  if (skip) return;
  installModel(wader, "demo", home);
  installModel(wader, "qwen", home);
  hub = await startHub();
  server = await startServer(wader, join(home, "demo.wader"),
    ["--memory", String(budgetBytes), "--sessions", "2", "--quiet"], { ...environment, HF_ENDPOINT: hub.url });
});
after(async () => {
  hub?.child.kill();
  if (server?.alive()) assert.equal((await server.kill("SIGTERM")).code, 0);
  else if (server) assert.fail(`the server ended: ${JSON.stringify(await server.ended)} ${server.errors}`);
});

const get = async (path) => {
  const response = await fetch(server.url + path);
  return { status: response.status, body: response.status === 204 ? null : await response.json() };
};
const post = async (path, body = {}) => {
  const response = await fetch(server.url + path,
    { method: "POST", headers: { "content-type": "application/json" }, body: JSON.stringify(body) });
  return { status: response.status, body: await response.json() };
};
const model = async (name) => (await get("/wader/models")).body.models.find((entry) => entry.name === name);
const job = async (name) => (await get("/wader/models")).body.installs.find((entry) => entry.name === name);
const complete = async (prompt, more = {}) =>
  post("/v1/completions", { prompt, max_tokens: 12, temperature: 0, ...more });

// The events of /wader/events, as they come: {list, stop}.
async function watch() {
  const abort = new AbortController();
  const response = await fetch(`${server.url}/wader/events`, { signal: abort.signal });
  const list = [];
  (async () => {
    let text = "";
    for await (const part of response.body) {
      text += Buffer.from(part).toString();
      for (let end; (end = text.indexOf("\n\n")) >= 0; text = text.slice(end + 2)) {
        const found = /^event: (\w+)\ndata: (.*)$/.exec(text.slice(0, end));
        if (found) list.push({ event: found[1], data: JSON.parse(found[2]) });
      }
    }
  })().catch(() => {});
  const has = (event, check) => () => list.find((entry) => entry.event === event && check(entry.data));
  return { list, has, stop: () => abort.abort() };
}

test("what is installed, and what the planner says of it", { skip }, async () => {
  const { body } = await get("/wader/models");
  assert.deepEqual(body.models.map(({ name, state, serving }) => ({ name, state, serving })), [
    { name: "demo", state: "complete", serving: true },
    { name: "qwen", state: "complete", serving: false },
  ]);
  assert.equal(body.serving, "demo");
  assert.equal(body.loading, null);
  assert.ok(body.free_bytes > 0);
  const { body: plan } = await get("/wader/models/qwen/plan");
  assert.equal(plan.fits, true);
  assert.equal(plan.plan.budget_bytes, budgetBytes);
  const info = JSON.parse(execFileSync(wader, ["info", join(home, "qwen.wader"), "--json", "--memory", String(budgetBytes)]));
  for (const part of ["trunk_bytes", "slots"]) assert.equal(plan.plan[part], info.plan[part], part);
  for (const path of ["/wader/models/none/plan", "/wader/models/x%2Fdemo/plan", "/wader/models/.demo/plan"])
    assert.equal((await get(path)).status, 404, path);
});

test("a page that connects is told the model, the experts in memory and the figures at once", { skip }, async () => {
  await complete([40, 41, 42]);
  const page = await watch();
  await until("three events", () => page.list.length >= 3);
  page.stop();
  const [hello, resident, stats] = page.list;
  assert.deepEqual([hello.event, resident.event, stats.event], ["hello", "resident", "stats"]);
  assert.equal(hello.data.model, "demo");
  const bits = Buffer.from(resident.data.bits, "base64");
  assert.equal(bits.length, hello.data.moe_layers.length * hello.data.experts / 8);
  assert.ok(bits.some((byte) => byte !== 0), "the experts of the last request are in memory");
});

test("another model is loaded in the same memory, and back; answers are the same bits", { skip }, async () => {
  const prompt = [40, 41, 42, 43];
  const first = await complete(prompt);
  const page = await watch();
  await until("hello", page.has("hello", (data) => data.model === "demo"));
  for (let turn = 0; turn < 3; turn++) {
    assert.deepEqual(await post("/wader/models/qwen/load"), { status: 200, body: { serving: "qwen" } });
    assert.equal((await get("/v1/models")).body.data[0].id, "qwen");
    if (turn === 0) await until("the page is told", page.has("model", ({ state, name }) => state === "ready" && name === "qwen"));
    const { plan, engine } = (await get("/wader/stats")).body;
    assert.equal(plan.budget_bytes, budgetBytes);
    assert.equal(engine.spare_cpus, Math.max(0, cpus().length - plan.threads));
    assert.equal((await complete(prompt)).status, 200);
    assert.equal((await complete(prompt, { model: "demo" })).status, 404, "a model that is not served is not answered for");
    assert.deepEqual(await post("/wader/models/demo/load"), { status: 200, body: { serving: "demo" } });
    const again = await complete(prompt);
    assert.equal(again.body.choices[0].text, first.body.choices[0].text);
  }
  assert.deepEqual(await post("/wader/models/demo/load"), { status: 200, body: { serving: "demo" } });
  // Of what comes between two writes, a page gets the latest of each kind.
  const last = (event) => page.list.filter((entry) => entry.event === event).at(-1)?.data;
  await until("the page has followed", () => last("model")?.state === "ready" && last("hello").model === "demo");
  page.stop();
  assert.equal(last("model").name, "demo");
  assert.ok(server.rssBytes() <= budgetBytes, `${server.rssBytes()} bytes resident`);
});

test("an answer in progress ends with an error, requests in between get 503, no model is lost", { skip }, async () => {
  const stops = Object.fromEntries([2, ...Array.from({ length: 24 }, (_, i) => 8168 + i)].map((id) => [id, -100]));
  const endless = await fetch(`${server.url}/v1/completions`, {
    method: "POST", headers: { "content-type": "application/json" },
    body: JSON.stringify({ prompt: [40, 41], max_tokens: 3000, stream: true, logit_bias: stops }),
  });
  const text = endless.text();
  await until("it runs", async () => (await get("/health")).body.running === 1);
  let asked = 0, answered = 0, refused = 0, over = false;
  const others = (async () => {
    while (!over) {
      const { status, body } = await complete([40, 41, 42]);
      asked++;
      if (status === 200) answered++;
      else if (status === 503) refused++;
      else assert.fail(`${status} ${JSON.stringify(body)}`);
    }
  })();
  const both = await Promise.all([1, 2].map(() => post("/wader/models/qwen/load")));
  // The second comes while the first is at it, or finds it done.
  assert.ok(both.some(({ status }) => status === 200) && both.every(({ status }) => [200, 409].includes(status)), JSON.stringify(both));
  over = true;
  await others;
  assert.equal(asked, answered + refused);
  assert.match(await text, /"error".*loads another model/);
  assert.equal((await post("/wader/models/demo/load")).status, 200);
});

test("what does not fit or is damaged is refused, and the former model goes on", { skip }, async () => {
  const damaged = join(home, "damaged.wader");
  cpSync(join(home, "qwen.wader"), damaged, { recursive: true });
  writeFileSync(join(damaged, "manifest.json"), "{");
  assert.equal((await model("damaged")).state, "damaged");
  assert.equal((await post("/wader/models/damaged/load")).status, 409);
  assert.match((await get("/wader/models/damaged/plan")).body.problem, /manifest/);
  // Whole to the planner; that its trunk is not what was written shows after the former model has gone.
  cpSync(join(home, "qwen.wader", "manifest.json"), join(damaged, "manifest.json"));
  const trunk = readFileSync(join(damaged, "trunk.bin"));
  trunk[100] ^= 1;
  writeFileSync(join(damaged, "trunk.bin"), trunk);
  const page = await watch();
  const failed = await post("/wader/models/damaged/load");
  assert.equal(failed.status, 500);
  assert.match(failed.body.error.message, /trunk/);
  await until("pages are told", page.has("model", ({ state, error }) => state === "failed" && /trunk/.test(error)));
  page.stop();
  assert.equal((await get("/health")).body.model, "demo");
  assert.equal((await complete([40, 41, 42])).status, 200);
  assert.equal((await post("/wader/models/damaged/remove")).status, 200);
  assert.equal(existsSync(damaged), false);
  assert.equal((await post("/wader/models/demo/remove")).status, 409, "the served one stays");
  assert.equal((await post("/wader/models/demo/remove", { force: true })).status, 400);
  assert.equal((await post("/wader/models/none/remove")).status, 404);
});

test("the range map is the one that the command line makes, also among requests", { skip }, async () => {
  assert.equal((await get("/wader/range")).status, 204);
  const alone = await complete([50, 51, 52]);
  const page = await watch();
  assert.equal((await post("/wader/range")).status, 202);
  assert.equal((await post("/wader/range")).status, 409);
  while (!page.has("range", ({ state }) => state === "done" || state === "failed")())
    assert.equal((await complete([50, 51, 52])).body.choices[0].text, alone.body.choices[0].text);
  page.stop();
  const ranges = page.list.filter((entry) => entry.event === "range").map(({ data }) => data);
  assert.equal(ranges.at(-1).state, "done", JSON.stringify(ranges.at(-1)));
  assert.deepEqual(ranges.map(({ done }) => done), ranges.map(({ done }) => done).sort((a, b) => a - b));
  const file = join(directory, "range.json");
  execFileSync(wader, ["range", join(home, "demo.wader"), "--output", file], { stdio: "ignore" });
  assert.equal(await (await fetch(`${server.url}/wader/range`)).text(), readFileSync(file, "utf8"));
  assert.equal(readFileSync(join(home, "demo.wader", "range.json"), "utf8"), readFileSync(file, "utf8"));
});

test("a model of the hub is looked at, installed, paused, gone on with, and served", { skip }, async () => {
  const { status, body: look } = await post("/wader/models/preview", { source: "org/slow" });
  assert.equal(status, 200, JSON.stringify(look));
  assert.ok(look.fetch_bytes > 20e6 && look.fetch_bytes <= look.source_bytes, JSON.stringify(look));
  assert.equal((await post("/wader/models/preview", { source: "org/none" })).status, 502);
  const page = await watch();
  assert.deepEqual(await post("/wader/models", { source: "org/slow", trunk: "affine8" }), { status: 202, body: { name: "slow" } });
  assert.equal((await post("/wader/models", { source: "org/slow" })).status, 409);
  await until("some of it is there", page.has("install", ({ done_bytes: done }) => done > 1e6));
  assert.equal((await post("/wader/models/slow/remove")).status, 409);
  assert.equal((await post("/wader/models/slow/pause")).status, 202);
  await until("it is paused", page.has("install", ({ state }) => state === "paused"));
  assert.equal((await post("/wader/models/slow/pause")).status, 409);
  const unfinished = await model("slow");
  assert.deepEqual([unfinished.state, unfinished.source, unfinished.trunk_format], ["unfinished", "org/slow", "affine8"]);
  const instead = await post("/wader/models", { source: "/elsewhere/slow" });
  assert.equal(instead.status, 409, "what has been fetched is not dropped for another source");
  assert.match(instead.body.error.message, /org\/slow/);
  assert.equal((await post("/wader/models/slow/load")).status, 409);
  assert.equal((await post("/wader/models", { source: "org/slow", trunk: "affine8" })).status, 202);
  await until("it is done", page.has("install", ({ state }) => state === "done"), 60);
  page.stop();
  assert.equal((await job("slow")).state, "done");
  assert.equal((await model("slow")).source, "org/slow");
  const before = await complete([60, 61, 62]);
  assert.equal((await post("/wader/models/slow/load")).status, 200);
  assert.equal((await complete([60, 61, 62])).body.choices[0].text, before.body.choices[0].text, "it is the demo");
  assert.equal((await post("/wader/models/demo/load")).status, 200);
  assert.equal((await post("/wader/models/slow/remove")).status, 200);
  for (const source of ["--repair", "relative/../path", "name", ""])
    assert.equal((await post("/wader/models", { source })).status, 400, source);
  assert.equal((await post("/wader/models", { source: "/no/such/checkpoint" })).status, 202);
  await until("it failed", async () => (await job("checkpoint")).state === "failed");
  assert.match((await job("checkpoint")).error, /no checkpoint at/);
});

test("an install that runs holds neither the port nor the server's end", { skip }, async () => {
  const own = await startServer(wader, join(home, "qwen.wader"), ["--memory", "128MiB", "--quiet"],
    { ...environment, HF_ENDPOINT: hub.url });
  const port = String(own.port);
  const started = await fetch(`${own.url}/wader/models`,
    { method: "POST", headers: { "content-type": "application/json" }, body: JSON.stringify({ source: "org/slow" }) });
  assert.equal(started.status, 202);
  await until("it began", () => existsSync(join(home, "slow.wader")));
  assert.equal((await own.kill("SIGTERM")).code, 0);
  const next = await startServer(wader, join(home, "qwen.wader"), ["--memory", "128MiB", "--quiet", "--port", port], environment);
  // At 4 MB/s it would go on for another 5 s; nobody can remove what an install holds.
  const told = performance.now();
  await until("nobody holds it", async () => {
    const removed = await fetch(`${next.url}/wader/models/slow/remove`,
      { method: "POST", headers: { "content-type": "application/json" }, body: "{}" });
    return removed.status === 200;
  });
  assert.ok(performance.now() - told < 3000, "it was interrupted, and did not run to its end");
  assert.equal((await next.kill("SIGTERM")).code, 0);
});
