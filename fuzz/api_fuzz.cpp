// Bodies of the API's requests: any bytes are refused with an error that can be shown, or give a
// request that keeps its promises to the engine.
#include <cstddef>
#include <cstdint>
#include <string_view>

#include "base/check.h"
#include "server/answer_json.h"
#include "server/api.h"
#include "tokenizer/utf8.h"

namespace {

using namespace wader;

const ModelFacts& facts() {
  static const ModelFacts facts = [] {
    ModelFacts made;
    made.id = "demo";
    made.context = 4096;
    made.vocab_rows = 1000;
    return made;
  }();
  return facts;
}

void check_error(const ApiError& error) {
  CHECK(error.status >= 400 && error.status < 500);
  CHECK(!error.message.empty());
  const std::string event = sse_error(error);
  CHECK(replace_invalid_utf8(event) == event);
}

void check_request(const AnswerRequest& request) {
  CHECK(validate_sampling(request.sampling).ok());
  CHECK(request.n >= 1 && request.n <= 8);
  CHECK(request.max_tokens <= facts().context);
  CHECK(request.top_logprobs.value_or(0) <= 20);
  for (const std::string& stop : request.stop) CHECK(!stop.empty());
  for (const auto& [id, bias] : request.sampling.logit_bias)
    CHECK(id >= 0 && id < 1000 && bias >= -100 && bias <= 100);
}

template <typename T>
const T* check(const ApiResult<T>& result) {
  if (const auto* error = std::get_if<ApiError>(&result)) {
    check_error(*error);
    return nullptr;
  }
  return &std::get<T>(result);
}

}  // namespace

extern "C" int LLVMFuzzerTestOneInput(const uint8_t* data, size_t size) {
  const auto parsed = parse_body(std::string_view(reinterpret_cast<const char*>(data), size));
  const Json* body = check(parsed);
  if (body == nullptr) return 0;
  const auto chat = parse_chat_completion(*body, facts());
  if (const auto* request = check(chat)) {
    check_request(*request);
    CHECK(!request->chat.messages.empty());
  }
  const auto completion = parse_completion(*body, facts());
  if (const auto* request = check(completion)) {
    check_request(*request);
    for (const TokenId id : request->prompt_ids) CHECK(id >= 0 && id < 1000);
  }
  const auto responses = parse_responses(*body, facts());
  if (const auto* request = check(responses)) {
    check_request(*request);
    CHECK(request->origin.size() == request->chat.messages.size());
  }
  const auto tokenize = parse_tokenize(*body, facts());
  const auto detokenize = parse_detokenize(*body, facts());
  check(tokenize);
  check(detokenize);
  return 0;
}
