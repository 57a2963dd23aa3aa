// /v1/responses by the npm package openai: every event is of its type, and they tell the same as the whole response.
import assert from "node:assert/strict";
import test from "node:test";
import { apiKey, assertTokensMake, events, load, model, post, skip, v1, weather } from "./client.mjs";
import * as shapes from "./shapes.mjs";

const OpenAI = load("openai");
const client = new OpenAI({ baseURL: v1, apiKey, maxRetries: 0 });
const greedy = { temperature: 0, max_output_tokens: 24 };
const tools = [{ type: "function", strict: false, ...weather }];
const ask = (more) => client.responses.create({ model, input: "Say something.", ...greedy, ...more });

// Without what differs from one response to the next.
function comparable(output) {
  return output.map((item) => ({ ...item, id: "", call_id: "" }));
}

// The client adds output_text, which is no field of the wire.
function parsed(response) {
  const { output_text, _request_id, ...rest } = response;
  return shapes.response.parse(rest);
}

test("whole and streamed", { skip }, async () => {
  const answer = await ask();
  const whole = parsed(answer);
  assert.equal(typeof answer.output_text, "string");
  const list = await events(await post("/v1/responses", { model, input: "Say something.", ...greedy, stream: true }));
  const texts = [];
  list.forEach(({ event, data }, i) => {
    shapes.responseEvent.parse(data);
    assert.equal(event, data.type);
    assert.equal(data.sequence_number, i);
    if (data.type.endsWith(".delta")) texts[data.output_index] = (texts[data.output_index] ?? "") + data.delta;
  });
  const last = list.at(-1).data.response;
  assert.deepEqual(list.slice(0, 2).map(({ event }) => event), ["response.created", "response.in_progress"]);
  assert.equal(list.at(-1).event, `response.${last.status}`);
  assert.deepEqual(comparable(last.output), comparable(whole.output));
  last.output.forEach((item, i) => {
    const text = { message: () => item.content[0].text, reasoning: () => item.summary[0].text, function_call: () => item.arguments };
    assert.equal(text[item.type](), texts[i] ?? "");
  });
  if (last.status === "incomplete") assert.equal(last.usage.output_tokens, greedy.max_output_tokens);
});

test("the client's own helper for streams", { skip }, async () => {
  const stream = client.responses.stream({ model, input: "Say something.", ...greedy });
  for await (const event of stream) assert.ok(event.type);
  assert.deepEqual(comparable((await stream.finalResponse()).output.map(({ parsed_arguments, ...item }) => item))
    .map((item) => item.type), comparable((await ask()).output).map((item) => item.type));
});

test("logprobs", { skip }, async () => {
  const whole = parsed(await ask({ include: ["message.output_text.logprobs"], top_logprobs: 2 }));
  for (const item of whole.output.filter((entry) => entry.type === "message"))
    for (const part of item.content) assertTokensMake(part.text, part.logprobs);
});

test("tools, and a second turn", { skip }, async () => {
  const input = [{ role: "user", content: "Weather in Rome?" }];
  const first = parsed(await ask({ input, tools, include: ["reasoning.encrypted_content"], store: false }));
  let calls = first.output.filter((item) => item.type === "function_call");
  let turn = first.output;
  if (calls.length === 0) {
    calls = [{ type: "function_call", call_id: "call_1", name: weather.name, arguments: '{"city": "Rome"}' }];
    turn = [...turn, ...calls];
  }
  const results = calls.map(({ call_id }) => ({ type: "function_call_output", call_id, output: "sunny" }));
  const second = parsed(await ask({ input: [...input, ...turn, ...results], tools, instructions: "Be brief." }));
  assert.equal(second.instructions, "Be brief.");
  assert.ok(second.usage.input_tokens > first.usage.input_tokens);
});

test("what needs a store is refused", { skip }, async () => {
  for (const fields of [{ previous_response_id: "resp_1" }, { store: true }, { background: true }, { conversation: "conv_1" }]) {
    await assert.rejects(ask(fields), (error) => {
      assert.ok(error instanceof OpenAI.BadRequestError);
      assert.equal(error.param, Object.keys(fields)[0]);
      return true;
    });
  }
  await assert.rejects(ask({ input: [{ type: "item_reference", id: "msg_1" }] }), /input\[0\]\.type/);
});

test("abort", { skip }, async () => {
  const stream = await ask({ stream: true, max_output_tokens: 2000 });
  for await (const event of stream) if (event.type.endsWith(".delta")) break;
  parsed(await ask());
});
