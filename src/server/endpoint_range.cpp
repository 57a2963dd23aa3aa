// GET and POST /wader/range: the map of what experts respond to, and building it among other work.
#include <boost/asio/co_spawn.hpp>
#include <boost/asio/detached.hpp>

#include "container/manifest.h"
#include "io/file.h"
#include "range/range_file.h"
#include "range/range_probe.h"
#include "server/library_request.h"
#include "server/range_job.h"
#include "server/service.h"

namespace wader {
namespace {

// The file's text where it is this model's map; not_found where there is none of it.
Result<std::string> map_text(const Container& container) {
  const std::filesystem::path file = container.directory() / kRangeFile;
  ASSIGN_OR_RETURN(std::string text, read_text_file(file, kMaxRangeFileBytes));
  RETURN_IF_ERROR(
      parse_range(text, container.identity(), range_shape(container.spec()), file.string()));
  return text;
}

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
  co_await service.http->run_aside(
      [&] { response = map_response(map_text(model.engine().container())); });
  co_await exchange.send(std::move(response));
}

Task<> build(Service& service, ServedModel&, HttpExchange& exchange) {
  HttpResponse response = json_response(Json::object());
  response.status = 202;
  if (const auto error = check_empty_body(exchange.request().body)) {
    response = error_response(*error);
  } else if (service.builds_range) {
    response = error_response(409, "a range map is being built");
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
  routes.push_back({HttpMethod::post, "/wader/range", with_model(service, build)});
}

}  // namespace wader
