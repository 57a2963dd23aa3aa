#include "server/stats_figures.h"

#include <gmock/gmock.h>

#include <cmath>
#include <functional>

#include "server/stats_testing.h"

namespace wader {
namespace {

using enum StatsCounter;
using testing::HasSubstr;

TEST(StatsFigures, ReadsWhatTheServerSays) {
  Json json = stats_document();
  json["counters"]["bytes_read"] = 123456789012345;
  json["counters"]["pool_growths"] = 7;
  json["counters"]["head_seconds"] = 0.25;
  const StatsSnapshot read = stats_snapshot(60.5, {}, json);
  EXPECT_EQ(read.model, "next");
  EXPECT_EQ(read.version, "1.2.3");
  EXPECT_EQ(read.plan.total_bytes(), 11 * kGiB);
  EXPECT_EQ(read.plan.sessions, 4u);
  EXPECT_EQ(read.usable_slots, 550u);
  EXPECT_EQ(read[bytes_read], 123456789012345.0);
  EXPECT_EQ(read[pool_growths], 7);
  EXPECT_EQ(read[head_seconds], 0.25);
  EXPECT_FALSE(read.disk_bytes_per_second.has_value());
  json["engine"]["disk_bytes_per_second"] = nullptr;
  EXPECT_FALSE(stats_snapshot(1, {}, json).disk_bytes_per_second.has_value());
  json["engine"]["disk_bytes_per_second"] = 2.5e9;
  EXPECT_EQ(stats_snapshot(1, {}, json).disk_bytes_per_second, 2.5e9);
  json.erase("engine");
  EXPECT_FALSE(stats_snapshot(1, {}, json).disk_bytes_per_second.has_value());
}

TEST(StatsFigures, RefusesWhatItCannotRead) {
  const auto error = [](const std::function<void(Json&)>& spoil) {
    Json json = stats_document();
    spoil(json);
    const auto read = read_stats(json_text(json));
    return read.ok() ? "" : read.error().message;
  };
  EXPECT_EQ(error([](Json&) {}), "");
  EXPECT_THAT(error([](Json& json) { json["counters"].erase("hits"); }), HasSubstr("'hits'"));
  EXPECT_THAT(error([](Json& json) { json["counters"]["hits"] = -1; }), HasSubstr("'hits'"));
  EXPECT_THAT(error([](Json& json) { json["counters"]["hits"] = "1"; }), HasSubstr("'hits'"));
  EXPECT_THAT(error([](Json& json) { json["plan"]["slots"] = 1e10; }), HasSubstr("'slots'"));
  EXPECT_THAT(error([](Json& json) { json["plan"]["trunk_bytes"] = UINT64_MAX; }),
              HasSubstr("'trunk_bytes'"));
  EXPECT_THAT(error([](Json& json) { json["now"] = 5; }), HasSubstr("'now'"));
  EXPECT_THAT(error([](Json& json) { json.erase("model"); }), HasSubstr("'model'"));
  EXPECT_THAT(error([](Json& json) { json["engine"]["disk_bytes_per_second"] = "fast"; }),
              HasSubstr("'disk_bytes_per_second'"));
  EXPECT_FALSE(read_stats("[]").ok());
  EXPECT_FALSE(read_stats("").ok());
}

TEST(StatsFigures, RatesAreDifferences) {
  const StatsSnapshot before = stats_snapshot(100, {{hits, 1000},
                                                    {misses, 1000},
                                                    {bytes_read, 5e9},
                                                    {decode_tokens, 700},
                                                    {experts_seconds, 50},
                                                    {wait_seconds, 40}});
  const StatsSnapshot after = stats_snapshot(102, {{hits, 1300},
                                                   {misses, 1100},
                                                   {bytes_read, 9e9},
                                                   {decode_tokens, 720},
                                                   {prefill_tokens, 64},
                                                   {predicted, 10},
                                                   {predicted_right, 8},
                                                   {hidden_seconds, 0.9},
                                                   {mixer_seconds, 0.4},
                                                   {experts_seconds, 50.5},
                                                   {wait_seconds, 40.1},
                                                   {head_seconds, 0.1}});
  const StatsRates rates = rates_between(before, after);
  EXPECT_DOUBLE_EQ(rates.seconds, 2);
  EXPECT_DOUBLE_EQ(rates.answer_tokens_per_second, 10);
  EXPECT_DOUBLE_EQ(rates.prompt_tokens_per_second, 32);
  EXPECT_DOUBLE_EQ(rates.read_bytes_per_second, 2e9);
  EXPECT_DOUBLE_EQ(rates.hit_share, 0.75);
  EXPECT_DOUBLE_EQ(rates.right_share, 0.8);
  EXPECT_NEAR(rates.hidden_share, 0.9, 1e-9);
  EXPECT_NEAR(rates.passes_seconds, 1.0, 1e-9);
  const double expected[] = {0.4, 0, 0.4, 0, 0.1, 0.1};  // the wait stands beside the experts
  for (size_t i = 0; i < kStatsPhases; ++i) EXPECT_NEAR(rates.phase_shares[i], expected[i], 1e-9);

  StatsSnapshot later = after;
  later.uptime_seconds = 103;
  const StatsRates idle = rates_between(after, later);
  EXPECT_EQ(idle.answer_tokens_per_second, 0);
  EXPECT_TRUE(std::isnan(idle.hit_share));
  EXPECT_TRUE(std::isnan(idle.phase_shares[0]));
}

TEST(StatsFigures, HistoryIsOfTheLastMinute) {
  StatsHistory history;
  EXPECT_FALSE(history.rates(5).has_value());
  history.push(stats_snapshot(1000, {{decode_tokens, 50000}}));
  EXPECT_FALSE(history.rates(5).has_value());  // what came before the first look is not "now"
  EXPECT_TRUE(history.answer_tokens_by_second().empty());
  for (int second = 1; second <= 100; ++second)
    history.push(
        stats_snapshot(1000 + second, {{decode_tokens, 50000 + second * (second + 1) / 2}}));
  EXPECT_DOUBLE_EQ(history.rates(5)->seconds, 5);
  EXPECT_DOUBLE_EQ(history.rates(5)->answer_tokens_per_second, 98);  // of 96 … 100
  EXPECT_DOUBLE_EQ(history.rates(1)->answer_tokens_per_second, 100);
  const std::vector<double> minute = history.answer_tokens_by_second();
  ASSERT_EQ(minute.size(), 60u);
  EXPECT_DOUBLE_EQ(minute.front(), 41);
  EXPECT_DOUBLE_EQ(minute.back(), 100);
  // After a silence of seven seconds the mean of them is known, and no more.
  history.push(stats_snapshot(1107, {{decode_tokens, 50000 + 5050 + 70}}));
  EXPECT_DOUBLE_EQ(history.rates(1)->answer_tokens_per_second, 10);
  EXPECT_DOUBLE_EQ(history.rates(1)->seconds, 7);
  EXPECT_EQ(history.answer_tokens_by_second().size(), 60u);
  EXPECT_DOUBLE_EQ(history.answer_tokens_by_second()[53], 10);
  EXPECT_DOUBLE_EQ(history.answer_tokens_by_second()[52], 100);
}

TEST(StatsFigures, AnotherServerBeginsAnew) {
  Json other = stats_document();
  other["model"]["id"] = "other";
  for (const StatsSnapshot& next :
       {stats_snapshot(3, {{hits, 10}}), stats_snapshot(12, {{hits, 9}}),
        stats_snapshot(12, {{hits, 11}}, other)}) {
    StatsHistory history;
    history.push(stats_snapshot(10, {{hits, 1}}));
    history.push(stats_snapshot(11, {{hits, 10}}));
    EXPECT_TRUE(history.rates(5).has_value());
    history.push(next);
    EXPECT_FALSE(history.rates(5).has_value());
    EXPECT_EQ(history.last().uptime_seconds, next.uptime_seconds);
  }
  StatsHistory still;  // a clock that stands is no division by nothing
  for (int i = 0; i < 3; ++i) still.push(stats_snapshot(10, {}));
  EXPECT_FALSE(still.rates(5).has_value());
}

}  // namespace
}  // namespace wader
