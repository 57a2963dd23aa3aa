// What open dashboards cost the decode: `wader serve` answers the same request in turns with and without some of
// them, three if not told.
//   node bench/dashboards.mjs WADER MODEL [--rounds N] [--tokens N] [--pages N] [--readers] [--unattended] [FLAGS OF SERVE…]
// The dashboards are pages of a headless Chromium on this machine, showing Experts; with --readers, clients that read
// /wader/events and do nothing with it: pages whose browsers are on other machines. --unattended: pages that nobody
// has touched for so long that they may draw less often (src/web/lib/pace.js).
import { startServer } from "../tests/api/server.mjs";
import { startBrowser } from "../tests/web/browser.mjs";

const [wader, model, ...rest] = process.argv.slice(2);
const take = (name, fallback) => {
  const at = rest.indexOf(name);
  return at < 0 ? fallback : Number(rest.splice(at, 2)[1]);
};
const rounds = take("--rounds", 10), tokens = take("--tokens", 400), pages = take("--pages", 3);
const has = (name) => rest.includes(name) && rest.splice(rest.indexOf(name), 1).length > 0;
const readers = has("--readers"), unattended = has("--unattended");
if (!wader || !model) {
  console.error("usage: node bench/dashboards.mjs WADER MODEL [--rounds N] [--tokens N] [--pages N] [--readers] [--unattended] [FLAGS OF SERVE…]");
  process.exit(2);
}
// The demo's ids that would end the answer; others' have no effect on how long it takes.
const noEnd = Object.fromEntries([2, ...Array.from({ length: 24 }, (_, i) => 8168 + i)].map((id) => [id, -100]));
const server = await startServer(wader, model, ["--quiet", ...rest]);
const rate = async () => {
  const response = await fetch(`${server.url}/v1/completions`, {
    method: "POST",
    headers: { "content-type": "application/json" },
    body: JSON.stringify({ prompt: [40, 41, 42, 43], max_tokens: tokens, temperature: 1, seed: 7, logit_bias: noEnd }),
  });
  const { usage, timings } = await response.json();
  return { rate: usage.completion_tokens / timings.decode_seconds, tokens: usage.completion_tokens };
};

async function openPages() {
  if (readers) {
    const abort = new AbortController();
    for (let i = 0; i < pages; i++) {
      const { body } = await fetch(`${server.url}/wader/events`, { signal: abort.signal });
      (async () => {
        for await (const part of body) void part;
      })().catch(() => {});
    }
    return () => abort.abort();
  }
  const browser = await startBrowser();
  for (let i = 0; i < pages; i++) {
    const page = await browser.open(`${server.url}/`);
    await page.click("#tab-experts");
    await page.waitForFunction(() => document.querySelector("#live").dataset.state === "live");
  }
  return () => browser.close();
}

await rate();
const ratios = [];
let told = 0;
for (let round = 0; round < rounds; round++) {
  const measured = {};
  for (const open of round % 2 ? [true, false] : [false, true]) {
    const close = open ? await openPages() : () => {};
    await new Promise((done) => setTimeout(done, unattended ? 22_000 : 700));
    const result = await rate();
    measured[open] = result.rate;
    told = result.tokens;
    await close();
    await new Promise((done) => setTimeout(done, 300));
  }
  ratios.push(measured[true] / measured[false]);
  console.log(`round ${round + 1}: ${measured[false].toFixed(2)} tok/s without, ${measured[true].toFixed(2)} with, ratio ${ratios.at(-1).toFixed(3)}`);
}
ratios.sort((a, b) => a - b);
const at = (share) => ratios[Math.round(share * (ratios.length - 1))].toFixed(3);
console.log(`${pages} ${readers ? "readers" : "pages"}, ${told} tokens: median ratio ${at(0.5)}, quartiles ${at(0.25)} to ${at(0.75)}`);
await server.kill("SIGTERM");
process.exit(0);
