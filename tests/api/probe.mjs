// Small requests, one after the other, from a thread of their own: what a test does meanwhile must not count as the
// server's time. { path, body } as for fetch; stop() gives the milliseconds of each, sorted, and how many failed.
import { Worker } from "node:worker_threads";

const work = `
  const { parentPort, workerData: { port, path, body, pause } } = require("node:worker_threads");
  const http = require("node:http");
  const agent = new http.Agent({ keepAlive: true, maxSockets: 1 });
  const times = [];
  let failed = 0;
  const probe = () => {
    const start = performance.now();
    const next = (ok) => {
      if (ok) times.push(performance.now() - start); else ++failed;
      setTimeout(probe, pause);
    };
    const headers = body ? { "content-type": "application/json", "content-length": Buffer.byteLength(body) } : {};
    const request = http.request({ port, host: "127.0.0.1", path, agent, headers, method: body ? "POST" : "GET" }, (response) => {
      response.resume();
      response.on("end", () => next(response.statusCode === 200));
    });
    request.on("error", () => next(false));
    request.end(body);
  };
  probe();
  parentPort.on("message", () => {
    parentPort.postMessage({ times: times.sort((a, b) => a - b), failed });
    process.exit();
  });`;

export function startProbe(port, { path = "/health", body, pause = 50 } = {}) {
  const worker = new Worker(work, { eval: true, workerData: { port, path, body, pause } });
  return {
    stop: () => new Promise((resolve) => {
      worker.on("message", resolve);
      worker.postMessage("end");
    }),
  };
}
export const share = (sorted, part) => sorted[Math.min(sorted.length - 1, Math.floor(sorted.length * part))] ?? NaN;
