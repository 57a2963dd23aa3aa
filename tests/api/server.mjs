// `wader serve` as a process of its own: started, asked what it uses, ended. Nothing outlives this process.
import { execFileSync, spawn } from "node:child_process";
import { readFileSync } from "node:fs";

const children = new Set();
process.on("exit", () => children.forEach((child) => child.kill("SIGKILL")));
for (const signal of ["SIGINT", "SIGTERM"]) process.on(signal, () => process.exit(1));

export const sleep = (ms) => new Promise((resolve) => setTimeout(resolve, ms));

// Until check() is true. What does not come in time fails with its name.
export async function until(what, check, seconds = 30) {
  for (const end = Date.now() + seconds * 1000; ; await sleep(20)) {
    const value = await check();
    if (value) return value;
    if (Date.now() > end) throw new Error(`not in ${seconds} s: ${what}`);
  }
}

export class ServerProcess {
  constructor(child, url) {
    Object.assign(this, { child, url, pid: child.pid, port: Number(new URL(url).port), errors: "" });
    this.ended = new Promise((resolve) => child.on("exit", (code, signal) => resolve({ code, signal })));
  }
  alive() { return this.child.exitCode === null && this.child.signalCode === null; }
  // Bytes resident, as the kernel counts them.
  rssBytes() { return 1024 * Number(/^VmRSS:\s+(\d+)/m.exec(readFileSync(`/proc/${this.pid}/status`, "utf8"))[1]); }
  cpuSeconds() {
    const fields = readFileSync(`/proc/${this.pid}/stat`, "utf8").split(") ")[1].split(" ");
    return (Number(fields[11]) + Number(fields[12])) / 100;
  }
  openFiles() { return Number(execFileSync("sh", ["-c", `ls /proc/${this.pid}/fd | wc -l`])); }
  // Values of /metrics by name with labels.
  async metrics() {
    const response = await fetch(`${this.url}/metrics`, { headers: this.headers ?? {} });
    const lines = (await response.text()).split("\n").filter((line) => line !== "" && !line.startsWith("#"));
    return Object.fromEntries(lines.map((line) => [line.slice(0, line.lastIndexOf(" ")), Number(line.slice(line.lastIndexOf(" ")))]));
  }
  async kill(signal = "SIGKILL") {
    this.child.kill(signal);
    return this.ended;
  }
}

// The line that says where it is served, or an error with what it said instead.
export async function startServer(wader, container, flags = [], env = {}) {
  const child = spawn(wader, ["serve", container, ...(flags.includes("--port") ? [] : ["--port", "0"]), ...flags],
    { env: { ...process.env, WADER_API_KEY: "", ...env }, stdio: ["ignore", "pipe", "pipe"] });
  children.add(child);
  child.on("exit", () => children.delete(child));
  let out = "", err = "", server;
  child.stderr.on("data", (text) => {
    err += text;
    if (server) server.errors += text;
  });
  const url = await new Promise((resolve, reject) => {
    child.stdout.on("data", (text) => {
      out += text;
      const found = /served at (http:\/\/\S+)\n/.exec(out);
      if (found) resolve(found[1]);
    });
    child.on("error", reject);
    child.on("close", (code) => reject(new Error(`wader serve ended with ${code}: ${err}`)));
  });
  server = new ServerProcess(child, url);
  server.errors = err;
  return server;
}

// Ends the server, says what is wrong with its end, and this process with what all of it comes to. `code`: the tests'.
export async function exitAfter(server, code) {
  if (!server.alive()) console.error(`the server ended during the tests: ${server.errors.slice(-4000)}`);
  const { code: status } = server.alive() ? await server.kill("SIGTERM") : { code: 1 };
  if (status !== 0) console.error(`the server ended with status ${status}: ${server.errors.slice(-4000)}`);
  process.exit(code !== 0 || status !== 0 ? 1 : 0);
}
