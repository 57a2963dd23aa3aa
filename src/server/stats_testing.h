// For tests of what is made of /wader/stats: a whole answer, and what is read from it.
#pragma once

#include <gtest/gtest.h>

#include <utility>
#include <vector>

#include "base/json.h"
#include "base/units.h"
#include "server/stats_figures.h"

namespace wader {

// What a server of a 12 GiB budget says after a minute.
inline Json stats_document() {
  Json counters = Json::object();
  for (const char* name : {"hits",
                           "misses",
                           "bytes_read",
                           "wait_seconds",
                           "predicted",
                           "predicted_right",
                           "hidden_seconds",
                           "prefill_tokens",
                           "decode_tokens",
                           "mixer_seconds",
                           "router_seconds",
                           "experts_seconds",
                           "lookahead_seconds",
                           "head_seconds",
                           "finished",
                           "cancelled",
                           "failed",
                           "refused",
                           "pool_shrinks",
                           "pool_growths"})
    counters[name] = 0;
  return {
      {"uptime_seconds", 60.5},
      {"started_unix_ms", 1764500000000},
      {"version", "1.2.3"},
      {"model", {{"id", "next"}, {"family", "qwen3_next"}}},
      {"plan",
       {{"budget_bytes", 12 * kGiB},
        {"process_bytes", kGiB},
        {"trunk_bytes", 2 * kGiB},
        {"state_bytes", kGiB},
        {"snapshots_bytes", 0},
        {"scratch_bytes", kGiB},
        {"io_bytes", 0},
        {"slots_bytes", 6 * kGiB},
        {"reserve_bytes", 0},
        {"slots", 600},
        {"sessions", 4}}},
      {"engine", {{"reads", "uring"}}},
      {"now", {{"resident_bytes", 9 * kGiB}, {"usable_slots", 550}, {"running", 2}, {"queued", 1}}},
      {"counters", counters}};
}

inline StatsSnapshot stats_snapshot(double uptime,
                                    const std::vector<std::pair<StatsCounter, double>>& counters,
                                    Json json = stats_document()) {
  json["uptime_seconds"] = uptime;
  auto read = read_stats(json_text(json));
  EXPECT_TRUE(read.ok()) << read.error().message;
  for (const auto& [counter, value] : counters)
    read->counters[static_cast<size_t>(counter)] = value;
  return *read;
}

}  // namespace wader
