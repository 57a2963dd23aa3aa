// POST /v1/completions, /tokenize and /detokenize: the requests.
#include <fmt/format.h>

#include <utility>

#include "server/answer_request.h"
#include "server/api.h"
#include "server/api_params.h"

namespace wader {
namespace {

constexpr uint32_t kDefaultTokens = 16;  // as OpenAI's reference has it

bool read_ids(const Json& list, std::string_view path, uint32_t vocab_rows, FieldReader& fields,
              std::vector<TokenId>& ids) {
  for (size_t i = 0; i < list.size(); ++i) {
    const auto id = whole_number(list[i], 0, kMaxCount);
    if (!id || *id >= vocab_rows) {
      fields.fail(bad_field(fmt::format("{}[{}]", path, i),
                            fmt::format("must be a token id below {}", vocab_rows)));
      return false;
    }
    ids.push_back(static_cast<TokenId>(*id));
  }
  return true;
}

void read_prompt(FieldReader& fields, const ModelFacts& facts, CompletionRequest& request) {
  const Json* prompt = fields.find("prompt");
  if (prompt == nullptr) return fields.fail("prompt", "is missing");
  if (prompt->is_string()) {
    request.prompt_text = prompt->get<std::string>();
  } else if (!prompt->is_array()) {
    fields.fail("prompt", "must be a string or a list of token ids");
  } else if (prompt->empty()) {
    fields.fail("prompt", "must not be empty");
  } else if (const Json& first = prompt->front(); first.is_number()) {
    read_ids(*prompt, "prompt", facts.vocab_rows, fields, request.prompt_ids);
  } else if (prompt->size() > 1) {
    // Each prompt would take its own turns at the engine all the same.
    fields.fail(unsupported_field("prompt", "of several texts", "send a request for each"));
  } else if (first.is_string()) {
    request.prompt_text = first.get<std::string>();
  } else if (first.is_array()) {
    if (first.empty()) return fields.fail("prompt", "must not be empty");
    read_ids(first, "prompt[0]", facts.vocab_rows, fields, request.prompt_ids);
  } else {
    fields.fail("prompt", "must be a string or a list of token ids");
  }
}

}  // namespace

ApiResult<CompletionRequest> parse_completion(const Json& body, const ModelFacts& facts) {
  FieldReader fields(body);
  CompletionRequest request;
  check_params(body, completion_params(), fields);
  read_model(fields, facts);
  read_prompt(fields, facts, request);
  if (fields.ok()) read_stream(body, fields, request);
  read_temperature(fields, facts, request);
  read_sampling(fields, facts, request);
  if (!read_max_tokens("max_tokens", fields, facts, request)) request.max_tokens = kDefaultTokens;
  uint32_t top = 0;
  if (fields.read_count("logprobs", 0, 5, top)) request.top_logprobs = top;
  fields.read("echo", request.echo);
  if (request.echo && request.top_logprobs) {
    fields.fail(
        unsupported_field("logprobs", "together with echo", "the prompt's tokens have none here"));
  }
  uint32_t best_of = 1;
  if (fields.read_count("best_of", 1, kMaxCount, best_of) && best_of != 1)
    fields.fail(unsupported_field("best_of", "over 1", "ask for n and choose"));
  if (!fields.ok()) return fields.error();
  return request;
}

ApiResult<TokenizeRequest> parse_tokenize(const Json& body, const ModelFacts& facts) {
  FieldReader fields(body);
  TokenizeRequest request;
  check_params(body, tokenize_params(), fields);
  read_model(fields, facts);
  if (!fields.read("prompt", request.text)) fields.fail("prompt", "is missing");
  fields.read("parse_special", request.markup);
  if (!fields.ok()) return fields.error();
  return request;
}

ApiResult<std::vector<TokenId>> parse_detokenize(const Json& body, const ModelFacts& facts) {
  FieldReader fields(body);
  std::vector<TokenId> ids;
  check_params(body, detokenize_params(), fields);
  read_model(fields, facts);
  const Json* tokens = fields.find("tokens");
  if (tokens == nullptr) {
    fields.fail("tokens", "is missing");
  } else if (!tokens->is_array()) {
    fields.fail("tokens", "must be a list of token ids");
  } else if (fields.ok()) {
    read_ids(*tokens, "tokens", facts.vocab_rows, fields, ids);
  }
  if (!fields.ok()) return fields.error();
  return ids;
}

}  // namespace wader
