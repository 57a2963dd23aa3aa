// Shared by the tests of the API: requests from text, and what a refusal names.
#pragma once

#include <gtest/gtest.h>

#include <string>
#include <string_view>
#include <utility>
#include <variant>

#include "server/api.h"

namespace wader {

inline ModelFacts test_facts() {
  ModelFacts facts;
  facts.id = "demo";
  facts.aliases = {"gpt-4o"};
  facts.defaults.temperature = 0.7;
  facts.defaults.top_p = 0.8;
  facts.defaults.top_k = 20;
  facts.context = 4096;
  facts.vocab_rows = 1000;
  facts.created_unix_s = 1700000000;
  return facts;
}

inline Json body_of(std::string_view text) {
  auto parsed = parse_body(text);
  if (const auto* error = std::get_if<ApiError>(&parsed)) {
    ADD_FAILURE() << error->message << " in " << text;
    return Json::object();
  }
  return std::get<Json>(std::move(parsed));
}

// The request, which must be right.
template <typename T>
T accepted(ApiResult<T> result) {
  if (const auto* error = std::get_if<ApiError>(&result)) {
    ADD_FAILURE() << error->param << ": " << error->message;
    return T();
  }
  return std::get<T>(std::move(result));
}

// The error, which must be one whose message is fit to be shown. `param` "-": accepted.
template <typename T>
ApiError refused(const ApiResult<T>& result) {
  const auto* error = std::get_if<ApiError>(&result);
  if (error == nullptr) return {200, "accepted", "-", ""};
  EXPECT_FALSE(error->message.empty());
  EXPECT_NE(error->message.back(), '.') << error->message;
  return *error;
}

inline ChatCompletionRequest chat_of(std::string_view text) {
  return accepted(parse_chat_completion(body_of(text), test_facts()));
}
inline ApiError chat_refusal(std::string_view text) {
  return refused(parse_chat_completion(body_of(text), test_facts()));
}
// A smallest request with more fields: R"("n": 2)".
inline std::string chat_with(std::string_view fields) {
  std::string text = R"({"model": "demo", "messages": [{"role": "user", "content": "Hi"}])";
  if (!fields.empty()) text.append(", ").append(fields);
  return text + "}";
}
inline std::string completion_with(std::string_view fields) {
  std::string text = R"({"model": "demo", "prompt": "Hi")";
  if (!fields.empty()) text.append(", ").append(fields);
  return text + "}";
}
inline CompletionRequest completion_of(std::string_view text) {
  return accepted(parse_completion(body_of(text), test_facts()));
}
inline ApiError completion_refusal(std::string_view text) {
  return refused(parse_completion(body_of(text), test_facts()));
}
inline std::string responses_with(std::string_view fields) {
  std::string text = R"({"model": "demo", "input": "Hi")";
  if (!fields.empty()) text.append(", ").append(fields);
  return text + "}";
}
inline ResponsesRequest responses_of(std::string_view text) {
  return accepted(parse_responses(body_of(text), test_facts()));
}
inline ApiError responses_refusal(std::string_view text) {
  return refused(parse_responses(body_of(text), test_facts()));
}

}  // namespace wader
