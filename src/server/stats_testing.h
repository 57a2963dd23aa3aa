// For tests of what is made of /wader/stats: a whole answer, as the server itself writes one, and
// what is read from it.
#pragma once

#include <gtest/gtest.h>

#include <utility>
#include <vector>

#include "base/json.h"
#include "base/units.h"
#include "model/plan_json.h"
#include "server/stats_figures.h"
#include "server/stats_json.h"

namespace wader {

// What a server of a 12 GiB budget says after a minute.
inline Json stats_document() {
  MemoryPlan plan = {};
  plan.budget_bytes = 12 * kGiB;
  plan.process_bytes = kGiB;
  plan.trunk_bytes = 2 * kGiB;
  plan.state_bytes = kGiB;
  plan.scratch_bytes = kGiB;
  plan.slots_bytes = 6 * kGiB;
  plan.slots = 600;
  plan.sessions = 4;
  Json json = {{"uptime_seconds", 60.5},  {"started_unix_ms", 1764500000000},
               {"version", "1.2.3"},      {"model", {{"id", "next"}, {"family", "qwen3_next"}}},
               {"plan", plan_json(plan)}, {"engine", {{"reads", "uring"}}}};
  json.update(standing_json(SchedulerStats()));  // every counter is 0
  json["now"] = {
      {"resident_bytes", 9 * kGiB}, {"usable_slots", 550}, {"running", 2}, {"queued", 1}};
  return json;
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
