// A server for working on the dashboard and for its tests: serves src/web/, passes /v1/* on to a running
// `wader serve`, and makes up what /wader/* says, for a model of any size.
//
//   node tests/web/mock_server.mjs [--port 8090] [--upstream http://127.0.0.1:8080] [--model 512x48|128x36|32x8]
//       [--rate 30] [--range none|map] [--key SECRET] [--load MS] [--install SECONDS]
//
// Without --upstream the answers of /v1/chat/completions are made up as well: `hostile` in a question gets one
// that tries to break out of the page.
import { createServer, request } from "node:http";
import { readFile } from "node:fs/promises";
import { join, normalize } from "node:path";
import { fileURLToPath } from "node:url";
import { fakeAnswer } from "./fake_answer.mjs";
import { FakeHost } from "./fake_host.mjs";

const kWeb = fileURLToPath(new URL("../../src/web/", import.meta.url));
const kTypes = {
  html: "text/html; charset=utf-8",
  js: "text/javascript; charset=utf-8",
  css: "text/css; charset=utf-8",
  svg: "image/svg+xml",
};
// What the real server must send as well.
export const kHeaders = {
  "Content-Security-Policy":
    "default-src 'self'; base-uri 'none'; form-action 'none'; frame-ancestors 'none'; " +
    "object-src 'none'; require-trusted-types-for 'script'",
  "X-Content-Type-Options": "nosniff",
  "Referrer-Policy": "no-referrer",
  "Cache-Control": "no-cache",
};

// → {url, close, host}; `options`: {port, upstream, model: 'EXPERTSxLAYERS', rate, range, key, load, install}.
export async function startMock(options = {}) {
  const name =
    options.upstream && (await (await fetch(new URL("/v1/models", options.upstream))).json()).data[0].id;
  const host = new FakeHost({ ...options, name: name || undefined });
  const server = createServer((incoming, outgoing) => {
    answer(incoming, outgoing, host, options).catch((error) => {
      if (!outgoing.headersSent) json(outgoing, error.status ?? 500, { error: { message: error.message } });
      else outgoing.destroy();
    });
  });
  await new Promise((done) => server.listen(options.port ?? 0, "127.0.0.1", done));
  return {
    host,
    url: `http://127.0.0.1:${server.address().port}/`,
    close() {
      host.stop();
      server.closeAllConnections();
      return new Promise((done) => server.close(done));
    },
  };
}

function json(outgoing, status, body, headers = {}) {
  outgoing.writeHead(status, { ...headers, "Content-Type": "application/json" });
  outgoing.end(JSON.stringify(body));
}

const failure = (outgoing, status, message, headers) =>
  json(outgoing, status, { error: { message } }, headers);

async function answer(incoming, outgoing, host, options) {
  const path = new URL(incoming.url, "http://localhost").pathname;
  if (path === "/" || path.startsWith("/app/")) return file(outgoing, path);
  if (options.key && incoming.headers.authorization !== `Bearer ${options.key}`)
    return failure(outgoing, 401, "an API key is needed");
  if (path === "/wader/events") return events(outgoing, host);
  if (path.startsWith("/wader/models")) return models(incoming, outgoing, path, host);
  if (host.absent()) return failure(outgoing, 503, host.absent(), { "Retry-After": "1" });
  if (path.startsWith("/v1/"))
    return options.upstream
      ? proxy(incoming, outgoing, options, host.model)
      : ownV1(incoming, outgoing, path, host.model);
  if (path === "/wader/stats") return json(outgoing, 200, host.model.stats());
  if (path === "/wader/range") return range(incoming, outgoing, host.model);
  failure(outgoing, 404, `no such address: ${path}`);
}

async function bodyOf(incoming) {
  let text = "";
  for await (const part of incoming) text += part;
  return JSON.parse(text);
}

// GET and POST /wader/models and what is below.
async function models(incoming, outgoing, path, host) {
  const [name, action] = path.split("/").slice(3).map(decodeURIComponent);
  const { installs } = host;
  if (incoming.method === "GET") {
    if (!name) return json(outgoing, 200, host.list());
    const entry = host.find(name);
    if (action !== "plan" || !entry) return failure(outgoing, 404, `no model ${name}`);
    return json(outgoing, 200, host.planOf(entry));
  }
  if (incoming.headers["content-type"] !== "application/json")
    return failure(outgoing, 415, "the body must be application/json");
  const body = await bodyOf(incoming);
  if (name === "preview" && !action) {
    await new Promise((done) => setTimeout(done, 300));
    return json(outgoing, 200, installs.preview(body.source, body.experts, host.freeBytes()));
  }
  if (!name) {
    const started = installs.start(body.source, body.experts);
    return started
      ? json(outgoing, 202, { name: started })
      : failure(outgoing, 409, `${body.source} is being installed already`);
  }
  if (action === "pause")
    return installs.pause(name)
      ? json(outgoing, 202, {})
      : failure(outgoing, 409, `${name} is not being installed`);
  if (action !== "load" && action !== "remove") return failure(outgoing, 404, `no such address: ${path}`);
  const { status, body: said } = action === "load" ? await host.load(name) : host.remove(name);
  json(outgoing, status, said);
}

async function file(outgoing, path) {
  const name = path === "/" ? "index.html" : normalize(path.slice("/app/".length));
  const type = kTypes[name.split(".").at(-1)];
  if (!type || name.startsWith("..")) return json(outgoing, 404, { error: { message: `no page ${path}` } });
  try {
    const body = await readFile(join(kWeb, name));
    outgoing.writeHead(200, { ...kHeaders, "Content-Type": type });
    outgoing.end(body);
  } catch {
    json(outgoing, 404, { error: { message: `no page ${path}` } });
  }
}

function range(incoming, outgoing, model) {
  if (incoming.method === "POST") {
    return model.buildRange()
      ? json(outgoing, 202, {})
      : failure(outgoing, 409, "a range map is being built already");
  }
  if (model.range) return json(outgoing, 200, model.range);
  outgoing.writeHead(204);
  outgoing.end();
}

function events(outgoing, host) {
  outgoing.writeHead(200, { "Content-Type": "text/event-stream", "Cache-Control": "no-store" });
  const stop = host.listen((event, data) =>
    outgoing.write(`event: ${event}\ndata: ${JSON.stringify(data)}\n\n`),
  );
  outgoing.on("close", stop);
}

// While a real answer streams, the made-up experts fly beside it.
function proxy(incoming, outgoing, options, model) {
  const chat = incoming.url.endsWith("/chat/completions");
  // The server behind answers its own pages only, so this page's origin stays here.
  const { host, origin, referer, ...headers } = incoming.headers;
  const onward = request(
    new URL(incoming.url, options.upstream),
    { method: incoming.method, headers },
    (back) => {
      outgoing.writeHead(back.statusCode, back.headers);
      const stop = chat ? model.answer() : () => {};
      back.pipe(outgoing);
      back.on("close", stop);
    },
  );
  onward.on("error", () =>
    outgoing.headersSent
      ? outgoing.destroy()
      : json(outgoing, 502, { error: { message: "the server behind does not answer" } }),
  );
  outgoing.on("close", () => onward.destroy());
  incoming.pipe(onward);
}

async function ownV1(incoming, outgoing, path, model) {
  if (path === "/v1/models")
    return json(outgoing, 200, {
      object: "list",
      data: [{ id: model.facts.id, object: "model", context_length: 4096 }],
    });
  if (path !== "/v1/chat/completions")
    return json(outgoing, 404, { error: { message: `no such address: ${path}` } });
  await fakeAnswer(await bodyOf(incoming), outgoing, model);
}

if (process.argv[1] === fileURLToPath(import.meta.url)) {
  const options = { port: 8090 };
  for (let i = 2; i < process.argv.length; i += 2)
    options[process.argv[i].replace(/^--/, "")] = process.argv[i + 1];
  if (options.port) options.port = Number(options.port);
  const { url } = await startMock(options);
  console.log(`the dashboard is at ${url}`);
}
