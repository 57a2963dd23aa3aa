// What is refused, by whom and in which form; the server goes on after each.
import assert from "node:assert/strict";
import test from "node:test";
import { apiKey, greedy, load, model, post, question, skip, v1 } from "./client.mjs";
import * as shapes from "./shapes.mjs";

const OpenAI = load("openai");
const client = new OpenAI({ baseURL: v1, apiKey, maxRetries: 0 });

const refused = [
  ["temperature", { temperature: 3 }], ["temperature", { temperature: "1" }], ["max_tokens", { max_tokens: -1 }],
  ["max_tokens", { max_tokens: 0 }], ["n", { n: 9 }], ["top_k", { top_k: 1e20 }], ["seed", { seed: 0.5 }], ["stop", { stop: "" }],
  ["stop", { stop: Array(1e5).fill("x") }], ["logit_bias", { logit_bias: { "-1": 1 } }],
  ["logit_bias", { logit_bias: { 1000000000: 1 } }], ["tool_choice", { tool_choice: "required" }],
  ["response_format", { response_format: { type: "json_object" } }], ["functions", { functions: [{ name: "f" }] }],
  ["chat_template", { chat_template: "{{ 1 }}" }], ["chat_template_kwargs", { chat_template_kwargs: { x: 1 } }],
  ["messages", { messages: [] }], ["messages[0].role", { messages: [{ role: "robot", content: "" }] }],
  ["messages[0].content[0].type", { messages: [{ role: "user", content: [{ type: "image_url", image_url: { url: "data:" } }] }] }],
  ["temprature", { temprature: 1 }],
];

test("bad parameters are named", { skip }, async () => {
  for (const [param, fields] of refused) {
    await assert.rejects(client.chat.completions.create({ model, messages: question, ...greedy, ...fields }), (error) => {
      assert.ok(error instanceof OpenAI.BadRequestError, `${param}: ${error}`);
      assert.equal(error.param, param);
      assert.equal(error.type, "invalid_request_error");
      return true;
    });
  }
});

test("an unknown model", { skip }, async () => {
  const answer = await post("/v1/chat/completions", { model: "no-such-model", messages: question });
  assert.equal(answer.status, 404);
  assert.equal(shapes.error.parse(await answer.json()).error.code, "model_not_found");
});

test("a prompt beyond the context", { skip }, async () => {
  const answer = await post("/v1/completions", { model, prompt: Array(500000).fill(65) });
  assert.equal(answer.status, 400);
  assert.equal(shapes.error.parse(await answer.json()).error.code, "context_length_exceeded");
});

test("bad bodies", { skip }, async () => {
  const body = (text) => `{"model": ${JSON.stringify(model)}, "max_tokens": 1, "messages": [{"role": "user", "content": "${text}"}]}`;
  const bytes = (list) => Buffer.concat([Buffer.from(body("").slice(0, -4)), Buffer.from(list), Buffer.from('"}]}')]);
  const bad = ["", "{", "[]", "null", body("\\ud99c"), body("\\udc00\\ud800"), bytes([0xed, 0xa0, 0x80]), bytes([0xc4, 0xe3]),
    `{"x":${"[".repeat(10000)}`, `{"model": "a", "model": "b"}`];
  for (const text of bad) {
    const answer = await post("/v1/chat/completions", text);
    assert.equal(answer.status, 400, String(text).slice(0, 80));
    shapes.error.parse(await answer.json());
  }
  for (const text of ["\\ud83d\\ude0a", "\\u0000"])
    shapes.chatCompletion.parse(await (await post("/v1/chat/completions", body(text))).json());
});
