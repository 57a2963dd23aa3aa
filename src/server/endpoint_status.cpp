// GET /health, /metrics, /openapi.json
#include "server/openapi.h"
#include "server/service.h"

namespace wader {
namespace {

Task<> health(Service& service, HttpExchange& exchange) {
  const SchedulerStats stats = service.scheduler->stats();
  const Json body = {{"status", "ok"},
                     {"model", service.model.facts.id},
                     {"running", stats.running},
                     {"queued", stats.queued}};
  co_await exchange.send(json_response(body));
}

Task<> metrics(Service& service, HttpExchange& exchange) {
  HttpResponse response;
  response.content_type = "text/plain; version=0.0.4; charset=utf-8";
  response.body = service.metrics.text(service.scheduler->stats(),
                                       service.scheduler->engine().plan().budget_bytes,
                                       service.http->connections());
  co_await exchange.send(std::move(response));
}

Task<> openapi(HttpExchange& exchange) {
  static const std::string text = json_text(openapi_json(WADER_VERSION));  // a millisecond's work
  HttpResponse response;
  response.body = text;
  co_await exchange.send(std::move(response));
}

}  // namespace

void add_status_routes(Service& service, std::vector<HttpRoute>& routes) {
  routes.push_back({HttpMethod::get, "/health",
                    [&service](HttpExchange& exchange) { return health(service, exchange); },
                    true});
  routes.push_back({HttpMethod::get, "/metrics",
                    [&service](HttpExchange& exchange) { return metrics(service, exchange); }});
  routes.push_back({HttpMethod::get, "/openapi.json", openapi});
}

HttpResponse json_response(const Json& json) {
  HttpResponse response;
  response.body = json_text(json);
  return response;
}

HttpResponse error_response(const ApiError& error) {
  return error_response(error.status, error.message, error.param, error.code);
}

}  // namespace wader
