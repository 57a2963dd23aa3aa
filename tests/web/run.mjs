// Starts `wader serve` on the demo model and runs the pages' tests, against it and against the made-up server:
//   node run.mjs WADER [FILES…]
// Exit status: that of the tests; 77, which CTest counts as skipped, without Chromium or the packages of tests/npm
// (with CI set: 1).
import { spawn } from "node:child_process";
import { mkdtempSync, readdirSync, rmSync } from "node:fs";
import { tmpdir } from "node:os";
import { basename, join, resolve } from "node:path";
import { fileURLToPath } from "node:url";
import { installModel } from "../api/models.mjs";
import { exitAfter, startServer } from "../api/server.mjs";
import { skip } from "./browser.mjs";

const here = fileURLToPath(new URL(".", import.meta.url));
const [wader, ...names] = process.argv.slice(2);
if (!wader) {
  console.error("usage: node run.mjs WADER [FILES…]");
  process.exit(2);
}
if (skip) {
  console.error(skip);
  process.exit(process.env.CI ? 1 : 77);
}
const files = readdirSync(here)
  .filter((file) => file.endsWith(".test.mjs"))
  .filter((file) => names.length === 0 || names.some((name) => basename(name) === file));
const home = mkdtempSync(join(tmpdir(), "wader-web-"));
process.on("exit", () => rmSync(home, { recursive: true, force: true }));
installModel(resolve(wader), "demo", home);
installModel(resolve(wader), "qwen", home);
const server = await startServer(
  resolve(wader),
  join(home, "demo.wader"),
  ["--memory", "256MiB", "--context", "4096", "--sessions", "4"],
  { WADER_HOME: home },
);
// CTest's own limit would leave the server running.
let tests;
setTimeout(() => {
  console.error("the tests took too long");
  tests?.kill("SIGKILL");
  process.exitCode = 1;
}, 540_000).unref();
const environment = {
  ...process.env,
  WADER_WEB_URL: `${server.url}/`,
  WADER_BINARY: resolve(wader),
  WADER_CONTAINER: join(home, "demo.wader"),
};
// One file after the other: frames are counted, and paint is timed.
let code = 0;
for (const file of files) {
  tests = spawn(process.execPath, ["--test", join(here, file)], { stdio: "inherit", env: environment });
  const ended = await new Promise((done) => tests.on("exit", (status) => done(status ?? 1)));
  code ||= ended;
}
await exitAfter(server, code);
