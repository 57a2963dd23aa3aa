// GET /wader/stats, /wader/events: what the dashboard shows besides the API's own.
#include <boost/asio/as_tuple.hpp>
#include <boost/asio/steady_timer.hpp>
#include <boost/asio/use_awaitable.hpp>

#include "server/service.h"
#include "server/sse.h"
#include "server/stats_json.h"

namespace wader {
namespace {

using Clock = std::chrono::steady_clock;

constexpr std::chrono::seconds kStatsInterval{1};
// 30 writes a second at most, 10 where a write takes a core from the threads that compute; what
// comes between two goes with the later one. All watchers are written to at the same times.
constexpr std::chrono::milliseconds kWriteInterval{33}, kCrowdedWriteInterval{100};

Clock::time_point next_write_time(const Service& service) {
  const bool crowded = service.model && spare_cpus(service.model->engine()) == 0;
  const auto interval = crowded ? kCrowdedWriteInterval : kWriteInterval;
  return Clock::time_point((Clock::now().time_since_epoch() / interval + 1) * interval);
}

Task<> stats(Service& service, ServedModel& model, HttpExchange& exchange) {
  Json body = {{"uptime_seconds", service.uptime_seconds()},
               {"started_unix_ms", service.started_unix_ms},
               {"version", WADER_VERSION}};
  body.update(served_facts_json(model));
  body.update(standing_json(model.scheduler->stats()));
  co_await exchange.send(json_response(body));
}

// Nothing while there is no model.
std::string standing(const Service& service) {
  if (!service.model) return {};
  const Json text = standing_json(service.model->scheduler->stats());
  return sse_event(std::string_view(json_text(text)), "stats");
}

Task<> events(Service& service, HttpExchange& exchange) {
  const auto watcher = service.hub.watch(service.http->executor());
  boost::asio::steady_timer pause(service.http->executor());
  exchange.on_gone([&pause] { pause.cancel(); });
  co_await exchange.begin_stream(sse_head());
  // What the hub has last told comes first: the model, and its experts in memory.
  std::string beginning = co_await watcher->next(std::chrono::milliseconds(0));
  beginning += standing(service);
  bool taken = co_await exchange.write(std::move(beginning));
  auto next_stats = Clock::now() + kStatsInterval;
  while (taken && !exchange.gone()) {
    std::string text = co_await watcher->next(kStatsInterval);
    if (Clock::now() >= next_stats) {
      text += standing(service);
      next_stats = Clock::now() + kStatsInterval;
    }
    if (!text.empty()) taken = co_await exchange.write(std::move(text));
    pause.expires_at(next_write_time(service));
    co_await pause.async_wait(boost::asio::as_tuple(boost::asio::use_awaitable));
  }
}

}  // namespace

void add_dashboard_routes(Service& service, std::vector<HttpRoute>& routes) {
  routes.push_back({HttpMethod::get, "/wader/stats", with_model(service, stats)});
  routes.push_back({HttpMethod::get, "/wader/events", with_service(service, events)});
}

}  // namespace wader
