// Models in a browser: installed, switched to, removed; and the other pages while that happens.
import assert from "node:assert/strict";
import { after, before, test } from "node:test";
import { answered, ask, seriousViolations, skip, startBrowser } from "./browser.mjs";
import { startMock } from "./mock_server.mjs";

const options = { skip, timeout: 60000 };
const kShape = "32x8"; // experts × layers of the model that is served first
let browser;

before(async () => {
  if (!skip) browser = await startBrowser();
});
after(() => browser?.close());

// Opens a page of a server of its own: what one test installs or removes is no matter of another.
async function withMachine(settings, use) {
  const mock = await startMock({ model: kShape, range: "none", load: 1200, ...settings });
  const page = await browser.open(`${mock.url}#machine`, settings);
  try {
    await page.waitForSelector(".models-table tbody tr");
    await page.waitForFunction(() => document.querySelector("#live").dataset.state === "live");
    await use(page, mock);
  } finally {
    await page.context().close();
    await mock.close();
  }
}

const row = (page, name) => page.locator(`[data-model="${name}"]`);
const card = (page, name) => page.locator(`[data-install="${name}"]`);
const badge = (page, name, text) => row(page, name).locator(".badge", { hasText: text }).waitFor();
const focused = (page) => page.evaluate(() => document.activeElement?.getAttribute("aria-label"));
const progress = async (page, name) =>
  Number(await card(page, name).locator("[role=progressbar]").getAttribute("aria-valuenow"));
// What a refused request leaves in the console, which no page can help.
const others = (page) => page.troubles.filter((text) => !/status of (404|409|500|503)/.test(text));

test("an install is looked at, begun, paused, gone on with, and done", options, async () => {
  await withMachine({ install: 6 }, async (page) => {
    const form = page.getByRole("form", { name: "Install a model" });
    await form.getByRole("button", { name: "Install", exact: true }).click();
    assert.match(await form.getByRole("alert").innerText(), /Say which model/);
    await form.getByLabel("Source").fill("openai/no-such-model");
    await form.getByLabel("Source").press("Enter");
    await form.getByText("the hub knows no model").waitFor();
    await form.getByLabel("Source").fill("openai/gpt-oss-20b");
    await form.getByLabel("Source").press("Enter"); // looks, and begins nothing
    await form.getByText("12.6 GiB of 12.8 GiB in 3 files", { exact: true }).waitFor();
    assert.equal(await card(page, "gpt-oss-20b").count(), 0);
    await form.getByLabel("Experts").selectOption("affine4");
    assert.ok(await page.locator(".preview-box").isHidden()); // that was of another format
    const asked = page.waitForRequest(
      (request) => request.method() === "POST" && request.url().endsWith("/wader/models"),
    );
    await form.getByRole("button", { name: "Install", exact: true }).click();
    assert.deepEqual((await asked).postDataJSON(), { source: "openai/gpt-oss-20b", experts: "affine4" });

    const pause = card(page, "gpt-oss-20b").getByRole("button", { name: "Pause the install of gpt-oss-20b" });
    await pause.waitFor();
    await page.waitForFunction(() => document.querySelector(".install [role=progressbar]").ariaValueNow > 5);
    await card(page, "gpt-oss-20b")
      .getByText(/\/s · .* left/)
      .waitFor();
    await badge(page, "gpt-oss-20b", "installing");
    await pause.focus();
    await page.keyboard.press("Enter");
    await card(page, "gpt-oss-20b")
      .getByText(/^paused/)
      .waitFor();
    assert.equal(await focused(page), "Resume the install of gpt-oss-20b"); // the same button still
    const stopped = await progress(page, "gpt-oss-20b");
    await page.waitForTimeout(700);
    assert.equal(await progress(page, "gpt-oss-20b"), stopped);
    await badge(page, "gpt-oss-20b", "unfinished");

    await page.reload(); // nothing of that is kept in the page
    await card(page, "gpt-oss-20b")
      .getByText(/^paused/)
      .waitFor();
    await row(page, "gpt-oss-20b").getByRole("button", { name: "Resume gpt-oss-20b" }).click();
    await page.waitForFunction(
      (n) => document.querySelector(".install [role=progressbar]")?.ariaValueNow > n + 5,
      stopped,
    );
    await badge(page, "gpt-oss-20b", "ready");
    await page.getByText("gpt-oss-20b is installed.").first().waitFor();
    assert.equal(await card(page, "gpt-oss-20b").count(), 0);
    assert.deepEqual(others(page), []);
  });
});

test("an install that fails says why, and can be hidden", options, async () => {
  await withMachine({ install: 2 }, async (page, mock) => {
    mock.host.installs.start("example/breaks-off", "auto"); // another window's
    await card(page, "breaks-off").getByText("the connection broke three times").waitFor();
    await page.reload(); // the last event of each install comes again, and tells nothing new
    await card(page, "breaks-off").getByText("the connection broke three times").waitFor();
    assert.equal(await page.locator(".toast").count(), 0);
    await page.getByRole("button", { name: "Hide the failed install of breaks-off" }).click();
    assert.equal(await card(page, "breaks-off").count(), 0);
    await badge(page, "breaks-off", "unfinished");
    assert.deepEqual(page.troubles, []);
  });
});

test("a model is removed after a question, and the one that is served is not", options, async () => {
  await withMachine({}, async (page, mock) => {
    const served = row(page, `mock-${kShape}`).getByRole("button", { name: `Remove mock-${kShape}` });
    assert.equal(await served.getAttribute("aria-disabled"), "true");
    await served.click({ force: true });
    await page.getByText("It is being served: switch to another one first.").waitFor();
    const remove = page.getByRole("button", { name: "Remove demo" });
    const dialog = page.getByRole("dialog", { name: "Remove demo?" });
    await remove.focus();
    await page.keyboard.press("Enter");
    assert.match(await dialog.innerText(), /16\.6 MiB/);
    assert.deepEqual(await seriousViolations(page), []);
    await page.keyboard.press("Enter"); // the focus is on Cancel
    await dialog.waitFor({ state: "hidden" });
    assert.equal(await focused(page), "Remove demo");
    await page.keyboard.press("Enter");
    await page.keyboard.press("Escape");
    await dialog.waitFor({ state: "hidden" });
    assert.ok(mock.host.find("demo"));

    await remove.click();
    await dialog.getByRole("button", { name: "Remove" }).click();
    await row(page, "demo").waitFor({ state: "detached" });
    assert.equal(mock.host.find("demo"), undefined);
    assert.equal(await page.evaluate(() => document.activeElement.id), "models-title");
    assert.deepEqual(page.troubles, []);
  });
});

test("a plan is shown as a bar or as what is missing", options, async () => {
  await withMachine({}, async (page) => {
    await page.getByRole("button", { name: "Plan of demo" }).click();
    const dialog = page.getByRole("dialog", { name: "demo" });
    await dialog.getByText(/It fits: .* planned of a budget of/).waitFor();
    assert.ok((await dialog.locator(".plan-bar span").count()) >= 6);
    assert.match(await dialog.innerText(), /of 192/);
    assert.deepEqual(await seriousViolations(page), []);
    await dialog.getByRole("button", { name: "Close" }).click();
    assert.equal(await focused(page), "Plan of demo");
    await page.getByRole("button", { name: "Plan of qwen3-coder-480b" }).click();
    const other = page.getByRole("dialog", { name: "qwen3-coder-480b" });
    await other.getByText(/does not fit this server’s memory: .* GiB more/).waitFor();
    assert.ok(await other.getByRole("button", { name: "Switch to it" }).isHidden());
    assert.deepEqual(await seriousViolations(page), []);
    assert.deepEqual(page.troubles, []);
  });
});

test(
  "another model: asked while an answer runs, said while it loads, and every page is of its shape",
  options,
  async () => {
    await withMachine({ range: "map" }, async (page) => {
      // A conversation, an answer that runs, and all pages open.
      await page.click("#tab-range");
      await page.waitForFunction(() => document.querySelector(".range-canvas")?.dataset.points === "256");
      await page.click("#tab-experts");
      await page.waitForSelector(".grid-canvas[data-shape='8x32']");
      await page.click("#tab-chat");
      await ask(page, "Hello");
      await page.click("#tab-machine");
      await page.getByRole("button", { name: "Switch to demo" }).click();
      const dialog = page.getByRole("dialog", { name: "Switch to demo?" });
      assert.match(await dialog.innerText(), /An answer is in progress/);
      assert.deepEqual(await seriousViolations(page), []);
      await dialog.getByRole("button", { name: "Switch" }).click();

      await page.locator("#model-name", { hasText: "Loading demo…" }).waitFor();
      assert.equal(await page.locator("#live").getAttribute("data-state"), "loading");
      await badge(page, "demo", "loading");
      await page.click("#tab-chat");
      await page.fill(".composer textarea", "And now?");
      assert.match(await page.locator(".composer-reason").innerText(), /Loading demo… Sending waits for it/);
      assert.ok(await page.locator(".send").isDisabled());

      await page.locator("#model-name", { hasText: /^demo$/ }).waitFor();
      assert.ok(await page.locator(".composer-reason").isHidden());
      assert.equal(await page.inputValue(".composer textarea"), "And now?"); // nothing written is lost
      assert.deepEqual(await page.locator(".message.user .message-body").allInnerTexts(), ["Hello"]);
      const request = page.waitForRequest("**/v1/chat/completions");
      await page.press(".composer textarea", "Enter");
      assert.equal((await request).postDataJSON().model, "demo");
      await answered(page);

      await page.click("#tab-experts");
      await page.waitForSelector(".grid-canvas[data-shape='6x32']");
      await page.getByText("6 layers × 32 experts, 4 chosen for each token").waitFor();
      await page.click("#tab-range");
      await page.waitForFunction(() => document.querySelector(".range-canvas")?.dataset.points === "192");
      await page.click("#tab-machine");
      await badge(page, "demo", "serving");
      await page.locator("#machine dd", { hasText: /^demo$/ }).waitFor();
      assert.deepEqual(others(page), []);
    });
  },
);

test("a model that cannot be loaded leaves the one before", options, async () => {
  await withMachine({}, async (page) => {
    await page.getByRole("button", { name: "Switch to qwen3-coder-480b" }).click();
    await page
      .locator("#machine")
      .getByRole("alert")
      .getByText(/cannot be loaded: .* GiB more/)
      .waitFor();
    await page.getByRole("button", { name: "Switch to broken-trunk" }).click();
    await page.locator("#model-name", { hasText: "Loading broken-trunk…" }).waitFor();
    await page
      .locator("#machine")
      .getByRole("alert")
      .getByText(/its checksum does not match/)
      .waitFor();
    await page.locator("#model-name", { hasText: `mock-${kShape}` }).waitFor();
    await badge(page, `mock-${kShape}`, "serving");
    assert.deepEqual(others(page), []);
  });
});

test("a page that comes while a model loads waits for it", options, async () => {
  await withMachine({ load: 2500, readyFirst: true }, async (page, mock) => {
    const loaded = mock.host.load("demo");
    const late = await browser.open(mock.url);
    await late.locator("#live-text", { hasText: "Loading" }).waitFor();
    await late.waitForSelector(".composer.blocked");
    await late.click("#tab-range");
    await late.locator("#range .notice:visible").waitFor();
    await late.click("#tab-experts");
    await loaded;
    await late.waitForSelector(".grid-canvas[data-shape='6x32']");
    await late.locator("#live-text", { hasText: "Ready" }).waitFor();
    await late.click("#tab-range");
    await late.getByText("No range map yet").waitFor();
    await late.locator(".toast", { hasText: "demo is loaded." }).waitFor();
    assert.deepEqual(others(late), []);
    await late.context().close();
  });
});

test("a live list keeps the focus and moves nothing", options, async () => {
  await withMachine({ install: 30 }, async (page, mock) => {
    mock.host.installs.start("openai/gpt-oss-20b", "auto");
    await card(page, "gpt-oss-20b")
      .getByText(/\/s · .* left/)
      .waitFor();
    const plan = page.getByRole("button", { name: "Plan of demo" });
    await plan.focus();
    await page.evaluate(() => {
      globalThis.shift = 0;
      new PerformanceObserver((list) => {
        for (const { value } of list.getEntries()) globalThis.shift += value;
      }).observe({ type: "layout-shift" });
      getSelection().selectAllChildren(document.querySelector("[data-model=demo] .model-name"));
    });
    await page.waitForTimeout(3000);
    assert.equal(await focused(page), "Plan of demo");
    assert.equal(await page.evaluate(() => String(getSelection()).trim()), "demo");
    assert.equal(await page.evaluate(() => globalThis.shift), 0);
    assert.deepEqual(page.troubles, []);
  });
});

test("two windows build one range map", options, async () => {
  await withMachine({}, async (page, mock) => {
    await page.click("#tab-range");
    await page.getByText("No range map yet").waitFor();
    // The other window was quicker, and this one has not heard of it yet.
    await page.route("**/wader/range", (route) => {
      if (route.request().method() === "POST") mock.host.model.buildRange();
      return route.continue();
    });
    await page.click("text=Build the map");
    await page.getByText(/Building the range map: .* KiB of 44.5 KiB of texts read/).waitFor();
    await page.waitForSelector(".range-legend button");
    const figures = await page.locator(".range-side dl").last().innerText();
    assert.match(figures, /Credited\s+\d+\s+by chance\s+[\d.]+\s+Repeated\s+\d+ of \d+ tested\s+by chance/);
    assert.match(figures, /Credit repeats\s+\d[\d.]* %\s+by chance\s+8\.7 %/);
    assert.ok(await page.locator("#range [role=alert]").isHidden());
    assert.deepEqual(others(page), []);
  });
});

for (const theme of ["light", "dark"]) {
  test(`all of it fits a phone, ${theme}`, options, async () => {
    await withMachine({ width: 390, height: 844, theme, install: 60 }, async (page, mock) => {
      mock.host.installs.start("openai/gpt-oss-120b", "auto");
      await card(page, "gpt-oss-120b")
        .getByText(/\/s · .* left/)
        .waitFor();
      await page.getByLabel("Source").fill("openai/gpt-oss-120b");
      await page.click("text=Look first");
      await page.locator(".preview-box").waitFor();
      const wide = () => page.$eval("#machine", (node) => node.scrollWidth - node.clientWidth);
      assert.equal(await wide(), 0);
      assert.deepEqual(await seriousViolations(page), []);
      await page.getByRole("button", { name: "Plan of demo" }).click();
      await page.locator(".plan-body").waitFor();
      const { x, width } = await page.locator(".plan-dialog").boundingBox();
      assert.ok(x >= 0 && x + width <= 390);
      assert.deepEqual(await seriousViolations(page), []);
      assert.deepEqual(page.troubles, []);
    });
  });
}
