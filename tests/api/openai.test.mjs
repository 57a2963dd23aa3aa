// The npm package openai: chat completions and completions.
import assert from "node:assert/strict";
import test from "node:test";
import { apiKey, assertTokensMake, collect, events, greedy, load, model, post, question, skip, v1, weather } from "./client.mjs";
import * as shapes from "./shapes.mjs";

const OpenAI = load("openai");
const client = new OpenAI({ baseURL: v1, apiKey, maxRetries: 0 });
const chat = (more) => client.chat.completions.create({ model, messages: question, ...greedy, ...more });

// What the chunks of choice `index` add up to, in the form of the whole answer.
function assembled(chunks, index = 0) {
  const message = { content: "", reasoning: "", calls: [], logprobs: [], finish: null, role: 0 };
  for (const chunk of chunks) {
    for (const choice of chunk.choices.filter((c) => c.index === index)) {
      assert.equal(message.finish, null, "nothing comes after the finish");
      const { delta } = choice;
      if (delta.role) ++message.role;
      message.content += delta.content ?? "";
      message.reasoning += delta.reasoning_content ?? "";
      for (const call of delta.tool_calls ?? []) {
        if (call.id) message.calls[call.index] = { name: call.function.name, arguments: "" };
        message.calls[call.index].arguments += call.function.arguments;
      }
      message.logprobs.push(...(choice.logprobs?.content ?? []));
      message.finish = choice.finish_reason;
    }
  }
  assert.equal(message.role, 1, "the role comes once");
  return message;
}

function assertSame(whole, streamed) {
  assert.equal(streamed.content, whole.message.content ?? "");
  assert.equal(streamed.reasoning, whole.message.reasoning_content ?? "");
  assert.deepEqual(streamed.calls, (whole.message.tool_calls ?? []).map((call) => call.function));
  assert.deepEqual(streamed.logprobs, whole.logprobs?.content ?? []);
  assert.equal(streamed.finish, whole.finish_reason);
}

test("models", { skip }, async () => {
  const list = await collect(client.models.list());
  assert.ok(list.some((entry) => entry.id === model && entry.object === "model"));
  assert.equal((await client.models.retrieve(model)).id, model);
  await assert.rejects(client.models.retrieve("no-such-model"), OpenAI.NotFoundError);
});

test("chat, whole and streamed", { skip }, async () => {
  const whole = shapes.chatCompletion.parse(await chat());
  assert.equal(whole.choices.length, 1);
  assert.ok(whole.usage.completion_tokens <= greedy.max_tokens);
  if (whole.choices[0].finish_reason === "length") assert.equal(whole.usage.completion_tokens, greedy.max_tokens);
  const chunks = (await collect(await chat({ stream: true }))).map((chunk) => shapes.chatChunk.parse(chunk));
  assertSame(whole.choices[0], assembled(chunks));
});

test("a stream on the wire", { skip }, async () => {
  const body = { model, messages: question, ...greedy, stream: true };
  for (const stream_options of [undefined, null, { include_usage: false }]) {
    const list = await events(await post("/v1/chat/completions", { ...body, stream_options }));
    assert.equal(list.at(-1).data, "[DONE]");
    for (const { data } of list.slice(0, -1)) shapes.chatChunk.parse(data);
  }
  const list = await events(await post("/v1/chat/completions", { ...body, stream_options: { include_usage: true } }));
  assert.equal(list.pop().data, "[DONE]");
  const chunks = list.map(({ data }) => shapes.chatChunkWithUsage.parse(data));
  assert.deepEqual(chunks.at(-1).choices, []);
  assert.equal(chunks.filter((chunk) => chunk.choices.length === 0).length, 1);
  const whole = await chat();
  const counts = ({ prompt_tokens, completion_tokens, total_tokens }) => [prompt_tokens, completion_tokens, total_tokens];
  assert.deepEqual(counts(chunks.at(-1).usage), counts(whole.usage));
});

test("the client's own helper for streams", { skip }, async () => {
  const runner = client.chat.completions.stream({ model, messages: question, ...greedy, stream_options: { include_usage: true } });
  const final = await runner.finalChatCompletion();
  const whole = await chat();
  assert.equal(final.choices[0].message.content ?? "", whole.choices[0].message.content ?? "");
  assert.equal((await runner.totalUsage()).completion_tokens, whole.usage.completion_tokens);
});

test("several choices", { skip }, async () => {
  const sampled = { n: 3, seed: 7, temperature: 1 };
  const whole = shapes.chatCompletion.parse(await chat(sampled));
  assert.deepEqual(whole.choices.map((choice) => choice.index), [0, 1, 2]);
  assert.deepEqual((await chat(sampled)).choices, whole.choices, "one seed, one answer");
  const chunks = await collect(await chat({ ...sampled, stream: true }));
  for (const choice of whole.choices) assertSame(choice, assembled(chunks, choice.index));
  assert.ok(whole.usage.completion_tokens <= 3 * greedy.max_tokens);
});

test("logprobs", { skip }, async () => {
  const { choices: [choice] } = shapes.chatCompletion.parse(await chat({ logprobs: true, top_logprobs: 3 }));
  assertTokensMake(choice.message.content ?? "", choice.logprobs.content);
  for (const entry of choice.logprobs.content) {
    assert.equal(entry.top_logprobs.length, 3);
    assert.equal(entry.top_logprobs[0].logprob, entry.logprob, "greedy takes the most likely");
  }
  const chunks = await collect(await chat({ logprobs: true, top_logprobs: 3, stream: true }));
  assertSame(choice, assembled(chunks));
});

test("stop strings", { skip }, async () => {
  const text = (await chat()).choices[0].message.content ?? "";
  const characters = Array.from(text);
  if (characters.length < 4) return;
  const stop = characters.slice(2, 4).join("");
  const whole = shapes.chatCompletion.parse(await chat({ stop }));
  assert.equal(whole.choices[0].message.content, text.slice(0, text.indexOf(stop)));
  assert.equal(whole.choices[0].finish_reason, "stop");
  assertSame(whole.choices[0], assembled(await collect(await chat({ stop, stream: true }))));
  assert.equal((await chat({ stop: [`${characters.slice(-3).join("")}\u0001`] })).choices[0].message.content, text, "nothing held is lost");
});

test("tools, and a second turn", { skip }, async () => {
  const tools = [{ type: "function", function: weather }];
  const first = shapes.chatCompletion.parse(await chat({ tools, tool_choice: "auto" }));
  assertSame(first.choices[0], assembled(await collect(await chat({ tools, tool_choice: "auto", stream: true }))));
  const calls = first.choices[0].message.tool_calls;
  assert.equal(first.choices[0].finish_reason === "tool_calls", calls !== undefined && first.choices[0].finish_reason !== "length");
  // A small model may not call; its turn is then written for it.
  const turn = calls ? first.choices[0].message : {
    role: "assistant", content: null,
    tool_calls: [{ id: "call_1", type: "function", function: { name: weather.name, arguments: '{"city": "Rome"}' } }],
  };
  const results = turn.tool_calls.map(({ id }) => ({ role: "tool", tool_call_id: id, content: "sunny" }));
  shapes.chatCompletion.parse(await chat({ tools, messages: [...question, turn, ...results] }));
  shapes.chatCompletion.parse(await chat({ tools, tool_choice: "none" }));
});

test("an answer can be sent back", { skip }, async () => {
  const first = await chat();
  const second = shapes.chatCompletion.parse(await chat({
    messages: [...question, first.choices[0].message, { role: "user", content: "Go on." }],
  }));
  assert.ok(second.usage.prompt_tokens > first.usage.prompt_tokens);
});

test("completions", { skip }, async () => {
  const ask = (more) => client.completions.create({ model, prompt: "Once upon a time", ...greedy, ...more });
  const whole = shapes.completion.parse(await ask());
  const chunks = (await collect(await ask({ stream: true }))).map((chunk) => shapes.completionChunk.parse(chunk));
  assert.equal(chunks.map((chunk) => chunk.choices[0].text).join(""), whole.choices[0].text);
  assert.equal(chunks.at(-1).choices[0].finish_reason, whole.choices[0].finish_reason);
  const echoed = await ask({ echo: true });
  assert.equal(echoed.choices[0].text, `Once upon a time${whole.choices[0].text}`);
  const { logprobs } = shapes.completion.parse(await ask({ logprobs: 2 })).choices[0];
  assert.ok(logprobs.tokens.length <= greedy.max_tokens);
  assert.equal(logprobs.text_offset.length, logprobs.tokens.length);
  if (!whole.choices[0].text.includes("\uFFFD") && !logprobs.tokens.some((token) => token.startsWith("bytes:")))
    assert.equal(logprobs.tokens.join(""), whole.choices[0].text);
});

test("abort", { skip }, async () => {
  const stream = await chat({ stream: true, max_tokens: 2000 });
  for await (const chunk of stream) {
    shapes.chatChunk.parse(chunk);
    break;  // the client closes the connection
  }
  const controller = new AbortController();
  const pending = client.chat.completions.create(
    { model, messages: question, temperature: 0, max_tokens: 2000 }, { signal: controller.signal });
  setTimeout(() => controller.abort(), 20);
  await pending.then(() => {}, (error) => assert.ok(error instanceof OpenAI.APIUserAbortError, String(error)));
  shapes.chatCompletion.parse(await chat());
});
