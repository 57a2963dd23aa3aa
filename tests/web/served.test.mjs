// The pages in a browser on a real `wader serve` (run.mjs starts it): what only the engine can be right or wrong about.
import assert from "node:assert/strict";
import { execFileSync } from "node:child_process";
import { mkdtempSync, readFileSync, rmSync } from "node:fs";
import { tmpdir } from "node:os";
import { join } from "node:path";
import { after, before, test } from "node:test";
import { answered, ask, skip as noBrowser, startBrowser } from "./browser.mjs";

const url = process.env.WADER_WEB_URL;
const wader = process.env.WADER_BINARY;
const container = process.env.WADER_CONTAINER;
const skip = noBrowser || (url && wader && container ? false : "no server: node tests/web/run.mjs WADER");
const options = { skip, timeout: 120000 };
const directory = mkdtempSync(join(tmpdir(), "wader-served-"));
process.on("exit", () => rmSync(directory, { recursive: true, force: true }));
let browser;
before(async () => {
  if (!skip) browser = await startBrowser();
});
after(() => browser?.close());

const get = async (path) => (await fetch(new URL(path, url))).json();
const post = async (path, body = {}) => {
  const response = await fetch(new URL(path, url), {
    method: "POST",
    headers: { "content-type": "application/json" },
    body: JSON.stringify(body),
  });
  return { status: response.status, body: await response.json() };
};
const texts = (page, role) =>
  page.$$eval(`.message.${role} .message-body`, (nodes) => nodes.map((n) => n.innerText));
const live = (page) =>
  page.waitForFunction(() => document.querySelector("#live").dataset.state === "live");

// A prompt that takes the engine seconds to read, so that there is something to stop.
const kLong = Array.from({ length: 900 }, (_, i) => `word${i}`).join(" ");

test("a chat of three turns with stop, regenerate and edit", options, async () => {
  const page = await browser.open(url);
  await live(page);
  await ask(page, "Write a Python function that adds two numbers.");
  await answered(page);
  const [first] = await texts(page, "assistant");
  assert.ok(first.length > 10, first);
  assert.match(await page.locator(".figure-line").innerText(), /tok\/s/);
  await ask(page, kLong);
  await page.click(".send[aria-label='Stop']");
  await answered(page);
  assert.equal(await page.locator(".message-note:visible").innerText(), "Stopped.");
  await page.locator(".message.user").nth(1).hover();
  await page.locator(".message.user").nth(1).locator("[aria-label='Edit']").click();
  await page.fill(".message.user textarea", "And one that multiplies them.");
  await page.press(".message.user textarea", "Enter");
  await answered(page);
  await ask(page, "Thank you.");
  await answered(page);
  assert.equal((await texts(page, "assistant")).length, 3);
  const before = (await texts(page, "assistant"))[2];
  await page.click(".message:last-child [aria-label='Regenerate']");
  await answered(page);
  assert.match(await page.locator(".message:last-child .variants").innerText(), /2\/2/);
  await page.click(".message:last-child [aria-label='Previous variant']");
  assert.equal((await texts(page, "assistant"))[2], before);
  await page.locator(".message.user").nth(1).locator("[aria-label='Previous variant']").click();
  assert.equal((await texts(page, "user"))[1], kLong);
  assert.deepEqual(page.troubles, []);
  await page.context().close();
});

// The experts that the model chooses for the last of `tokens` by its own routers, as `wader logits` says them.
function chosenByRouters(tokens) {
  const file = join(directory, "logits.safetensors");
  execFileSync(wader, ["logits", container, "--tokens", tokens.join(), "--output", file], { stdio: "ignore" });
  const bytes = readFileSync(file);
  const headBytes = Number(bytes.readBigUInt64LE(0));
  const head = JSON.parse(bytes.toString("utf8", 8, 8 + headBytes));
  const { shape, data_offsets: offsets } = head.router_indices;
  const [layers, positions, k] = shape;
  assert.equal(positions, tokens.length);
  return Array.from({ length: layers }, (_, layer) =>
    Array.from({ length: k }, (_, i) =>
      bytes.readInt32LE(8 + headBytes + offsets[0] + 4 * ((layer * positions + positions - 1) * k + i)),
    ).sort((a, b) => a - b),
  );
}

test("the cells of a token are those that its routers choose", options, async () => {
  const page = await browser.open(url);
  await live(page);
  await page.click("#tab-experts");
  await page.waitForSelector(".grid-canvas");
  const { body: tokens } = await post("tokenize", { prompt: "The quick brown fox jumps over the lazy dog" });
  // One pass reads the prompt and gives the one token that is asked for: its last row is the prompt's last token.
  const { status } = await post("v1/completions", { prompt: tokens.tokens, max_tokens: 1, temperature: 0 });
  assert.equal(status, 200);
  await page.click("[aria-label='One token back']");
  const chosen = await page.getAttribute(".grid-canvas", "data-chosen");
  const shown = chosen
    .split("; ")
    .map((line) => line.split(": ")[1].split(",").map(Number).sort((a, b) => a - b));
  const { model } = await get("wader/stats");
  assert.equal(shown.length, model.moe_layers.length);
  for (const layer of shown) assert.equal(new Set(layer).size, model.experts_per_token);
  assert.deepEqual(shown, chosenByRouters(tokens.tokens));
  assert.deepEqual(page.troubles, []);
  await page.context().close();
});

test("the range map of the button is that of the command line", options, async () => {
  rmSync(join(container, "range.json"), { force: true });
  const page = await browser.open(url);
  await live(page);
  await page.click("#tab-range");
  await page.click("text=Build the map");
  await page.waitForSelector(".range-progress:visible");
  await page.waitForSelector(".range-legend button");
  const file = join(directory, "range.json");
  execFileSync(wader, ["range", container, "--output", file, "--context", "4096"], { stdio: "ignore" });
  assert.equal(await (await fetch(new URL("wader/range", url))).text(), readFileSync(file, "utf8"));
  const map = JSON.parse(readFileSync(file, "utf8"));
  assert.ok(map.tested > 0 && map.repeated * 2 >= map.tested, "at least half of the credited experts repeat");
  assert.ok(map.by_chance.credited < 1, "shuffled topics credit none");
  const text = await page.locator("#range").innerText();
  assert.ok(text.includes(`${(100 * map.repeat_rate).toFixed(1)} %`), text);
  assert.deepEqual(page.troubles, []);
  await page.context().close();
});

// Both the header's name and the feed: while a model is being loaded, the header names it too.
async function shows(name, ...pages) {
  for (const page of pages)
    await page.waitForFunction(
      (wanted) =>
        document.querySelector("header").innerText.includes(wanted) &&
        document.querySelector("#live").dataset.state === "live",
      name,
    );
}

test("another model is switched to while pages are open", options, async () => {
  const page = await browser.open(url);
  const other = await browser.open(url);
  await live(page);
  await ask(page, "Hello");
  await answered(page);
  await other.click("#tab-experts");
  await other.waitForSelector(".grid-canvas");
  await page.click("#tab-machine");
  await page.getByRole("button", { name: "Switch to qwen" }).click();
  await shows("qwen", page, other);
  const { model } = await get("wader/stats");
  assert.equal(model.id, "qwen");
  await post("v1/completions", { prompt: [40, 41, 42], max_tokens: 1 });
  await other.click("[aria-label='One token back']");
  const chosen = await other.getAttribute(".grid-canvas", "data-chosen");
  assert.equal(chosen.split("; ").length, model.moe_layers.length);
  await page.click("#tab-chat");
  assert.deepEqual(await texts(page, "user"), ["Hello"], "the conversation stays");
  await ask(page, "Who are you now?");
  await answered(page);
  assert.equal((await post("wader/models/demo/load")).status, 200);
  await shows("demo", page, other);
  assert.deepEqual([...page.troubles, ...other.troubles], []);
  await page.context().close();
  await other.context().close();
});

test("pages come with their policy and may be kept until they change", options, async () => {
  for (const path of ["", "app/chat/chat_page.js", "app/base.css"]) {
    const { status, headers } = await fetch(new URL(path, url));
    assert.equal(status, 200, path);
    const policy = headers.get("content-security-policy");
    assert.match(policy, /default-src 'self'/);
    assert.match(policy, /require-trusted-types-for 'script'/);
    assert.equal(headers.get("cache-control"), "no-cache");
    assert.equal(headers.get("x-content-type-options"), "nosniff");
  }
});
