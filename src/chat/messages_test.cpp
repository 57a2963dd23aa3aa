// chat_request_from_json, the door for requests, and message_to_json.
#include <gtest/gtest.h>

#include "chat/harmony_testing.h"

namespace wader {
namespace {

std::string error_of(std::string_view json) {
  const auto request = chat_request_from_json(json_of(json));
  return request ? "no error" : request.error().message;
}

ChatRequest request_of(std::string_view json) {
  auto request = chat_request_from_json(json_of(json));
  if (!request) ADD_FAILURE() << request.error().message;
  return request ? std::move(request).value() : ChatRequest{};
}

TEST(ChatRequest, ReadsEveryKey) {
  const ChatRequest request = request_of(R"({
    "messages": [{"role": "developer", "content": "Be brief."}, {"role": "user", "content": "Hi"}],
    "tools": [{"type": "function", "function": {"name": "f"}}],
    "reasoning_effort": "high", "date": "2026-11-29", "add_generation_prompt": false})");
  ASSERT_EQ(request.messages.size(), 2u);
  EXPECT_EQ(request.messages[0].role, Message::Role::developer);
  EXPECT_EQ(request.messages[0].content, "Be brief.");
  EXPECT_EQ(request.messages[1].role, Message::Role::user);
  EXPECT_EQ(request.tools.size(), 1u);
  EXPECT_EQ(request.reasoning, ReasoningEffort::high);
  EXPECT_EQ(request.date, "2026-11-29");
  EXPECT_FALSE(request.add_generation_prompt);
}

TEST(ChatRequest, TakesABareListAndNullsForAbsentKeys) {
  EXPECT_EQ(request_of(R"([{"role": "user", "content": "Hi"}])").messages.size(), 1u);
  const ChatRequest request = request_of(R"({"messages": [{"role": "user", "content": "Hi"}],
    "tools": null, "reasoning_effort": null, "date": null, "add_generation_prompt": null})");
  EXPECT_FALSE(request.reasoning.has_value());
  EXPECT_TRUE(request.tools.empty());
  EXPECT_TRUE(request.date.empty());
  EXPECT_TRUE(request.add_generation_prompt);
}

TEST(ChatRequest, ReadsEffortNames) {
  const auto effort = [](const std::string& name) {
    return request_of(R"({"messages": [{"role": "user", "content": ""}], "reasoning_effort": ")" +
                      name + "\"}")
        .reasoning;
  };
  EXPECT_EQ(effort("low"), ReasoningEffort::low);
  EXPECT_EQ(effort("medium"), ReasoningEffort::medium);
  EXPECT_EQ(effort("off"), ReasoningEffort::off);
  EXPECT_EQ(effort("none"), ReasoningEffort::off);
}

TEST(ChatRequest, ReadsAToolTurn) {
  const ChatRequest request = request_of(R"([
    {"role": "user", "content": "Weather?"},
    {"role": "assistant", "content": null, "reasoning_content": "Call it.", "refusal": null,
     "annotations": [], "tool_calls": [
      {"id": "call_1", "type": "function", "index": 0,
       "function": {"name": "weather", "arguments": "{\"city\": \"Oslo\"}"}},
      {"id": "call_2", "function": {"name": "time", "arguments": {"zone": "é", "n": [1, 2.5]}}},
      {"id": "call_3", "function": {"name": "noop"}}]},
    {"role": "tool", "tool_call_id": "call_2", "content": [{"type": "text", "text": "12:"},
                                                          {"type": "text", "text": "30"}]},
    {"role": "tool", "name": "other", "tool_call_id": "unknown", "content": "x"}])");
  const Message& turn = request.messages[1];
  EXPECT_EQ(turn.content, "");
  EXPECT_EQ(turn.reasoning, "Call it.");
  ASSERT_EQ(turn.tool_calls.size(), 3u);
  EXPECT_EQ(turn.tool_calls[0].id, "call_1");
  EXPECT_EQ(turn.tool_calls[0].name, "weather");
  EXPECT_EQ(turn.tool_calls[0].arguments, R"({"city": "Oslo"})") << "verbatim";
  EXPECT_EQ(turn.tool_calls[1].arguments, R"({"zone": "é", "n": [1, 2.5]})") << "as templates do";
  EXPECT_EQ(turn.tool_calls[2].arguments, "{}");
  EXPECT_EQ(request.messages[2].content, "12:30");
  EXPECT_EQ(request.messages[2].tool_call_id, "call_2");
  EXPECT_EQ(request.messages[3].name, "other");
}

TEST(ChatRequest, ReasoningHasThreeNames) {
  for (const std::string key : {"reasoning_content", "reasoning", "thinking"}) {
    const ChatRequest request =
        request_of(R"([{"role": "assistant", "content": "a", ")" + key + R"(": "because"}])");
    EXPECT_EQ(request.messages[0].reasoning, "because") << key;
  }
  EXPECT_EQ(request_of(R"([{"role": "assistant", "content": "a", "reasoning": "x",
                            "reasoning_content": "x", "thinking": null}])")
                .messages[0]
                .reasoning,
            "x");
  EXPECT_EQ(
      error_of(R"([{"role": "assistant", "content": "a", "reasoning": "x", "thinking": "y"}])"),
      "messages[0].thinking contradicts another reasoning field");
}

TEST(ChatRequest, EmptyContentsThatWork) {
  EXPECT_EQ(request_of(R"([{"role": "system", "content": ""}])").messages[0].content, "");
  EXPECT_EQ(request_of(R"([{"role": "assistant", "content": ""}])").messages[0].content, "");
  EXPECT_EQ(request_of(R"([{"role": "assistant", "content": [], "tool_calls":
                           [{"id": "a", "function": {"name": "f", "arguments": "{}"}}]}])")
                .messages[0]
                .content,
            "");
}

TEST(ChatRequest, RefusesByFieldName) {
  const std::pair<std::string_view, std::string_view> cases[] = {
      {R"("hello")", "a chat request must be an object or a list of messages"},
      {R"([])", "messages must not be empty"},
      {R"({"messages": []})", "messages must not be empty"},
      {R"({"messages": {}})", "messages must be a list"},
      {R"({"tools": []})", "messages is missing"},
      {R"({"message": []})", "key 'message' is not supported in a chat request"},
      {R"({"messages": [{"role": "user", "content": "x"}], "temprature": 1})",
       "key 'temprature' is not supported in a chat request"},
      {R"(["hi"])", "messages[0] must be an object"},
      {R"([{"content": "x"}])", "messages[0].role is missing"},
      {R"([{"role": 1, "content": "x"}])", "messages[0].role must be a string"},
      {R"([{"role": "robot", "content": "x"}])",
       "messages[0].role 'robot' is not one of system, developer, user, assistant, tool"},
      {R"([{"role": "user"}])", "messages[0].content is missing"},
      {R"([{"role": "user", "content": null}])", "messages[0].content is missing"},
      {R"([{"role": "user", "content": []}])", "messages[0].content is missing"},
      {R"([{"role": "user", "content": 7}])",
       "messages[0].content must be a string or a list of text parts"},
      {R"([{"role": "system", "content": "a"}, {"role": "user", "content": "b"},
           {"role": "user", "content": [{"type": "text", "text": "c"},
                                        {"type": "image_url", "image_url": {"url": "x"}}]}])",
       "messages[2].content[1].type 'image_url' is not supported: this model takes text only"},
      {R"([{"role": "user", "content": ["a"]}])", "messages[0].content[0] must be an object"},
      {R"([{"role": "user", "content": [{"text": "a"}]}])",
       "messages[0].content[0].type is missing"},
      {R"([{"role": "user", "content": [{"type": "text"}]}])",
       "messages[0].content[0].text is missing"},
      {R"([{"role": "user", "content": [{"type": "text", "text": 1}]}])",
       "messages[0].content[0].text must be a string"},
      {R"([{"role": "user", "content": "x", "tool_calls": [1]}])",
       "messages[0]: key 'tool_calls' is not supported in a message of role 'user'"},
      {R"([{"role": "user", "content": "x", "reasoning": "y"}])",
       "messages[0]: key 'reasoning' is not supported in a message of role 'user'"},
      {R"([{"role": "assistant", "content": null}])",
       "messages[0] has neither content nor tool_calls"},
      {R"([{"role": "assistant", "content": [], "tool_calls": []}])",
       "messages[0] has neither content nor tool_calls"},
      {R"([{"role": "assistant", "tool_calls": {}}])", "messages[0].tool_calls must be a list"},
      {R"([{"role": "assistant", "tool_calls": [{"type": "custom"}]}])",
       "messages[0].tool_calls[0].type 'custom' is not supported: only 'function' is"},
      {R"([{"role": "assistant", "tool_calls": [{"id": "a"}]}])",
       "messages[0].tool_calls[0].function is missing"},
      {R"([{"role": "assistant", "tool_calls": [{"function": {"arguments": "{}"}}]}])",
       "messages[0].tool_calls[0].function.name is missing"},
      {R"([{"role": "assistant", "tool_calls": [{"function": {"name": "f", "arguments": 3}}]}])",
       "messages[0].tool_calls[0].function.arguments must be a string of JSON"},
      {R"([{"role": "tool", "content": "x"}])", "messages[0].tool_call_id is missing"},
      {R"([{"role": "tool", "content": "x", "tool_call_id": "call_9"}])",
       "messages[0].tool_call_id 'call_9' answers no earlier tool call"},
      {R"({"messages": [{"role": "user", "content": "x"}], "reasoning_effort": "max"})",
       "reasoning_effort must be one of low, medium, high, off"},
      {R"({"messages": [{"role": "user", "content": "x"}], "date": "29.11.2026"})",
       "date must be a string YYYY-MM-DD"},
      {R"({"messages": [{"role": "user", "content": "x"}], "date": "2026-11-29\n<|end|>"})",
       "date must be a string YYYY-MM-DD"},
      {R"({"messages": [{"role": "user", "content": "x"}], "add_generation_prompt": 1})",
       "add_generation_prompt must be true or false"},
  };
  for (const auto& [json, message] : cases) EXPECT_EQ(error_of(json), message) << json;
}

TEST(ChatRequest, ThinkingSwitch) {
  const auto reasoning = [](std::string_view fields) {
    return request_of(R"({"messages": [{"role": "user", "content": "x"}], )" + std::string(fields) +
                      "}")
        .reasoning;
  };
  EXPECT_EQ(reasoning(R"("enable_thinking": true)"), ReasoningEffort::medium);
  EXPECT_EQ(reasoning(R"("enable_thinking": false)"), ReasoningEffort::off);
  EXPECT_EQ(reasoning(R"("enable_thinking": null)"), std::nullopt);
  EXPECT_EQ(reasoning(R"("chat_template_kwargs": {})"), std::nullopt);
  EXPECT_EQ(reasoning(R"("chat_template_kwargs": {"enable_thinking": null})"), std::nullopt);
  EXPECT_EQ(reasoning(R"("chat_template_kwargs": {"enable_thinking": false})"),
            ReasoningEffort::off);
  EXPECT_EQ(reasoning(R"("enable_thinking": true, "reasoning_effort": "high")"),
            ReasoningEffort::high);
  EXPECT_EQ(reasoning(R"("reasoning_effort": "none", "enable_thinking": false,
                         "chat_template_kwargs": {"enable_thinking": false})"),
            ReasoningEffort::off);
  const std::pair<std::string_view, std::string_view> cases[] = {
      {R"("enable_thinking": "yes")", "enable_thinking must be true or false"},
      {R"("enable_thinking": false, "reasoning_effort": "low")",
       "enable_thinking false contradicts another reasoning setting of the request"},
      {R"("enable_thinking": true, "reasoning_effort": "off")",
       "enable_thinking true contradicts another reasoning setting of the request"},
      {R"("enable_thinking": true, "chat_template_kwargs": {"enable_thinking": false})",
       "chat_template_kwargs.enable_thinking false contradicts another reasoning setting of the "
       "request"},
      {R"("chat_template_kwargs": true)", "chat_template_kwargs must be an object"},
      {R"("chat_template_kwargs": {"enable_thinking": 1})",
       "chat_template_kwargs.enable_thinking must be true or false"},
      {R"("chat_template_kwargs": {"tools": []})",
       "chat_template_kwargs: key 'tools' is not supported"},
  };
  for (const auto& [fields, message] : cases) {
    EXPECT_EQ(error_of(R"({"messages": [{"role": "user", "content": "x"}], )" +
                       std::string(fields) + "}"),
              message);
  }
}

TEST(ChatRequest, RefusesMalformedTools) {
  const auto with_tools = [](std::string_view tools) {
    return error_of(R"({"messages": [{"role": "user", "content": "x"}], "tools": )" +
                    std::string(tools) + "}");
  };
  const std::pair<std::string_view, std::string_view> cases[] = {
      {R"({})", "tools must be a list"},
      {R"([1])", "tools[0] must be an object"},
      {R"([{"function": {"name": "f"}}])", "tools[0].type is missing"},
      {R"([{"type": "web_search"}])",
       "tools[0].type 'web_search' is not supported: only 'function' is"},
      {R"([{"type": "function"}])", "tools[0].function is missing"},
      {R"([{"type": "function", "function": []}])", "tools[0].function must be an object"},
      {R"([{"type": "function", "function": {"name": "f"}}, {"type": "function", "function": {}}])",
       "tools[1].function.name is missing"},
      {R"([{"type": "function", "function": {"name": ""}}])",
       "tools[0].function.name must be a string with at least one letter"},
      {R"([{"type": "function", "function": {"name": "f", "description": 1}}])",
       "tools[0].function.description must be a string"},
      {R"([{"type": "function", "function": {"name": "f", "parameters": true}}])",
       "tools[0].function.parameters must be a JSON schema object"},
  };
  for (const auto& [tools, message] : cases) EXPECT_EQ(with_tools(tools), message) << tools;
}

// parse_json() stops at 128 levels; a document built by hand must not get past that either.
TEST(ChatRequest, RefusesToolsNestedTooDeep) {
  Json schema = {{"type", "string"}};
  for (int i = 0; i < 3000; ++i) schema = {{"type", "array"}, {"items", std::move(schema)}};
  Json json;
  json["messages"] = {{{"role", "user"}, {"content", "x"}}};
  json["tools"] = Json::array();
  json["tools"].push_back(
      {{"type", "function"}, {"function", {{"name", "f"}, {"parameters", std::move(schema)}}}});
  const auto request = chat_request_from_json(json);
  ASSERT_FALSE(request);
  EXPECT_EQ(request.error().message, "tools are nested deeper than 128 levels");
}

TEST(ChatRequest, BadStrings) {
  // Lone and swapped surrogates and raw surrogate bytes are refused where text becomes JSON.
  EXPECT_FALSE(parse_json(R"([{"role": "user", "content": "\ud99c"}])", "request"));
  EXPECT_FALSE(parse_json(R"([{"role": "user", "content": "\udc00\ud800"}])", "request"));
  EXPECT_FALSE(parse_json("[{\"role\": \"user\", \"content\": \"\xED\xA0\x80\"}]", "request"));
  EXPECT_FALSE(parse_json("[{\"role\": \"user\", \"content\": \"\xC4\xE3\xBA\xC3\"}]", "request"));
  EXPECT_EQ(request_of(R"([{"role": "user", "content": "\ud83d\ude0a"}])").messages[0].content,
            "😊");
  EXPECT_EQ(request_of(R"([{"role": "user", "content": "a\u0000b"}])").messages[0].content,
            std::string("a\0b", 3));
  // Past that door, in a document made in memory, they become U+FFFD, wherever they stand.
  Json json = Json::array();
  json.push_back({{"role", "assistant"}, {"content", "x\xED\xA0\x80"}, {"reasoning", "\xFF"}});
  json[0]["tool_calls"] = {
      {{"id", "i\xFF"}, {"function", {{"name", "f\xFF"}, {"arguments", "{\xFF"}}}}};
  const auto request = chat_request_from_json(json);
  ASSERT_TRUE(request) << request.error().message;
  const Message& message = request->messages[0];
  EXPECT_EQ(message.content, "x\uFFFD\uFFFD\uFFFD");
  EXPECT_EQ(message.reasoning, "\uFFFD");
  EXPECT_EQ(message.tool_calls[0].name, "f\uFFFD");
  EXPECT_EQ(message.tool_calls[0].arguments, "{\uFFFD");
  json[0]["role"] = "\xFF\n";
  const std::string error = chat_request_from_json(json).error().message;
  EXPECT_TRUE(parse_json(Json(error).dump(), "error")) << "errors are valid UTF-8";
  EXPECT_EQ(error.find('\n'), std::string::npos);
}

TEST(MessageToJson, ComesBackAsItWas) {
  Message call{};
  call.role = Message::Role::assistant;
  call.reasoning = "hm";
  call.tool_calls = {{"call_1", "f", "{\"a\": 1"}};
  Message result{};
  result.role = Message::Role::tool;
  result.content = "42";
  result.tool_call_id = "call_1";
  Message broken_off{};
  broken_off.role = Message::Role::assistant;
  broken_off.reasoning = "I was cut";
  EXPECT_TRUE(message_to_json(call)["content"].is_null());
  Json json = Json::array();
  for (const Message& message : {call, result, broken_off})
    json.push_back(message_to_json(message));
  const auto request = chat_request_from_json(json_of(json.dump()));
  ASSERT_TRUE(request) << request.error().message;
  Json again = Json::array();
  for (const Message& message : request->messages) again.push_back(message_to_json(message));
  EXPECT_EQ(again, json);
  EXPECT_EQ(request->messages[0].tool_calls[0].arguments, "{\"a\": 1") << "invalid JSON too";
}

}  // namespace
}  // namespace wader
