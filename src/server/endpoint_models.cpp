// GET /v1/models, /v1/models/{id}
#include "server/models_answer.h"
#include "server/service.h"

namespace wader {
namespace {

Task<> list(Service&, ServedModel& model, HttpExchange& exchange) {
  co_await exchange.send(json_response(models_json(model.facts)));
}

HttpResponse found(std::string_view id, const ModelFacts& facts) {
  const ApiResult<Json> model = model_json(id, facts);
  if (const auto* error = std::get_if<ApiError>(&model)) return error_response(*error);
  return json_response(std::get<Json>(model));
}

Task<> one(Service&, ServedModel& model, HttpExchange& exchange) {
  co_await exchange.send(found(exchange.request().path_value("id"), model.facts));
}

}  // namespace

void add_model_routes(Service& service, std::vector<HttpRoute>& routes) {
  routes.push_back({HttpMethod::get, "/v1/models", with_model(service, list)});
  routes.push_back({HttpMethod::get, "/v1/models/{id...}", with_model(service, one)});
}

}  // namespace wader
