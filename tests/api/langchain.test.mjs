// @langchain/openai: chat completions, the responses endpoint, and the plain completions of OpenAI.
import assert from "node:assert/strict";
import test from "node:test";
import { apiKey, collect, load, model, skip, v1, weather } from "./client.mjs";

const { ChatOpenAI, OpenAI } = load("@langchain/openai");
const { AIMessage, HumanMessage, SystemMessage, ToolMessage } = load("@langchain/core/messages");
const common = { model, apiKey, temperature: 0, maxTokens: 24, maxRetries: 0, configuration: { baseURL: v1 } };
const tools = [{ type: "function", function: weather }];

// Of a text or of a list of blocks.
const textOf = (content) => typeof content === "string"
  ? content : content.filter((block) => block.type === "text").map((block) => block.text).join("");

for (const useResponsesApi of [false, true]) {
  const name = useResponsesApi ? "responses" : "chat";
  const chat = new ChatOpenAI({ ...common, useResponsesApi, ...(useResponsesApi && { zdrEnabled: true }) });
  const input = [new SystemMessage("Be brief."), new HumanMessage("Say something.")];

  test(`${name}: whole and streamed`, { skip }, async () => {
    const whole = await chat.invoke(input);
    const chunks = await collect(await chat.stream(input));
    const sum = chunks.reduce((a, b) => a.concat(b));
    assert.equal(textOf(sum.content), textOf(whole.content));
    assert.ok(whole.usage_metadata.input_tokens > 0);
    assert.equal(sum.usage_metadata.output_tokens, whole.usage_metadata.output_tokens);
    assert.equal(whole.usage_metadata.total_tokens, whole.usage_metadata.input_tokens + whole.usage_metadata.output_tokens);
  });

  test(`${name}: tools, and a second turn`, { skip }, async () => {
    const bound = chat.bindTools(tools);
    const question = new HumanMessage("Weather in Rome?");
    let turn = await bound.invoke([question]);
    if (turn.tool_calls.length === 0)
      turn = new AIMessage({ content: "", tool_calls: [{ id: "call_1", name: weather.name, args: { city: "Rome" } }] });
    const results = turn.tool_calls.map(({ id }) => new ToolMessage({ tool_call_id: id, content: "sunny" }));
    const answer = await bound.invoke([question, turn, ...results]);
    assert.equal(typeof textOf(answer.content), "string");
  });

  test(`${name}: abort`, { skip }, async () => {
    const controller = new AbortController();
    const long = new ChatOpenAI({ ...common, useResponsesApi, maxTokens: 2000 });
    try {
      for await (const chunk of await long.stream(input, { signal: controller.signal })) {
        assert.ok(chunk);
        controller.abort();
      }
    } catch (error) {
      assert.match(String(error), /abort/i);
    }
    assert.ok(await chat.invoke(input));
  });

  test(`${name}: errors`, { skip }, async () => {
    await assert.rejects(new ChatOpenAI({ ...common, useResponsesApi, temperature: 5 }).invoke(input), (error) => {
      assert.equal(error.status, 400);
      assert.equal(error.param, "temperature");
      return true;
    });
  });
}

test("chat: logprobs", { skip }, async () => {
  const answer = await new ChatOpenAI({ ...common, logprobs: true, topLogprobs: 2 }).invoke("Say something.");
  for (const entry of answer.response_metadata.logprobs.content) assert.equal(entry.top_logprobs.length, 2);
});

test("completions", { skip }, async () => {
  const llm = new OpenAI(common);
  const whole = await llm.invoke("Once upon a time");
  assert.equal((await collect(await llm.stream("Once upon a time"))).join(""), whole);
});
