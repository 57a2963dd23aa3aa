// Starts `wader serve` on a model and runs tests/api/*.test.mjs against it:
//   node run.mjs WADER MODEL [FILES…]      MODEL is demo or qwen (models.mjs)
// Exit status: that of the tests; 77, which CTest counts as skipped, without the packages of tests/npm (with CI set: 1).
import { spawn } from "node:child_process";
import { existsSync, mkdtempSync, readdirSync, rmSync } from "node:fs";
import { tmpdir } from "node:os";
import { basename, join, resolve } from "node:path";
import { fileURLToPath } from "node:url";
import { installModel, modelNames } from "./models.mjs";
import { exitAfter, startServer } from "./server.mjs";

const here = fileURLToPath(new URL(".", import.meta.url));
const [wader, model, ...names] = process.argv.slice(2);
if (!wader || !modelNames.includes(model)) {
  console.error(`usage: node run.mjs WADER ${modelNames.join("|")} [FILES…]`);
  process.exit(2);
}
for (const name of ["openai", "ai", "@ai-sdk/openai-compatible", "@ai-sdk/openai", "@langchain/openai", "zod"]) {
  if (existsSync(join(here, "../npm/node_modules", name, "package.json"))) continue;
  console.error(`npm package ${name} is not installed: run npm ci in tests/npm`);
  process.exit(process.env.CI ? 1 : 77);
}

const files = readdirSync(here).filter((file) => file.endsWith(".test.mjs"))
  .filter((file) => names.length === 0 || names.some((name) => basename(name) === file));
const directory = mkdtempSync(join(tmpdir(), "wader-api-"));
process.on("exit", () => rmSync(directory, { recursive: true, force: true }));

const container = installModel(resolve(wader), model, directory);
const server = await startServer(resolve(wader), container,
  ["--memory", "256MiB", "--sessions", "4", "--context", "4096"]);
const tests = spawn(process.execPath, ["--test", ...files.map((file) => join(here, file))], {
  stdio: "inherit",
  env: {
    ...process.env, WADER_BASE_URL: server.url, WADER_MODEL: model,
    WADER_BINARY: resolve(wader), WADER_CONTAINER: container,
  },
});
// CTest's own limit would leave the server running.
setTimeout(() => {
  console.error("the tests took too long");
  tests.kill("SIGKILL");
}, 280_000).unref();
const code = await new Promise((done) => tests.on("exit", (status) => done(status ?? 1)));
await exitAfter(server, code);
