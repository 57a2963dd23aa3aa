// GET /v1/models, /v1/models/{id}
#include "server/models_answer.h"
#include "server/service.h"

namespace wader {
namespace {

Task<> list(Service& service, HttpExchange& exchange) {
  co_await exchange.send(json_response(models_json(service.model.facts)));
}

Task<> one(Service& service, HttpExchange& exchange) {
  const ApiResult<Json> model =
      model_json(exchange.request().path_value("id"), service.model.facts);
  const auto* error = std::get_if<ApiError>(&model);
  co_await exchange.send(error ? error_response(*error) : json_response(std::get<Json>(model)));
}

}  // namespace

void add_model_routes(Service& service, std::vector<HttpRoute>& routes) {
  routes.push_back({HttpMethod::get, "/v1/models",
                    [&service](HttpExchange& exchange) { return list(service, exchange); }});
  routes.push_back({HttpMethod::get, "/v1/models/{id...}",
                    [&service](HttpExchange& exchange) { return one(service, exchange); }});
}

}  // namespace wader
