#include "server/model_switch.h"

#include <fmt/format.h>

#include <boost/asio/as_tuple.hpp>
#include <boost/asio/steady_timer.hpp>
#include <boost/asio/use_awaitable.hpp>
#include <chrono>
#include <optional>
#include <utility>

#include "base/on_exit.h"

namespace wader {
namespace {

constexpr std::chrono::seconds kPatience{3};

void tell(Service& service, std::string_view state, std::string_view name,
          std::string_view error = {}) {
  Json json = {{"state", state}, {"name", name}};
  if (!error.empty()) json["error"] = error;
  service.hub.tell("model", json);
}

// As service.model, or the error.
Task<Status> take_up(Service& service, const std::filesystem::path& container) {
  std::optional<Result<std::shared_ptr<ServedModel>>> opened;
  co_await service.http->run_aside([&] { opened = open_served_model(service, container); });
  if (!opened->ok()) co_return std::move(*opened).error();
  service.model = std::move(*opened).value();
  co_return Status();
}

// Its last requests are told that it ends, and are waited for; their clients for kPatience.
Task<> let_go(Service& service) {
  service.hub.forget("hello");
  service.hub.forget("resident");
  service.leaving = std::exchange(service.model, nullptr);
  if (!service.leaving) co_return;
  service.leaving->scheduler->stop();
  const auto start = std::chrono::steady_clock::now();
  boost::asio::steady_timer pause(service.http->executor());
  while (service.leaving.use_count() > 1 ||
         !service.leaving->scheduler->stopped(std::chrono::milliseconds(0))) {
    if (std::chrono::steady_clock::now() - start > kPatience)
      for (HttpExchange* request : service.leaving->requests) request->stop_waiting();
    pause.expires_after(std::chrono::milliseconds(5));
    co_await pause.async_wait(boost::asio::as_tuple(boost::asio::use_awaitable));
  }
  auto last = std::move(service.leaving);
  service.leaving = nullptr;
  co_await service.http->run_aside([&last] { last.reset(); });
}

}  // namespace

Result<std::shared_ptr<ServedModel>> open_served_model(Service& service,
                                                       const std::filesystem::path& container) {
  const auto open = [&](RoutingListener on_routing) {
    return service.opener.open(container, std::move(on_routing));
  };
  std::string id = service.fixed_id.empty() ? container.stem().string() : service.fixed_id;
  return load_model(container, std::move(id), open, service.scheduler_options, service.hub);
}

Task<HttpResponse> switch_model(Service& service, std::filesystem::path container) {
  const std::string name = container.stem().string();
  service.loading = name;
  const OnExit loaded([&] { service.loading.clear(); });  // also where something throws
  Status status;
  co_await service.http->run_aside([&] {
    const auto plan = service.opener.plan(container);
    if (!plan.ok()) status = plan.error();
  });
  if (!status.ok()) {
    const bool small = status.error().code == ErrorCode::over_budget;
    const std::string_view code = small ? "does_not_fit" : "cannot_be_loaded";
    co_return error_response(409, status.error().message, {}, code);
  }
  tell(service, "loading", name);
  const std::filesystem::path former = service.model ? service.model->container : "";
  co_await let_go(service);
  status = co_await take_up(service, container);
  if (status.ok()) {
    service.problem.clear();
    tell(service, "ready", name);
    co_return json_response({{"serving", name}});
  }
  service.problem = status.error().message;
  if (!former.empty()) {
    const Status back = co_await take_up(service, former);
    if (!back.ok()) service.problem += fmt::format("; nor {}", back.error().message);
  }
  tell(service, "failed", name, service.problem);
  co_return error_response(500, fmt::format("{} could not be loaded: {}", name, service.problem));
}

}  // namespace wader
