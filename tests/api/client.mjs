// Shared by the client tests, which talk to a running server:
//   WADER_BASE_URL=http://127.0.0.1:8080 WADER_MODEL=demo node --test tests/api/
// The models are small and their texts mean nothing. So what is checked is form, numbers, and that the same request says the
// same whichever way it is asked. Packages are those of tests/npm.
import assert from "node:assert/strict";
import { createRequire } from "node:module";

export const baseUrl = (process.env.WADER_BASE_URL ?? "").replace(/\/+$/, "");
export const model = process.env.WADER_MODEL ?? "";
export const apiKey = process.env.WADER_API_KEY ?? "none";
export const v1 = `${baseUrl}/v1`;
export const skip = baseUrl && model ? false : "WADER_BASE_URL and WADER_MODEL say no server";

const require = createRequire(new URL("../npm/package.json", import.meta.url));
export const load = (name) => require(name);
export const { z } = load("zod");

// Greedy, so that two requests can be compared; short, since an answer may never end by itself.
export const greedy = { temperature: 0, max_tokens: 24 };
export const question = [{ role: "user", content: "Say something." }];

export const weather = {
  name: "get_weather",
  description: "Weather of a city",
  parameters: { type: "object", properties: { city: { type: "string" } }, required: ["city"] },
};

export async function post(path, body, headers = {}) {
  return fetch(baseUrl + path, {
    method: "POST",
    headers: { "content-type": "application/json", authorization: `Bearer ${apiKey}`, ...headers },
    body: typeof body === "string" || body instanceof Uint8Array ? body : JSON.stringify(body),
  });
}

// Events of a stream as they are on the wire: [{event, data}], data parsed but for [DONE].
export async function events(response) {
  assert.match(response.headers.get("content-type"), /^text\/event-stream/);
  const list = [];
  for (const block of (await response.text()).split("\n\n")) {
    const lines = block.split("\n").filter((line) => line !== "" && !line.startsWith(":"));
    if (lines.length === 0) continue;
    const field = (name) => lines.find((line) => line.startsWith(`${name}: `))?.slice(name.length + 2);
    const data = field("data");
    assert.equal(lines.length, field("event") === undefined ? 1 : 2, block);
    list.push({ event: field("event"), data: data === "[DONE]" ? data : JSON.parse(data) });
  }
  return list;
}

export async function collect(iterable) {
  const list = [];
  for await (const item of iterable) list.push(item);
  return list;
}

// The bytes of tokens are those of the text, unless the text was cut within a character.
export function assertTokensMake(text, entries) {
  if (text.includes("\uFFFD")) return;
  assert.equal(Buffer.from(entries.flatMap((entry) => entry.bytes)).toString(), text);
}
