// POST /v1/chat/completions: the request.
#include <fmt/format.h>

#include <utility>

#include "server/answer_request.h"
#include "server/api.h"
#include "server/api_params.h"

namespace wader {
namespace {

// The part of a request that decides the prompt, as chat_request_from_json() reads it: of the
// body's keys only those, so that nothing else of a template can be reached.
void read_chat(const Json& body, FieldReader& fields, ChatRequest& chat) {
  if (!fields.ok()) return;
  if (!json_has(body, "messages")) return fields.fail("messages", "is missing");
  std::optional<ReasoningEffort> effort;
  if (json_has(body, "reasoning_effort"))
    effort = read_effort(body.at("reasoning_effort"), "reasoning_effort", fields);
  const auto nested = read_reasoning(body, fields);
  if (effort && nested && *effort != *nested)
    return fields.fail("reasoning.effort", "contradicts reasoning_effort");
  if (nested) effort = nested;

  Json prompt = Json::object();
  for (const char* key : {"messages", "tools", "enable_thinking", "chat_template_kwargs"})
    if (json_has(body, key)) prompt[key] = body.at(key);
  if (effort) {
    constexpr const char* kNames[] = {"low", "medium", "high", "off"};
    prompt["reasoning_effort"] = kNames[static_cast<size_t>(*effort)];
  }
  auto read = chat_request_from_json(prompt);
  if (!read) return fields.fail(render_error(read.error()));
  chat = std::move(read).value();
}

void read_logprobs(FieldReader& fields, AnswerRequest& request) {
  bool wanted = false;
  fields.read("logprobs", wanted);
  uint32_t top = 0;
  const bool has_top = fields.read_count("top_logprobs", 0, 20, top);
  // 0 asks for nothing, and some clients always send it.
  if (has_top && top > 0 && !wanted) fields.fail("top_logprobs", "needs logprobs to be true");
  if (wanted) request.top_logprobs = top;
}

void check_modalities(FieldReader& fields) {
  const Json* value = fields.find("modalities");
  if (value == nullptr) return;
  if (!value->is_array()) return fields.fail("modalities", "must be a list");
  for (size_t i = 0; i < value->size(); ++i) {
    if ((*value)[i] != "text") {
      return fields.fail(unsupported_field(fmt::format("modalities[{}]", i), "other than 'text'",
                                           "this server gives text only"));
    }
  }
}

}  // namespace

ApiResult<ChatCompletionRequest> parse_chat_completion(const Json& body, const ModelFacts& facts) {
  FieldReader fields(body);
  ChatCompletionRequest request;
  check_params(body, chat_params(), fields);
  read_model(fields, facts);
  read_chat(body, fields, request.chat);
  if (fields.ok()) read_stream(body, fields, request);
  read_temperature(fields, facts, request);
  read_sampling(fields, facts, request);
  if (!read_max_tokens("max_completion_tokens", fields, facts, request)) {
    read_max_tokens("max_tokens", fields, facts, request);
  } else {
    AnswerRequest unused;  // loses, but must be right
    read_max_tokens("max_tokens", fields, facts, unused);
  }
  read_logprobs(fields, request);
  if (fields.ok()) read_tool_use(fields, request.chat, request.parallel_tool_calls);
  if (json_has(body, "response_format"))
    check_text_format(body.at("response_format"), "response_format", fields);
  check_modalities(fields);
  check_store(fields);
  if (!fields.ok()) return fields.error();
  return request;
}

}  // namespace wader
