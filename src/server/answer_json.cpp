#include "server/answer_json.h"

#include <algorithm>
#include <utility>

#include "server/http.h"
#include "server/sse.h"
#include "tokenizer/utf8.h"

namespace wader {
namespace {

Json token_json(const std::string& bytes, float logprob) {
  Json list = Json::array();
  for (const char c : bytes) list.push_back(static_cast<uint8_t>(c));
  return {{"token", replace_invalid_utf8(bytes)},
          {"logprob", finite_logprob(logprob)},
          {"bytes", std::move(list)}};
}

// What bodies and chunks begin with.
Json identified(const AnswerHead& head, std::string_view object, Json choices) {
  return {{"id", head.id},
          {"object", object},
          {"created", head.created_unix_s},
          {"model", head.model},
          {"choices", std::move(choices)}};
}

}  // namespace

void AnswerUsage::add(const GenerationTimings& timings, const Answer& answer) {
  if (choices_++ == 0) {
    sum_.prompt_tokens = timings.prompt_tokens;
    sum_.reused_tokens = timings.reused_tokens;
  }
  sum_.queue_seconds = std::max(sum_.queue_seconds, timings.queue_seconds);
  sum_.prefill_seconds += timings.prefill_seconds;
  sum_.decode_seconds += timings.decode_seconds;
  sum_.bytes_read += timings.bytes_read;
  sum_.hit_rate += timings.hit_rate;
  completion_tokens_ += answer.tokens;
  reasoning_tokens_ += answer.reasoning_tokens;
}

Json AnswerUsage::chat() const {
  return {{"prompt_tokens", sum_.prompt_tokens},
          {"completion_tokens", completion_tokens_},
          {"total_tokens", sum_.prompt_tokens + completion_tokens_},
          {"prompt_tokens_details", {{"cached_tokens", sum_.reused_tokens}}},
          {"completion_tokens_details", {{"reasoning_tokens", reasoning_tokens_}}}};
}

Json AnswerUsage::responses() const {
  return {{"input_tokens", sum_.prompt_tokens},
          {"input_tokens_details", {{"cached_tokens", sum_.reused_tokens}}},
          {"output_tokens", completion_tokens_},
          {"output_tokens_details", {{"reasoning_tokens", reasoning_tokens_}}},
          {"total_tokens", sum_.prompt_tokens + completion_tokens_}};
}

Json AnswerUsage::timings() const {
  return {{"queue_seconds", sum_.queue_seconds},
          {"prefill_seconds", sum_.prefill_seconds},
          {"decode_seconds", sum_.decode_seconds},
          {"bytes_read", sum_.bytes_read},
          {"hit_rate", choices_ == 0 ? 0 : sum_.hit_rate / choices_}};
}

Json completion_body(const AnswerHead& head, std::string_view object, Json choices,
                     const AnswerUsage& usage) {
  Json json = identified(head, object, std::move(choices));
  json["usage"] = usage.chat();
  json["timings"] = usage.timings();
  return json;
}

ChunkStream::ChunkStream(AnswerHead head, std::string_view object, const AnswerRequest& request)
    : head_(std::move(head)),
      object_(object),
      include_usage_(request.include_usage),
      logprobs_(request.top_logprobs.has_value()) {}

std::string ChunkStream::event(Json choice) const {
  Json json = identified(head_, object_, Json::array({std::move(choice)}));
  if (include_usage_) json["usage"] = nullptr;
  return sse_data(json);
}

std::string ChunkStream::usage(const AnswerUsage& usage) const {
  if (!include_usage_) return {};
  return sse_data(completion_body(head_, object_, Json::array(), usage));
}

double finite_logprob(float logprob) {
  return logprob > -9999 ? logprob : -9999;
}

Json logprobs_json(const std::vector<LogprobEntry>& entries) {
  Json list = Json::array();
  for (const LogprobEntry& entry : entries) {
    Json token = token_json(entry.bytes, entry.logprob);
    token["top_logprobs"] = Json::array();
    for (const auto& [bytes, logprob] : entry.top)
      token["top_logprobs"].push_back(token_json(bytes, logprob));
    list.push_back(std::move(token));
  }
  return list;
}

std::string sse_data(const Json& json) {
  return sse_event(std::string_view(json_text(json)));
}

std::string sse_event(std::string_view type, const Json& json) {
  return sse_event(std::string_view(json_text(json)), type);
}

std::string sse_error(const ApiError& error) {
  std::string text = "data: ";
  text += error_response(error.status, error.message, error.param, error.code).body;
  return text + "\n\n";
}

}  // namespace wader
