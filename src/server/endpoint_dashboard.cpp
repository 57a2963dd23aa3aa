// GET /wader/stats, /wader/events: what the dashboard shows besides the API's own.
#include <boost/asio/as_tuple.hpp>
#include <boost/asio/steady_timer.hpp>
#include <boost/asio/use_awaitable.hpp>

#include "server/service.h"
#include "server/sse.h"
#include "server/stats_json.h"

namespace wader {
namespace {

constexpr std::chrono::seconds kStatsInterval{1};
// 30 writes a second at most; what comes between two goes with the later one.
constexpr std::chrono::milliseconds kWriteInterval{33};

Task<> stats(Service& service, HttpExchange& exchange) {
  Json body = {{"uptime_seconds", service.uptime_seconds()}, {"version", WADER_VERSION}};
  body.update(served_facts_json(service.scheduler->engine(), service.model));
  body.update(standing_json(service.scheduler->stats()));
  co_await exchange.send(json_response(body));
}

std::string hello(const Service& service) {
  const ArchitectureSpec& spec = service.scheduler->engine().container().spec();
  const Json text = {{"moe_layers", service.recorder.moe_layers()},
                     {"experts", spec.experts},
                     {"experts_per_token", spec.experts_per_token}};
  return sse_event(std::string_view(json_text(text)), "hello");
}

std::string standing(const Service& service) {
  const Json text = standing_json(service.scheduler->stats());
  return sse_event(std::string_view(json_text(text)), "stats");
}

Task<> events(Service& service, HttpExchange& exchange) {
  using Clock = std::chrono::steady_clock;
  const auto watcher = service.hub.watch(service.http->executor());
  boost::asio::steady_timer pause(service.http->executor());
  exchange.on_gone([&pause] { pause.cancel(); });
  co_await exchange.begin_stream(sse_head());
  bool taken = co_await exchange.write(hello(service) + standing(service));
  auto next_stats = Clock::now() + kStatsInterval;
  while (taken && !exchange.gone()) {
    std::string text = co_await watcher->next(kStatsInterval);
    if (Clock::now() >= next_stats) {
      text += standing(service);
      next_stats = Clock::now() + kStatsInterval;
    }
    if (!text.empty()) taken = co_await exchange.write(std::move(text));
    pause.expires_after(kWriteInterval);
    co_await pause.async_wait(boost::asio::as_tuple(boost::asio::use_awaitable));
  }
}

}  // namespace

void add_dashboard_routes(Service& service, std::vector<HttpRoute>& routes) {
  routes.push_back({HttpMethod::get, "/wader/stats",
                    [&service](HttpExchange& exchange) { return stats(service, exchange); }});
  routes.push_back({HttpMethod::get, "/wader/events",
                    [&service](HttpExchange& exchange) { return events(service, exchange); }});
}

}  // namespace wader
