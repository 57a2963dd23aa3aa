// GET and POST /wader/range: the map of what experts respond to, and building it among other work.
#include <boost/asio/co_spawn.hpp>
#include <boost/asio/detached.hpp>

#include "container/manifest.h"
#include "range/range_file.h"
#include "range/range_probe.h"
#include "server/library_request.h"
#include "server/range_job.h"
#include "server/service.h"

namespace wader {
namespace {

HttpResponse map_response(Result<std::string> text) {
  HttpResponse response;
  if (text.ok()) {
    response.body = std::move(text).value();
  } else if (text.error().code == ErrorCode::not_found) {
    response.status = 204;
  } else {
    response = error_response(500, text.error().message);
  }
  return response;
}

Task<> map(Service& service, ServedModel& model, HttpExchange& exchange) {
  HttpResponse response;
  co_await service.http->run_aside([&] {
    const Container& container = model.engine().container();
    const std::lock_guard lock(service.range_file);
    response = map_response(read_range_text(container.directory(), container.identity(),
                                            range_shape(container.spec())));
  });
  co_await exchange.send(std::move(response));
}

Task<> build(Service& service, ServedModel& model, HttpExchange& exchange) {
  HttpResponse response = json_response(Json::object());
  response.status = 202;
  if (const auto error = check_empty_body(exchange.request().body)) {
    response = error_response(*error);
  } else if (service.builds_range) {
    response = error_response(409, "a range map is being built");
  } else if (const Status writable =
                 check_range_writable(model.engine().container().directory() / kRangeFile);
             !writable.ok()) {
    response = error_response(500, writable.error().message);
  } else {
    service.builds_range = true;
    boost::asio::co_spawn(service.http->executor(), build_range(service, service.model),
                          boost::asio::detached);
  }
  co_await exchange.send(std::move(response));
}

}  // namespace

void add_range_routes(Service& service, std::vector<HttpRoute>& routes) {
  routes.push_back({HttpMethod::get, "/wader/range", with_model(service, map)});
  HttpRoute post{HttpMethod::post, "/wader/range", with_model(service, build)};
  post.own_pages = true;
  routes.push_back(std::move(post));
}

}  // namespace wader
