// What a server answers to `wader stats`: any text is refused by name, or gives figures that hold.
#include <cmath>
#include <cstddef>
#include <cstdint>
#include <string>
#include <string_view>

#include "base/check.h"
#include "server/stats_client.h"
#include "server/stats_figures.h"

extern "C" int LLVMFuzzerTestOneInput(const uint8_t* data, size_t size) {
  using namespace wader;
  const std::string_view text(reinterpret_cast<const char*>(data), size);
  const bool is_stats = judge_stats_answer(ServerUrl(), 200, std::string(text), false).state ==
                        StatsReply::State::stats;
  for (const int status : {401, 403, 404, 500, 503})
    CHECK(!judge_stats_answer(ServerUrl(), status, std::string(text), true).text.empty());
  if (const auto url = parse_server_url(text); url.ok())
    CHECK(parse_server_url(url->text())->port == url->port);
  auto snapshot = read_stats(text);
  if (!snapshot.ok()) {
    CHECK(!snapshot.error().message.empty());
    return 0;
  }
  CHECK(is_stats);
  StatsHistory history;
  history.push(*snapshot);
  CHECK(!history.rates(5).has_value());
  snapshot->uptime_seconds += 2;
  for (double& counter : snapshot->counters) counter += 1;
  history.push(*snapshot);
  if (const auto rates = history.rates(5)) {
    CHECK(rates->seconds > 0 && rates->answer_tokens_per_second >= 0);
    for (const double share : rates->phase_shares) CHECK(std::isnan(share) || share >= 0);
  }
  return 0;
}
