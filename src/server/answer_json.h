// What the bodies of all answering endpoints share: identity, usage, errors, server-sent events.
#pragma once

#include <cstdint>
#include <string>
#include <string_view>
#include <vector>

#include "base/json.h"
#include "server/answer.h"
#include "server/api.h"
#include "server/generation.h"

namespace wader {

// What stays the same in all chunks of an answer.
struct AnswerHead {
  std::string id;  // "chatcmpl-…", "cmpl-…", "resp_…": unique, chosen by the endpoint
  int64_t created_unix_s = 0;
  std::string model;
};

// Of all choices of a request together. Their prompt is one: it counts once, and what the second
// choice finds in the state was computed for the first.
class AnswerUsage {
 public:
  void add(const GenerationTimings& timings, const Answer& answer);

  Json chat() const;       // prompt_tokens, completion_tokens, total_tokens, …_details
  Json responses() const;  // input_tokens, output_tokens, …
  Json timings() const;    // ours, beside usage

 private:
  uint32_t choices_ = 0;
  GenerationTimings sum_;
  uint64_t completion_tokens_ = 0, reasoning_tokens_ = 0;
};

// The body of a whole chat or text completion.
Json completion_body(const AnswerHead& head, std::string_view object, Json choices,
                     const AnswerUsage& usage);

// The events of a streamed one. Chat and text differ in their choices alone.
class ChunkStream {
 public:
  // "" unless include_usage asks. `choices` is [], as OpenAI has it.
  std::string usage(const AnswerUsage& usage) const;

 protected:
  // `request` may go; what is needed of it is kept.
  ChunkStream(AnswerHead head, std::string_view object, const AnswerRequest& request);
  std::string event(Json choice) const;
  bool has_logprobs() const { return logprobs_; }

 private:
  AnswerHead head_;
  std::string_view object_;  // a literal
  bool include_usage_, logprobs_;
};

// [{token, logprob, bytes, top_logprobs: [{token, logprob, bytes}]}]
Json logprobs_json(const std::vector<LogprobEntry>& entries);
// −9999 for what is less, as OpenAI writes −infinity, which JSON cannot.
double finite_logprob(float logprob);

// "data: …" and a blank line.
std::string sse_data(const Json& json);
// With "event: …", as the responses endpoint has it.
std::string sse_event(std::string_view type, const Json& json);
constexpr std::string_view kSseDone = "data: [DONE]\n\n";

// An error in the midst of a stream: clients of chat and completions throw on it. It is the last
// event, without [DONE], which would say that the answer is complete.
std::string sse_error(const ApiError& error);

}  // namespace wader
