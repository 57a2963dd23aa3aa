// Requests of /v1/responses: items as messages, and what a server without a store must refuse.
#include <fmt/format.h>
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include "server/api_testing.h"

namespace wader {
namespace {

using ::testing::ElementsAre;
using ::testing::HasSubstr;

Json messages_of(std::string_view text) {
  Json list = Json::array();
  for (const Message& message : responses_of(text).chat.messages)
    list.push_back(message_to_json(message));
  return list;
}

TEST(ResponsesRequest, TextAndInstructions) {
  EXPECT_EQ(messages_of(R"({"input": "Hi", "instructions": "Be brief."})").dump(),
            R"([{"role":"system","content":"Be brief."},{"role":"user","content":"Hi"}])");
}

// A conversation with reasoning, text, two calls and their results, as clients send it back.
TEST(ResponsesRequest, ItemsBecomeMessages) {
  const auto request = responses_of(R"({"input": [
    {"role": "developer", "content": "Short."},
    {"role": "user", "content": [{"type": "input_text", "text": "We"}, {"type": "input_text",
      "text": "ather?"}]},
    {"type": "reasoning", "id": "rs_1", "summary": [{"type": "summary_text",
      "text": "Look"}, {"type": "summary_text", "text": "up"}], "encrypted_content": "x"},
    {"type": "message", "id": "msg_1", "role": "assistant", "status": "completed",
      "content": [{"type": "output_text", "text": "Wait.", "annotations": []}]},
    {"type": "function_call", "id": "fc_1", "call_id": "call_1", "name": "f",
      "arguments": "{\"a\":1}", "status": "completed"},
    {"type": "function_call", "call_id": "call_2", "name": "g", "arguments": ""},
    {"type": "function_call_output", "call_id": "call_2", "output": [{"type": "input_text",
      "text": "two"}]},
    {"type": "function_call_output", "call_id": "call_1", "output": "one"},
    {"role": "assistant", "content": "First."},
    {"role": "assistant", "content": "Second."},
    {"type": "reasoning", "summary": []},
    {"role": "user", "content": "Thanks"},
    {"type": "reasoning", "content": [{"type": "reasoning_text", "text": "cut off"}], "summary": []}]})");
  Json list = Json::array();
  for (const Message& message : request.chat.messages) list.push_back(message_to_json(message));
  const Json expected = body_of(R"({"m": [
    {"role": "developer", "content": "Short."},
    {"role": "user", "content": "Weather?"},
    {"role": "assistant", "content": "Wait.", "reasoning_content": "Look\n\nup", "tool_calls": [
      {"id": "call_1", "type": "function", "function": {"name": "f", "arguments": "{\"a\":1}"}},
      {"id": "call_2", "type": "function", "function": {"name": "g", "arguments": ""}}]},
    {"role": "tool", "content": "two", "tool_call_id": "call_2"},
    {"role": "tool", "content": "one", "tool_call_id": "call_1"},
    {"role": "assistant", "content": "First."},
    {"role": "assistant", "content": "Second."},
    {"role": "user", "content": "Thanks"}]})")
                            .at("m");
  EXPECT_EQ(list.dump(1), expected.dump(1));
  EXPECT_THAT(request.origin, ElementsAre("input[0]", "input[1]", "input[2]", "input[6]",
                                          "input[7]", "input[8]", "input[9]", "input[11]"));
}

TEST(ResponsesRequest, BadItemsAreNamed) {
  const std::pair<std::string_view, std::string_view> bad[] = {
      {"{}", "input"},
      {R"({"input": null})", "input"},
      {R"({"input": []})", "input"},
      {R"({"input": 5})", "input"},
      {R"({"input": [5]})", "input[0]"},
      {R"({"input": [{"content": "x"}]})", "input[0].role"},
      {R"({"input": [{"role": "tool", "content": "x"}]})", "input[0].role"},
      {R"({"input": [{"role": "user"}]})", "input[0].content"},
      {R"({"input": [{"role": "user", "content": 1}]})", "input[0].content"},
      {R"({"input": [{"role": "user", "content": [{"text": "x"}]}]})", "input[0].content[0].type"},
      {R"({"input": [{"role": "user", "content": [{"type": "input_text"}]}]})",
       "input[0].content[0].text"},
      {R"({"input": [{"role": "user", "content": [{"type": "input_image"}]}]})",
       "input[0].content[0].type"},
      {R"({"input": [{"type": "item_reference", "id": "msg_1"}]})", "input[0].type"},
      {R"({"input": [{"type": "web_search_call"}]})", "input[0].type"},
      {R"({"input": [{"type": 1}]})", "input[0].type"},
      {R"({"input": [{"type": "function_call", "name": "f", "arguments": ""}]})",
       "input[0].call_id"},
      {R"({"input": [{"type": "function_call", "call_id": "c", "arguments": ""}]})",
       "input[0].name"},
      {R"({"input": [{"type": "function_call", "call_id": "c", "name": "f"}]})",
       "input[0].arguments"},
      {R"({"input": [{"type": "function_call_output", "call_id": "c", "output": "x"}]})",
       "input[0].call_id"},
      {R"({"input": [{"type": "reasoning", "summary": "x"}]})", "input[0].summary"},
      {R"({"input": [{"type": "reasoning", "summary": [{}]}]})", "input[0].summary[0].text"},
      {R"({"input": "x", "instructions": 1})", "instructions"},
  };
  for (const auto& [text, param] : bad) {
    const auto error = responses_refusal(text);
    EXPECT_EQ(error.status, 400) << text;
    EXPECT_EQ(error.param, param) << error.message;
  }
  EXPECT_THAT(responses_refusal(R"({"input": [{"type": "item_reference", "id": "m"}]})").message,
              HasSubstr("store false"));
}

TEST(ResponsesRequest, Fields) {
  const auto request = responses_of(responses_with(R"(
    "stream": true, "max_output_tokens": 5, "temperature": 0, "top_p": 0.5, "top_logprobs": 3,
    "tools": [{"type": "function", "name": "f", "description": "F.", "parameters": {"type": "object"},
      "strict": true}],
    "reasoning": {"effort": "low", "summary": "auto"}, "text": {"format": {"type": "text"},
      "verbosity": "low"},
    "include": ["reasoning.encrypted_content", "web_search_call.action.sources"], "store": false,
    "truncation": "disabled", "metadata": {"k": "v"}, "parallel_tool_calls": false, "background": false,
    "previous_response_id": null, "prompt_cache_key": "k", "service_tier": "auto")"));
  EXPECT_TRUE(request.stream);
  EXPECT_EQ(request.max_tokens, 5u);
  EXPECT_EQ(request.sampling.temperature, 0);
  EXPECT_EQ(request.sampling.top_k, 20u) << "the model's default";
  EXPECT_EQ(request.top_logprobs, 3u);
  EXPECT_EQ(request.chat.reasoning, ReasoningEffort::low);
  EXPECT_TRUE(request.returns_reasoning);
  EXPECT_FALSE(request.parallel_tool_calls);
  EXPECT_EQ(request.chat.tools.dump(),
            R"([{"type":"function","function":{"name":"f","description":"F.","parameters":)"
            R"({"type":"object"}}}])");
  EXPECT_EQ(request.as_sent.dump(),
            R"({"instructions":null,"max_output_tokens":5,"metadata":{"k":"v"},)"
            R"("parallel_tool_calls":false,"previous_response_id":null,)"
            R"("reasoning":{"effort":"low","summary":"auto"},"store":false,"temperature":0.0,)"
            R"("text":{"format":{"type":"text"}},"tool_choice":"auto",)"
            R"("tools":[{"type":"function","name":"f","description":"F.",)"
            R"("parameters":{"type":"object"},"strict":true}],"top_logprobs":3,"top_p":0.5,)"
            R"("truncation":"disabled"})");
  EXPECT_EQ(
      responses_of(responses_with(R"("include": ["message.output_text.logprobs"])")).top_logprobs,
      0u);
  EXPECT_FALSE(responses_of(responses_with(R"("top_logprobs": 0)")).top_logprobs);
  EXPECT_TRUE(responses_of(responses_with(R"("store": false)")).returns_reasoning);
  EXPECT_FALSE(responses_of(responses_with(R"("store": null)")).returns_reasoning);
}

TEST(ResponsesRequest, WhatIsNotSupportedIsNamed) {
  const std::pair<std::string_view, std::string_view> bad[] = {
      {R"("previous_response_id": "resp_1")", "previous_response_id"},
      {R"("conversation": "conv_1")", "conversation"},
      {R"("store": true)", "store"},
      {R"("background": true)", "background"},
      {R"("truncation": "auto")", "truncation"},
      {R"("prompt": {"id": "x"})", "prompt"},
      {R"("text": {"format": {"type": "json_schema"}})", "text.format"},
      {R"("text": {"x": 1})", "text"},
      {R"("text": "x")", "text"},
      {R"("tools": [{"type": "web_search"}])", "tools[0].type"},
      {R"("tools": [{"type": "function"}])", "tools[0].name"},
      {R"("tools": [{"type": "function", "name": "f", "parameters": 1}])", "tools[0].parameters"},
      {R"("tools": {})", "tools"},
      {R"("tools": [1])", "tools[0]"},
      {R"("tool_choice": "required")", "tool_choice"},
      {R"("include": "x")", "include"},
      {R"("include": [1])", "include[0]"},
      {R"("metadata": {"a": 1})", "metadata"},
      {R"("max_output_tokens": -1)", "max_output_tokens"},
      {R"("top_logprobs": 21)", "top_logprobs"},
      {R"("temperature": 2.1)", "temperature"},
      {R"("messages": [])", "messages"},
      {R"("reasoning": {"effort": 5})", "reasoning.effort"},
  };
  for (const auto& [fields, param] : bad) {
    const auto error = responses_refusal(responses_with(fields));
    EXPECT_EQ(error.status, 400) << fields;
    EXPECT_EQ(error.param, param) << error.message;
  }
}

}  // namespace
}  // namespace wader
