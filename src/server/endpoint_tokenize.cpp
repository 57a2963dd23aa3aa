// POST /tokenize, /detokenize
#include "server/service.h"

namespace wader {
namespace {

// A word takes up to 40 bytes of memory per byte of it while it is encoded, and no context bounds
// what is asked for here.
constexpr uint64_t kMaxBodyBytes = 2 << 20;

HttpResponse tokenized(const ServedModel& model, std::string_view body) {
  const ApiResult<TokenizeRequest> request = read_request(body, parse_tokenize, model.facts);
  if (const auto* error = std::get_if<ApiError>(&request)) return error_response(*error);
  const auto& [text, markup] = std::get<TokenizeRequest>(request);
  const auto ids =
      model.tokenizer->encode(text, markup ? Tokenizer::Markup::on : Tokenizer::Markup::off);
  if (!ids.ok()) return error_response(ApiError{400, ids.error().message, "prompt", ""});
  return json_response(
      {{"tokens", *ids}, {"count", ids->size()}, {"max_model_len", model.facts.context}});
}

HttpResponse detokenized(const ServedModel& model, std::string_view body) {
  const ApiResult<std::vector<TokenId>> ids = read_request(body, parse_detokenize, model.facts);
  if (const auto* error = std::get_if<ApiError>(&ids)) return error_response(*error);
  return json_response(
      {{"prompt", model.tokenizer->decode(std::get<std::vector<TokenId>>(ids), true)}});
}

template <auto kMake>
Task<> answer(Service& service, ServedModel& model, HttpExchange& exchange) {
  HttpResponse response;
  co_await service.http->run_aside([&] { response = kMake(model, exchange.request().body); });
  co_await exchange.send(std::move(response));
}

}  // namespace

void add_tokenize_routes(Service& service, std::vector<HttpRoute>& routes) {
  routes.push_back({HttpMethod::post, "/tokenize", with_model(service, answer<tokenized>), false,
                    kMaxBodyBytes});
  routes.push_back({HttpMethod::post, "/detokenize", with_model(service, answer<detokenized>),
                    false, kMaxBodyBytes});
}

}  // namespace wader
