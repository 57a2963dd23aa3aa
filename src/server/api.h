// OpenAI's API as data: requests checked and turned into what the engine understands, results
// turned into bodies and stream events. Pure: no network, no engine, no clock. Source: the OpenAI
// API reference (chat completions, completions, responses), 2025.
#pragma once

#include <cstdint>
#include <optional>
#include <string>
#include <string_view>
#include <utility>
#include <variant>
#include <vector>

#include "base/json.h"
#include "chat/chat.h"
#include "engine/engine.h"
#include "sampler/sampler.h"
#include "server/generation.h"

namespace wader {

struct ApiError {
  int status = 400;
  std::string message, param, code;
};
template <typename T>
using ApiResult = std::variant<T, ApiError>;

// What requests are checked against.
struct ModelFacts {
  std::string id;                    // the name it is served under
  std::vector<std::string> aliases;  // other names that requests may use
  SamplingParams defaults;           // of generation_config.json
  uint32_t context = 0, vocab_rows = 0;
  int64_t created_unix_s = 0;
};

// Everything that the three endpoints have in common.
struct AnswerRequest {
  bool stream = false, include_usage = false;
  uint32_t n = 1;
  SamplingParams sampling;
  bool has_seed = false;          // else the endpoint draws one
  uint32_t max_tokens = 0;        // 0: to the context's end
  std::vector<std::string> stop;  // none empty
  std::optional<uint32_t> top_logprobs;
};
struct ChatCompletionRequest : AnswerRequest {
  ChatRequest chat;                 // date left empty: the endpoint fills it
  bool parallel_tool_calls = true;  // false: the answer ends with its first call
};
struct CompletionRequest : AnswerRequest {
  std::string prompt_text;
  std::vector<TokenId> prompt_ids;  // instead, where the client sent ids
  bool echo = false;
};
struct ResponsesRequest : AnswerRequest {
  ChatRequest chat;
  bool parallel_tool_calls = true;
  bool returns_reasoning = false;   // the client sends reasoning items back if they can be
  std::vector<std::string> origin;  // of chat.messages: "input[3]"
  Json as_sent;  // fields that the response repeats: instructions, metadata, tools, …
};
struct TokenizeRequest {
  std::string text;
  bool markup = false;  // control tokens in the text are recognised
};

// The body as a JSON object. Its errors repeat nothing of the body but the name of a key.
ApiResult<Json> parse_body(std::string_view text);

// `body` is an object. What is unknown, out of range or not supported is refused by name.
ApiResult<ChatCompletionRequest> parse_chat_completion(const Json& body, const ModelFacts& facts);
ApiResult<CompletionRequest> parse_completion(const Json& body, const ModelFacts& facts);
ApiResult<ResponsesRequest> parse_responses(const Json& body, const ModelFacts& facts);
ApiResult<TokenizeRequest> parse_tokenize(const Json& body, const ModelFacts& facts);
ApiResult<std::vector<TokenId>> parse_detokenize(const Json& body, const ModelFacts& facts);

// A body read by one of these.
template <typename T, typename... Facts>
ApiResult<T> read_request(std::string_view body,
                          ApiResult<T> (*parse)(const Json&, const Facts&...),
                          const Facts&... facts) {
  ApiResult<Json> json = parse_body(body);
  if (auto* error = std::get_if<ApiError>(&json)) return std::move(*error);
  return parse(std::get<Json>(json), facts...);
}

// Of a request that ChatFormat::render() refuses. `origin` as in ResponsesRequest.
ApiError render_error(const Error& error, const std::vector<std::string>& origin = {});

// A prompt that leaves no room for one token of an answer.
std::optional<ApiError> check_prompt_length(size_t prompt_tokens, std::string_view param,
                                            const ModelFacts& facts);

}  // namespace wader
