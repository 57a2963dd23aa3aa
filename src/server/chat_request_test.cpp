// Requests of /v1/chat/completions, with those that other servers got wrong.
#include <fmt/format.h>
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include "server/api_testing.h"
#include "server/http.h"

namespace wader {
namespace {

using ::testing::ElementsAre;
using ::testing::HasSubstr;
using ::testing::Pair;

TEST(ChatRequest, AbsentFieldsAreTheModelsDefaults) {
  const auto request = chat_of(chat_with(""));
  EXPECT_FALSE(request.stream);
  EXPECT_FALSE(request.include_usage);
  EXPECT_EQ(request.n, 1u);
  EXPECT_EQ(request.max_tokens, 0u);
  EXPECT_EQ(request.sampling.temperature, 0.7);
  EXPECT_EQ(request.sampling.top_p, 0.8);
  EXPECT_EQ(request.sampling.top_k, 20u);
  EXPECT_FALSE(request.has_seed);
  EXPECT_FALSE(request.top_logprobs.has_value());
  EXPECT_TRUE(request.parallel_tool_calls);
  EXPECT_EQ(request.chat.date, "");
  ASSERT_EQ(request.chat.messages.size(), 1u);
  EXPECT_EQ(request.chat.messages[0].content, "Hi");
  EXPECT_FALSE(request.chat.reasoning.has_value());
}

TEST(ChatRequest, EveryField) {
  const auto request = chat_of(chat_with(R"(
    "stream": true, "stream_options": {"include_usage": true}, "max_tokens": 9, "stop": ["a", "b"],
    "n": 3, "seed": -7, "temperature": 0, "top_p": 0.5, "top_k": 40, "min_p": 0.05,
    "presence_penalty": -2, "frequency_penalty": 1.5, "repetition_penalty": 1.1,
    "logit_bias": {"0": -100, "999": 2.5}, "logprobs": true, "top_logprobs": 20,
    "tools": [{"type": "function", "function": {"name": "f", "parameters": {"type": "object"}}}],
    "tool_choice": "auto", "parallel_tool_calls": false, "reasoning_effort": "high",
    "response_format": {"type": "text"}, "modalities": ["text"], "store": false, "user": "u",
    "metadata": {"a": "b"}, "service_tier": "auto", "functions": [], "audio": null)"));
  EXPECT_TRUE(request.stream);
  EXPECT_TRUE(request.include_usage);
  EXPECT_EQ(request.max_tokens, 9u);
  EXPECT_THAT(request.stop, ElementsAre("a", "b"));
  EXPECT_EQ(request.n, 3u);
  EXPECT_TRUE(request.has_seed);
  EXPECT_EQ(request.sampling.seed, static_cast<uint64_t>(-7));
  EXPECT_EQ(request.sampling.temperature, 0);
  EXPECT_EQ(request.sampling.top_p, 0.5);
  EXPECT_EQ(request.sampling.top_k, 40u);
  EXPECT_EQ(request.sampling.min_p, 0.05);
  EXPECT_EQ(request.sampling.presence_penalty, -2);
  EXPECT_EQ(request.sampling.frequency_penalty, 1.5);
  EXPECT_EQ(request.sampling.repetition_penalty, 1.1);
  EXPECT_THAT(request.sampling.logit_bias, ElementsAre(Pair(0, -100.f), Pair(999, 2.5f)));
  EXPECT_EQ(request.top_logprobs, 20u);
  EXPECT_EQ(request.chat.tools.size(), 1u);
  EXPECT_FALSE(request.parallel_tool_calls);
  EXPECT_EQ(request.chat.reasoning, ReasoningEffort::high);
  EXPECT_TRUE(validate_sampling(request.sampling).ok());
}

TEST(ChatRequest, NullIsAbsent) {
  const std::string_view fields[] = {"stream",
                                     "stream_options",
                                     "max_tokens",
                                     "max_completion_tokens",
                                     "stop",
                                     "n",
                                     "seed",
                                     "temperature",
                                     "top_p",
                                     "top_k",
                                     "min_p",
                                     "presence_penalty",
                                     "logit_bias",
                                     "logprobs",
                                     "frequency_penalty",
                                     "repetition_penalty",
                                     "tools",
                                     "tool_choice",
                                     "top_logprobs",
                                     "parallel_tool_calls",
                                     "modalities",
                                     "enable_thinking",
                                     "reasoning_effort",
                                     "reasoning",
                                     "store",
                                     "verbosity",
                                     "response_format",
                                     "chat_template_kwargs",
                                     "function_call",
                                     "prediction",
                                     "web_search_options",
                                     "audio"};
  for (const std::string_view field : fields)
    EXPECT_EQ(chat_refusal(chat_with(fmt::format(R"("{}": null)", field))).param, "-") << field;
  EXPECT_EQ(chat_of(R"({"model": null, "messages": [{"role": "user", "content": ""}]})").n, 1u);
}

// Case A-04: what is no valid JSON or UTF-8 is refused the same way every time, without its bytes.
TEST(ChatRequest, BadEncodings) {
  const auto body = [](std::string_view text) {
    return fmt::format(R"({{"messages": [{{"role": "user", "content": "{}"}}]}})", text);
  };
  const std::string bad[] = {"", body(R"(\ud99c)"), body(R"(\udc00\ud800)"), body("\xED\xA0\x80"),
                             body("\xC4\xE3\xBA\xC3")};
  for (const std::string& text : bad) {
    const auto error = refused(parse_body(text));
    EXPECT_EQ(error.status, 400) << text;
    const std::string answer = error_response(error.status, error.message, error.param).body;
    EXPECT_TRUE(parse_json(answer, "answer").ok()) << answer;
    EXPECT_THAT(answer, Not(HasSubstr("\xC4\xE3")));
    EXPECT_THAT(answer, Not(HasSubstr("ud99c")));
  }
  EXPECT_EQ(chat_of(body(R"(\ud83d\ude0a)")).chat.messages[0].content, "\xF0\x9F\x98\x8A");
  EXPECT_EQ(chat_of(body(R"(a\u0000b)")).chat.messages[0].content, std::string("a\0b", 3));
  EXPECT_EQ(refused(parse_body("[]")).message, "the request's body must be a JSON object");
  EXPECT_EQ(refused(parse_body("{} {}")).status, 400);
  const std::string key(100000, 'k');
  const auto twice = refused(parse_body(fmt::format(R"({{"{}": 1, "{}": 2}})", key, key)));
  EXPECT_LT(twice.message.size(), 210u) << "no echo of what may be megabytes";
}

// The same in a tool call of history.
TEST(ChatRequest, BadEncodingsInHistory) {
  const auto body = [](std::string_view text) {
    return fmt::format(
        R"({{"messages": [{{"role": "user", "content": "x"}}, {{"role": "assistant", "tool_calls":
           [{{"id": "c", "type": "function", "function": {{"name": "f", "arguments": "{}"}}}}]}},
           {{"role": "tool", "tool_call_id": "c", "content": "y"}}]}})",
        text);
  };
  EXPECT_EQ(refused(parse_body(body(R"({\"a\": \"\ud99c\"})"))).status, 400);
  const auto request = chat_of(body(R"({\"a\": \"\ud83d\ude0a\"})"));
  EXPECT_EQ(request.chat.messages[1].tool_calls[0].arguments, "{\"a\": \"\xF0\x9F\x98\x8A\"}");
}

// Case B-05.
TEST(ChatRequest, NullEmptyAndListContents) {
  const auto with = [](std::string_view messages) {
    return fmt::format(R"({{"messages": {}}})", messages);
  };
  const std::string call =
      R"("tool_calls": [{"id": "c", "type": "function", "function": {"name": "f", "arguments": "{}"}}])";
  const auto turn = [&](std::string_view content) {
    return with(fmt::format(
        R"([{{"role": "user", "content": "x"}}, {{"role": "assistant"{}, {}}}])", content, call));
  };
  EXPECT_EQ(chat_of(turn(R"(, "content": null)")).chat.messages[1].content, "");
  EXPECT_EQ(chat_of(turn(R"(, "content": [])")).chat.messages[1].tool_calls.size(), 1u);
  EXPECT_EQ(chat_of(with(R"([{"role": "system", "content": ""}])")).chat.messages[0].content, "");
  EXPECT_EQ(chat_of(with(R"([{"role": "user", "content":
                [{"type": "text", "text": "a"}, {"type": "text", "text": "b"}]}])"))
                .chat.messages[0]
                .content,
            "ab");
  EXPECT_EQ(chat_of(with(R"([{"role": "developer", "content": "x"}])")).chat.messages[0].role,
            Message::Role::developer);

  const std::pair<std::string, std::string_view> bad[] = {
      {with(R"([{"role": "user", "content": "x"}, {"role": "assistant"}])"), "messages[1]"},
      {with("[]"), "messages"},
      {R"({"message": []})", "message"},
      {"{}", "messages"},
      {with(R"([{"role": "user", "content": []}])"), "messages[0].content"},
      {with(R"([{"role": "user", "content": [{"type": "text", "text": "a"},
               {"type": "image_url", "image_url": {"url": "data:"}}]}])"),
       "messages[0].content[1].type"},
      {with(R"([{"role": "robot", "content": "x"}])"), "messages[0].role"},
      {with(R"([{"role": "tool", "content": "x", "tool_call_id": "c"}])"),
       "messages[0].tool_call_id"},
      {with(R"("Hi")"), "messages"},
  };
  for (const auto& [text, param] : bad) {
    const auto error = chat_refusal(text);
    EXPECT_EQ(error.status, 400) << text;
    EXPECT_EQ(error.param, param) << text << ": " << error.message;
  }
}

// Case D-05.
TEST(ChatRequest, TokenLimits) {
  EXPECT_EQ(chat_of(chat_with(R"("max_completion_tokens": 5)")).max_tokens, 5u);
  EXPECT_EQ(chat_of(chat_with(R"("max_tokens": 5)")).max_tokens, 5u);
  EXPECT_EQ(chat_of(chat_with(R"("max_tokens": 9, "max_completion_tokens": 5)")).max_tokens, 5u);
  EXPECT_EQ(chat_of(chat_with(R"("max_tokens": 5, "max_completion_tokens": null)")).max_tokens, 5u);
  EXPECT_EQ(chat_of(chat_with(R"("max_tokens": null)")).max_tokens, 0u);
  EXPECT_EQ(chat_of(chat_with(R"("max_tokens": 5.0)")).max_tokens, 5u);
  EXPECT_EQ(chat_of(chat_with(R"("max_tokens": 1e9)")).max_tokens, 4096u) << "the context's";
  for (const char* value : {"0", "-1", "\"5\"", "5.5", "true", "[]", "1e10", "2147483648"}) {
    for (const char* key : {"max_tokens", "max_completion_tokens"}) {
      const auto error = chat_refusal(chat_with(fmt::format(R"("{}": {})", key, value)));
      EXPECT_EQ(error.status, 400);
      EXPECT_EQ(error.param, key) << value;
    }
  }
  EXPECT_EQ(chat_refusal(chat_with(R"("max_tokens": -1, "max_completion_tokens": 5)")).param,
            "max_tokens");
}

// Case G-02: each number with each hostile value is refused by name or in its range.
TEST(ChatRequest, HostileNumbers) {
  const std::string_view numbers[] = {"max_tokens",
                                      "max_completion_tokens",
                                      "n",
                                      "seed",
                                      "temperature",
                                      "top_p",
                                      "top_k",
                                      "min_p",
                                      "top_logprobs",
                                      "presence_penalty",
                                      "frequency_penalty",
                                      "repetition_penalty"};
  const std::string_view values[] = {"-1",
                                     "-2147483648",
                                     "2147483648",
                                     "9223372036854775808",
                                     "1e308",
                                     "-1e308",
                                     "0.5",
                                     "\"1\"",
                                     "true",
                                     "[1]",
                                     "{}",
                                     "-9223372036854775808",
                                     "18446744073709551616",
                                     "1000000000"};
  int taken = 0, named = 0;
  for (const auto number : numbers) {
    for (const auto value : values) {
      const auto body =
          body_of(chat_with(fmt::format(R"("logprobs": true, "{}": {})", number, value)));
      const auto result = parse_chat_completion(body, test_facts());
      if (const auto* error = std::get_if<ApiError>(&result)) {
        EXPECT_EQ(error->param, number) << value;
        EXPECT_EQ(error->status, 400);
        ++named;
        continue;
      }
      const auto& request = std::get<ChatCompletionRequest>(result);
      EXPECT_TRUE(validate_sampling(request.sampling).ok()) << number << ' ' << value;
      EXPECT_LE(request.max_tokens, 4096u);
      EXPECT_LE(request.n, 8u);
      EXPECT_LE(request.top_logprobs.value_or(0), 20u);
      EXPECT_LT(request.sampling.top_k, 1u << 31);
      ++taken;
    }
  }
  // seed 6, counts of a billion 3 (limits are the context's), and the real numbers −1 and 0.5 where
  // they lie in the range.
  EXPECT_EQ(taken, 6 + 3 + 8);
  EXPECT_EQ(taken + named, 12 * 14);
  EXPECT_FALSE(parse_json("{\"n\": NaN}", "body").ok());
  EXPECT_FALSE(parse_json("{\"n\": 1e400}", "body").ok()) << "no double";
}

TEST(ChatRequest, LogitBiasAndStop) {
  const std::pair<std::string_view, std::string_view> bad[] = {
      {R"("logit_bias": {"-1": 1})", "logit_bias"},
      {R"("logit_bias": {"1000000000": 1})", "logit_bias"},
      {R"("logit_bias": {"1000": 1})", "logit_bias"},
      {R"("logit_bias": {"01": 1})", "logit_bias"},
      {R"("logit_bias": {"": 1})", "logit_bias"},
      {R"("logit_bias": {"99999999999999999999": 1})", "logit_bias"},
      {R"("logit_bias": {"5": 101})", "logit_bias.5"},
      {R"("logit_bias": {"5": "1"})", "logit_bias.5"},
      {R"("logit_bias": {"5": null})", "logit_bias.5"},
      {R"("logit_bias": [5])", "logit_bias"},
      {R"("stop": "")", "stop"},
      {R"("stop": ["a", ""])", "stop[1]"},
      {R"("stop": [1])", "stop[0]"},
      {R"("stop": 1)", "stop"},
      {R"("top_logprobs": 2)", "top_logprobs"},
      {R"("logprobs": 2)", "logprobs"},
  };
  for (const auto& [fields, param] : bad)
    EXPECT_EQ(chat_refusal(chat_with(fields)).param, param) << fields;
  Json body = body_of(chat_with(""));
  body["stop"] = std::string(513, 'x');
  EXPECT_EQ(refused(parse_chat_completion(body, test_facts())).param, "stop");
  body["stop"] = Json(std::vector<bool>(1000000));
  EXPECT_EQ(refused(parse_chat_completion(body, test_facts())).param, "stop");
  EXPECT_EQ(chat_of(chat_with(R"("stop": "\n")")).stop.at(0), "\n");
  EXPECT_TRUE(chat_of(chat_with(R"("stop": [])")).stop.empty());
  EXPECT_EQ(chat_of(chat_with(R"("logprobs": true)")).top_logprobs, 0u);
  EXPECT_FALSE(chat_of(chat_with(R"("logprobs": false, "top_logprobs": 0)")).top_logprobs);
}

// Case D-07: a seed leaves the temperature alone, and 0 needs none.
TEST(ChatRequest, SeedAndTemperature) {
  EXPECT_EQ(chat_of(chat_with(R"("seed": 42, "temperature": 1)")).sampling.temperature, 1);
  const auto greedy = chat_of(chat_with(R"("temperature": 0)"));
  EXPECT_EQ(greedy.sampling.temperature, 0);
  EXPECT_FALSE(greedy.has_seed);
  EXPECT_TRUE(chat_of(chat_with(R"("seed": 0)")).has_seed);
  EXPECT_EQ(chat_of(chat_with(R"("seed": 18446744073709551615)")).sampling.seed, UINT64_MAX);
}

// Case G-04: of a template's variables none but enable_thinking is a request's to set.
TEST(ChatRequest, TemplatesAreOutOfReach) {
  const std::pair<std::string_view, std::string_view> bad[] = {
      {R"("chat_template": "{{ 1 }}")", "chat_template"},
      {R"("chat_template_kwargs": {"chat_template": "x"})", "chat_template_kwargs"},
      {R"("chat_template_kwargs": {"add_generation_prompt": false})", "chat_template_kwargs"},
      {R"("chat_template_kwargs": {"enable_thinking": 1})", "chat_template_kwargs.enable_thinking"},
      {R"("chat_template_kwargs": [])", "chat_template_kwargs"},
      {R"("add_generation_prompt": false)", "add_generation_prompt"},
      {R"("date": "2024-01-01")", "date"},
      {R"("continue_final_message": true)", "continue_final_message"},
  };
  for (const auto& [fields, param] : bad)
    EXPECT_EQ(chat_refusal(chat_with(fields)).param, param) << fields;
}

// Case B-04, as far as a request goes.
TEST(ChatRequest, Reasoning) {
  const auto effort = [](std::string_view fields) {
    return chat_of(chat_with(fields)).chat.reasoning;
  };
  EXPECT_EQ(effort(R"("chat_template_kwargs": {"enable_thinking": false})"), ReasoningEffort::off);
  EXPECT_EQ(effort(R"("enable_thinking": true)"), ReasoningEffort::medium);
  EXPECT_EQ(effort(R"("reasoning_effort": "none")"), ReasoningEffort::off);
  EXPECT_EQ(effort(R"("reasoning_effort": "minimal")"), ReasoningEffort::low);
  EXPECT_EQ(effort(R"("reasoning_effort": "xhigh")"), ReasoningEffort::high);
  EXPECT_EQ(effort(R"("reasoning": {"effort": "low", "summary": "auto"})"), ReasoningEffort::low);
  EXPECT_EQ(effort(R"("reasoning": {"effort": "low"}, "reasoning_effort": "low")"),
            ReasoningEffort::low);
  const std::pair<std::string_view, std::string_view> bad[] = {
      {R"("reasoning_effort": "much")", "reasoning_effort"},
      {R"("reasoning_effort": 1)", "reasoning_effort"},
      {R"("reasoning": "low")", "reasoning"},
      {R"("reasoning": {"effort": "x"})", "reasoning.effort"},
      {R"("reasoning": {"max_tokens": 5})", "reasoning"},
      {R"("reasoning": {"effort": "low"}, "reasoning_effort": "high")", "reasoning.effort"},
      {R"("reasoning_effort": "none", "enable_thinking": true)", "enable_thinking"},
  };
  for (const auto& [fields, param] : bad)
    EXPECT_EQ(chat_refusal(chat_with(fields)).param, param) << fields;
}

TEST(ChatRequest, Tools) {
  const std::string tools =
      R"("tools": [{"type": "function", "function": {"name": "f"}}], "tool_choice": )";
  EXPECT_EQ(chat_of(chat_with(tools + R"("auto")")).chat.tools.size(), 1u);
  EXPECT_EQ(chat_of(chat_with(tools + R"("none")")).chat.tools.size(), 0u);
  for (const char* choice :
       {R"("required")", R"({"type": "function", "function": {"name": "f"}})", R"("any")", "1"}) {
    EXPECT_EQ(chat_refusal(chat_with(tools + choice)).param, "tool_choice") << choice;
  }
  EXPECT_EQ(chat_refusal(chat_with(tools + R"("required")")).message,
            "tool_choice 'required' is not supported: nothing can make the model call yet; 'auto' "
            "lets it");
  EXPECT_EQ(chat_refusal(chat_with(R"("tools": [{"type": "function"}])")).param,
            "tools[0].function");
  EXPECT_EQ(chat_refusal(chat_with(R"("tools": [{"type": "custom"}])")).param, "tools[0].type");
}

TEST(ChatRequest, WhatIsNotSupportedIsNamed) {
  const std::pair<std::string_view, std::string_view> bad[] = {
      {R"("response_format": {"type": "json_object"})", "response_format"},
      {R"("response_format": {"type": "json_schema", "json_schema": {}})", "response_format"},
      {R"("response_format": "text")", "response_format"},
      {R"("audio": {"voice": "x"})", "audio"},
      {R"("modalities": ["text", "audio"])", "modalities[1]"},
      {R"("functions": [{"name": "f"}])", "functions"},
      {R"("function_call": "auto")", "function_call"},
      {R"("prediction": {"type": "content"})", "prediction"},
      {R"("web_search_options": {"search_context_size": "low"})", "web_search_options"},
      {R"("store": true)", "store"},
      {R"("temprature": 1)", "temprature"},
      {R"("stream": "yes")", "stream"},
      {R"("stream_options": {"include_usage": 1})", "stream_options.include_usage"},
      {R"("stream_options": true)", "stream_options"},
      {R"("é": 1)", "\\u00e9"},
  };
  for (const auto& [fields, param] : bad) {
    const auto error = chat_refusal(chat_with(fields));
    EXPECT_EQ(error.status, 400);
    EXPECT_EQ(error.param, param) << error.message;
  }
  EXPECT_EQ(chat_refusal(chat_with(R"("temprature": 1)")).message,
            "Unrecognized request argument supplied: 'temprature'");
  EXPECT_EQ(chat_refusal(chat_with(R"("audio": {"voice": "x"})")).message,
            "audio is not supported: this server gives text only");
}

TEST(ChatRequest, Models) {
  EXPECT_EQ(chat_of(R"({"model": "gpt-4o", "messages": [{"role": "user", "content": ""}]})").n, 1u);
  EXPECT_EQ(chat_of(R"({"messages": [{"role": "user", "content": ""}]})").n, 1u);
  const auto error =
      chat_refusal(R"({"model": "o1", "messages": [{"role": "user", "content": ""}]})");
  EXPECT_EQ(error.status, 404);
  EXPECT_EQ(error.param, "model");
  EXPECT_EQ(error.code, "model_not_found");
  EXPECT_EQ(error.message, "The model 'o1' does not exist: this server has 'demo'");
}

TEST(ChatRequest, PromptLength) {
  EXPECT_FALSE(check_prompt_length(4095, "messages", test_facts()));
  EXPECT_EQ(check_prompt_length(4096, "messages", test_facts())->code, "context_length_exceeded");
  EXPECT_EQ(check_prompt_length(0, "prompt", test_facts())->param, "prompt");
}

TEST(ChatRequest, ErrorsOfTheRendererNameTheirField) {
  const Error error{ErrorCode::invalid_argument, "messages[2]: comes too late"};
  EXPECT_EQ(render_error(error).param, "messages[2]");
  const auto moved = render_error(error, {"instructions", "input[0]", "input[1]"});
  EXPECT_EQ(moved.param, "input[1]");
  EXPECT_EQ(moved.message, "input[1]: comes too late");
  EXPECT_EQ(render_error(Error{ErrorCode::unsupported, "internal limit"}).param, "");
}

}  // namespace
}  // namespace wader
