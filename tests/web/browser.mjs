// A browser for the tests of the pages: Debian's Chromium, driven by playwright-core, with axe-core to look for
// what keeps people out. Both are packages of tests/npm.
import { existsSync, readFileSync } from "node:fs";
import { createRequire } from "node:module";

const require = createRequire(new URL("../npm/package.json", import.meta.url));
const chromium = ["/usr/bin/chromium", "/usr/bin/chromium-browser", "/usr/bin/google-chrome"].find((path) =>
  existsSync(path),
);

function packageOf(name) {
  try {
    return require.resolve(name);
  } catch {
    return null;
  }
}

export const skip = !chromium
  ? "there is no Chromium"
  : !packageOf("playwright-core") || !packageOf("axe-core")
    ? "playwright-core and axe-core are not installed: run npm ci in tests/npm"
    : false;

// → {open(url, options), close()}. open gives a page of its own profile whose `troubles` collects what no page may
// do: errors in the console, requests to elsewhere.
export async function startBrowser() {
  const { chromium: driver } = require("playwright-core");
  const browser = await driver.launch({ executablePath: chromium, args: ["--no-sandbox"] });
  return {
    close: () => browser.close(),
    async open(url, { width = 1280, height = 800, theme = "light", reducedMotion = "no-preference" } = {}) {
      const context = await browser.newContext({
        viewport: { width, height },
        colorScheme: theme,
        reducedMotion,
      });
      const page = await context.newPage();
      page.troubles = [];
      page.on("console", (message) => message.type() === "error" && page.troubles.push(message.text()));
      page.on("pageerror", (error) => page.troubles.push(error.message));
      page.on("request", (request) => {
        if (new URL(request.url()).origin !== new URL(url).origin)
          page.troubles.push(`asks ${request.url()}`);
      });
      await page.goto(url);
      return page;
    },
  };
}

// What axe calls serious or critical, as lines to read; in the light of the page's own rules, which axe's script
// may pass through the debugger only.
export async function seriousViolations(page) {
  const debug = await page.context().newCDPSession(page);
  await debug.send("Runtime.evaluate", { expression: readFileSync(packageOf("axe-core"), "utf8") });
  const found = await page.evaluate(() => globalThis.axe.run(document));
  return found.violations
    .filter(({ impact }) => impact === "serious" || impact === "critical")
    .map(({ id, nodes }) => `${id}: ${nodes.map(({ target }) => target.join(" ")).join(", ")}`);
}

// A message of the chat, sent; its answer, complete or stopped.
const box = ".composer textarea";
export async function ask(page, text) {
  await page.fill(box, text);
  await page.press(box, "Enter");
  await page.waitForSelector(".message.assistant");
}
export const answered = (page) => page.waitForSelector(".send[aria-label='Send']");
