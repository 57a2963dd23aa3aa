// GET /health, /metrics, /openapi.json
#include "server/openapi.h"
#include "server/service.h"

namespace wader {
namespace {

Task<> health(Service&, ServedModel& model, HttpExchange& exchange) {
  const SchedulerStats stats = model.scheduler->stats();
  const Json body = {{"status", "ok"},
                     {"model", model.facts.id},
                     {"running", stats.running},
                     {"queued", stats.queued}};
  co_await exchange.send(json_response(body));
}

Task<> metrics(Service& service, ServedModel& model, HttpExchange& exchange) {
  HttpResponse response;
  response.content_type = "text/plain; version=0.0.4; charset=utf-8";
  response.body = service.metrics.text(model.scheduler->stats(), model.engine().plan().budget_bytes,
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
  routes.push_back({HttpMethod::get, "/health", with_model(service, health), true});
  routes.push_back({HttpMethod::get, "/metrics", with_model(service, metrics)});
  routes.push_back({HttpMethod::get, "/openapi.json", openapi});
}

}  // namespace wader
