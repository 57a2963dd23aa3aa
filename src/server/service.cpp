#include "server/service.h"

#include <fmt/format.h>

namespace wader {
namespace {

HttpResponse no_model(const Service& service) {
  HttpResponse response =
      service.loading.empty()
          ? error_response(503, "no model is loaded; /wader/models says why")
          : error_response(503, fmt::format("{} is being loaded", service.loading), {},
                           "model_loading");
  response.headers.emplace_back("Retry-After", "2");
  return response;
}

struct Hold {
  Hold(std::shared_ptr<ServedModel> of, HttpExchange& by) : model(std::move(of)), exchange(by) {
    model->requests.insert(&exchange);
  }
  ~Hold() { model->requests.erase(&exchange); }
  Hold(const Hold&) = delete;
  Hold& operator=(const Hold&) = delete;

  const std::shared_ptr<ServedModel> model;
  HttpExchange& exchange;
};

}  // namespace

HttpHandler with_model(Service& service, ModelHandler handle) {
  return [&service, handle](HttpExchange& exchange) -> Task<> {
    if (!service.model) {
      co_await exchange.send(no_model(service));
      co_return;
    }
    const Hold hold(service.model, exchange);
    co_await handle(service, *hold.model, exchange);
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
