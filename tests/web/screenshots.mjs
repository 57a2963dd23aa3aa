// Makes the pictures of the pages that the documents show:
//   node tests/web/screenshots.mjs http://127.0.0.1:8080/ docs/screenshots
// of a running server, desktop and phone, light and dark.
import { mkdir } from "node:fs/promises";
import { join } from "node:path";
import { skip, startBrowser } from "./browser.mjs";

const [url, folder] = process.argv.slice(2);
if (skip || !url || !folder) {
  console.error(skip || "usage: node tests/web/screenshots.mjs URL FOLDER");
  process.exit(2);
}
const kSizes = { desktop: { width: 1280, height: 800 }, phone: { width: 390, height: 844 } };
const kQuestion = "Write a Python function that merges two sorted lists.";

// Other people's requests, so that the charts have something to show.
let over = false;
const others = (async () => {
  for (let seed = 0; !over; seed++) {
    await fetch(new URL("v1/completions", url), {
      method: "POST",
      headers: { "content-type": "application/json" },
      body: JSON.stringify({ prompt: "It was ", max_tokens: 100 + 60 * (seed % 5), temperature: 1, seed }),
    }).then((response) => response.text());
    await new Promise((done) => setTimeout(done, 300 + 150 * (seed % 4)));
  }
})();
await new Promise((done) => setTimeout(done, 15000));
await mkdir(folder, { recursive: true });
const browser = await startBrowser();
for (const [size, viewport] of Object.entries(kSizes)) {
  for (const theme of ["light", "dark"]) {
    const page = await browser.open(url, { ...viewport, theme });
    const shot = (name) => page.screenshot({ path: join(folder, `${name}-${size}-${theme}.png`) });
    await page.waitForSelector(".welcome");
    await page.fill(".composer textarea", kQuestion);
    await page.press(".composer textarea", "Enter");
    await page.waitForSelector(".figure-line", { timeout: 120000 });
    await shot("chat");
    // The last token of the answer, with those before it still warm.
    await page.click("#tab-experts");
    await page.click("[aria-label='One token back']");
    await page.waitForTimeout(500);
    await shot("experts");
    await page.click("#tab-range");
    await page.waitForSelector(":is(.range-empty, .range-body):not([hidden])");
    await page.waitForTimeout(500);
    await shot("range");
    await page.click("#tab-machine");
    await page.waitForTimeout(3000);
    await shot("machine");
    await page.context().close();
  }
}
over = true;
await others;
await browser.close();
