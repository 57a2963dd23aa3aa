#include "server/service.h"

#include <fmt/format.h>

namespace wader {
namespace {

HttpResponse no_model(const Service& service) {
  HttpResponse response =
      service.loading.empty()
          ? error_response(503, fmt::format("no model is loaded: {}", service.problem))
          : error_response(503, fmt::format("{} is being loaded", service.loading), {},
                           "model_loading");
  response.headers.emplace_back("Retry-After", "2");
  return response;
}

}  // namespace

HttpHandler with_model(Service& service, ModelHandler handle) {
  return [&service, handle](HttpExchange& exchange) -> Task<> {
    const std::shared_ptr<ServedModel> model = service.model;
    if (model)
      co_await handle(service, *model, exchange);
    else
      co_await exchange.send(no_model(service));
  };
}

HttpHandler with_service(Service& service, Task<> (*handle)(Service&, HttpExchange&)) {
  return [&service, handle](HttpExchange& exchange) { return handle(service, exchange); };
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
