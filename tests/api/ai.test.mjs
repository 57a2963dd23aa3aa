// The AI SDK by its two providers: @ai-sdk/openai-compatible (chat completions) and @ai-sdk/openai (responses).
import assert from "node:assert/strict";
import test from "node:test";
import { apiKey, collect, load, model, skip, v1, weather } from "./client.mjs";

const { APICallError, generateText, jsonSchema, streamText, tool } = load("ai");
const { createOpenAICompatible } = load("@ai-sdk/openai-compatible");
const { createOpenAI } = load("@ai-sdk/openai");

// Nothing is stored, so earlier items must come with each request: store false makes the SDK send them.
const stateless = { openai: { store: false } };
const providers = {
  "openai-compatible": createOpenAICompatible({ name: "wader", baseURL: v1, apiKey, includeUsage: true })(model),
  "openai, responses": createOpenAI({ baseURL: v1, apiKey })(model),
  "openai, chat": createOpenAI({ baseURL: v1, apiKey }).chat(model),
};
const tools = {
  [weather.name]: tool({
    description: weather.description,
    inputSchema: jsonSchema(weather.parameters),
  }),
};
const common = { temperature: 0, maxOutputTokens: 24, maxRetries: 0, providerOptions: stateless };

for (const [name, languageModel] of Object.entries(providers)) {
  const ask = { ...common, model: languageModel, prompt: "Say something." };

  test(`${name}: text, whole and streamed`, { skip }, async () => {
    const whole = await generateText(ask);
    const stream = streamText({ ...ask, onError: ({ error }) => assert.fail(error) });
    const parts = await collect(stream.fullStream);
    assert.ok(!parts.some((part) => part.type === "error"));
    const text = parts.filter((part) => part.type === "text-delta").map((part) => part.text).join("");
    assert.equal(text, whole.text);
    const reasoning = parts.filter((part) => part.type === "reasoning-delta").map((part) => part.text).join("");
    assert.equal(reasoning, whole.reasoningText ?? "");
    assert.equal(await stream.finishReason, whole.finishReason);
    assert.ok(["stop", "length", "tool-calls"].includes(whole.finishReason));
    assert.equal((await stream.usage).outputTokens, whole.usage.outputTokens);
    assert.ok(whole.usage.inputTokens > 0);
  });

  test(`${name}: tools, and a second turn`, { skip }, async () => {
    const messages = [{ role: "user", content: "Weather in Rome?" }];
    const first = await generateText({ ...common, model: languageModel, messages, tools });
    let calls = first.toolCalls.filter((call) => !call.invalid);
    let turn = first.response.messages;
    if (calls.length === 0) {
      calls = [{ toolCallId: "call_1", toolName: weather.name, input: { city: "Rome" } }];
      turn = [{ role: "assistant", content: [{ type: "tool-call", ...calls[0] }] }];
    }
    const content = calls.map(({ toolCallId, toolName }) => (
      { type: "tool-result", toolCallId, toolName, output: { type: "text", value: "sunny" } }));
    const second = await generateText({
      ...common, model: languageModel, tools, messages: [...messages, ...turn, { role: "tool", content }],
    });
    assert.equal(typeof second.text, "string");
    assert.ok(second.usage.inputTokens > first.usage.inputTokens);
  });

  test(`${name}: a conversation goes on`, { skip }, async () => {
    const first = await generateText(ask);
    if (first.text === "") return;
    const messages = [{ role: "user", content: ask.prompt }, ...first.response.messages, { role: "user", content: "Go on." }];
    const { prompt, ...rest } = ask;
    const second = await generateText({ ...rest, messages });
    assert.ok(second.usage.inputTokens > first.usage.inputTokens);
  });

  test(`${name}: abort`, { skip }, async () => {
    const controller = new AbortController();
    const stream = streamText({ ...ask, maxOutputTokens: 2000, abortSignal: controller.signal, onError: () => {} });
    for await (const part of stream.fullStream) {
      if (["text-delta", "reasoning-delta", "abort", "finish"].includes(part.type)) break;
    }
    controller.abort();
    assert.equal(typeof (await generateText(ask)).text, "string");
  });

  test(`${name}: errors`, { skip }, async () => {
    await assert.rejects(generateText({ ...ask, temperature: 5 }), (error) => {
      assert.ok(APICallError.isInstance(error), String(error));
      assert.equal(error.statusCode, 400);
      assert.match(error.message, /temperature/);
      assert.equal(error.isRetryable, false);
      return true;
    });
  });
}
