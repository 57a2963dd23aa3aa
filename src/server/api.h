// OpenAI's API as data: requests checked and turned into what the engine understands, results
// turned into bodies and stream events. Pure: no network, no engine, no clock. Source: the OpenAI
// API reference (chat completions, completions, responses), 2025.
#pragma once

#include <cstdint>
#include <optional>
#include <string>
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
  std::string id;           // the name it is served under
  SamplingParams defaults;  // of generation_config.json
  uint32_t context = 0, vocab_rows = 0;
  int64_t created_unix_s = 0;
};

// Everything that the three endpoints have in common.
struct AnswerRequest {
  bool stream = false, include_usage = false;
  uint32_t n = 1;
  SamplingParams sampling;
  bool has_seed = false;
  uint32_t max_tokens = 0;  // 0: to the context's end
  std::vector<std::string> stop;
  std::optional<uint32_t> top_logprobs;
};
struct ChatCompletionRequest : AnswerRequest {
  ChatRequest chat;  // date left empty: the endpoint fills it
};
struct CompletionRequest : AnswerRequest {
  std::string prompt_text;
  std::vector<TokenId> prompt_ids;  // instead, where the client sent ids
  bool echo = false;
};
struct ResponsesRequest : AnswerRequest {
  ChatRequest chat;
  Json as_sent;  // fields that the response repeats: instructions, metadata, tools, …
};

ApiResult<ChatCompletionRequest> parse_chat_completion(const Json& body, const ModelFacts& facts);
ApiResult<CompletionRequest> parse_completion(const Json& body, const ModelFacts& facts);
ApiResult<ResponsesRequest> parse_responses(const Json& body, const ModelFacts& facts);

}  // namespace wader
