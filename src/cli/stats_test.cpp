#include <gmock/gmock.h>

#include <cmath>
#include <functional>

#include "base/json.h"
#include "base/units.h"
#include "cli/stats_figures.h"
#include "cli/stats_view.h"
#include "cli/text.h"

namespace wader {
namespace {

using enum StatsCounter;
using testing::AllOf;
using testing::AnyOf;
using testing::HasSubstr;
using testing::Not;

// What a server of a 12 GiB budget says after a minute.
Json document() {
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

StatsSnapshot snapshot(double uptime, const std::vector<std::pair<StatsCounter, double>>& counters,
                       Json json = document()) {
  json["uptime_seconds"] = uptime;
  auto read = read_stats(json_text(json));
  EXPECT_TRUE(read.ok()) << read.error().message;
  for (const auto& [counter, value] : counters)
    read->counters[static_cast<size_t>(counter)] = value;
  return *read;
}

TEST(Stats, ReadsWhatTheServerSays) {
  Json json = document();
  json["counters"]["bytes_read"] = 123456789012345;
  json["counters"]["pool_growths"] = 7;
  json["counters"]["head_seconds"] = 0.25;
  const StatsSnapshot read = snapshot(60.5, {}, json);
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
  EXPECT_FALSE(snapshot(1, {}, json).disk_bytes_per_second.has_value());
  json["engine"]["disk_bytes_per_second"] = 2.5e9;
  EXPECT_EQ(snapshot(1, {}, json).disk_bytes_per_second, 2.5e9);
  json.erase("engine");
  EXPECT_FALSE(snapshot(1, {}, json).disk_bytes_per_second.has_value());
}

TEST(Stats, RefusesWhatItCannotRead) {
  const auto error = [](const std::function<void(Json&)>& spoil) {
    Json json = document();
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

TEST(Stats, RatesAreDifferences) {
  const StatsSnapshot before = snapshot(100, {{hits, 1000},
                                              {misses, 1000},
                                              {bytes_read, 5e9},
                                              {decode_tokens, 700},
                                              {experts_seconds, 50},
                                              {wait_seconds, 40}});
  const StatsSnapshot after = snapshot(102, {{hits, 1300},
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

TEST(Stats, HistoryIsOfTheLastMinute) {
  StatsHistory history;
  EXPECT_FALSE(history.rates(5).has_value());
  history.push(snapshot(1000, {{decode_tokens, 50000}}));
  EXPECT_FALSE(history.rates(5).has_value());  // what came before the first look is not "now"
  EXPECT_TRUE(history.answer_tokens_by_second().empty());
  for (int second = 1; second <= 100; ++second)
    history.push(snapshot(1000 + second, {{decode_tokens, 50000 + second * (second + 1) / 2}}));
  EXPECT_DOUBLE_EQ(history.rates(5)->seconds, 5);
  EXPECT_DOUBLE_EQ(history.rates(5)->answer_tokens_per_second, 98);  // of 96 … 100
  EXPECT_DOUBLE_EQ(history.rates(1)->answer_tokens_per_second, 100);
  const std::vector<double> minute = history.answer_tokens_by_second();
  ASSERT_EQ(minute.size(), 60u);
  EXPECT_DOUBLE_EQ(minute.front(), 41);
  EXPECT_DOUBLE_EQ(minute.back(), 100);
  // After a silence of seven seconds the mean of them is known, and no more.
  history.push(snapshot(1107, {{decode_tokens, 50000 + 5050 + 70}}));
  EXPECT_DOUBLE_EQ(history.rates(1)->answer_tokens_per_second, 10);
  EXPECT_DOUBLE_EQ(history.rates(1)->seconds, 7);
  EXPECT_EQ(history.answer_tokens_by_second().size(), 60u);
  EXPECT_DOUBLE_EQ(history.answer_tokens_by_second()[53], 10);
  EXPECT_DOUBLE_EQ(history.answer_tokens_by_second()[52], 100);
}

TEST(Stats, AnotherServerBeginsAnew) {
  Json other = document();
  other["model"]["id"] = "other";
  for (const StatsSnapshot& next :
       {snapshot(3, {{hits, 10}}), snapshot(12, {{hits, 9}}), snapshot(12, {{hits, 11}}, other)}) {
    StatsHistory history;
    history.push(snapshot(10, {{hits, 1}}));
    history.push(snapshot(11, {{hits, 10}}));
    EXPECT_TRUE(history.rates(5).has_value());
    history.push(next);
    EXPECT_FALSE(history.rates(5).has_value());
    EXPECT_EQ(history.last().uptime_seconds, next.uptime_seconds);
  }
  StatsHistory still;  // a clock that stands is no division by nothing
  for (int i = 0; i < 3; ++i) still.push(snapshot(10, {}));
  EXPECT_FALSE(still.rates(5).has_value());
}

TEST(Stats, Sparkline) {
  EXPECT_EQ(sparkline({0, 1, 2, 4, 8}, 60, true), "▁▂▃▅█");
  EXPECT_EQ(sparkline({0, 1, 2, 4, 8}, 60, false), "_.:=#");
  EXPECT_EQ(sparkline({9, 0, 1000, 0.001}, 3, false), "_#.");
  EXPECT_EQ(sparkline({0, 0}, 60, false), "__");
  EXPECT_EQ(sparkline({}, 60, true), "");
}

StatsHistory busy() {
  Json json = document();
  json["engine"]["disk_bytes_per_second"] = 4e9;
  StatsHistory history;
  for (int second = 0; second <= 70; ++second) {
    const double n = second;
    history.push(snapshot(3600 + n,
                          {{hits, 300 * n},
                           {misses, 100 * n},
                           {bytes_read, 1.5e9 * n},
                           {decode_tokens, 24 * n},
                           {prefill_tokens, 128 * n},
                           {mixer_seconds, 0.3 * n},
                           {experts_seconds, 0.6 * n},
                           {wait_seconds, 0.2 * n},
                           {predicted, 10 * n},
                           {predicted_right, 9 * n},
                           {finished, 12}},
                          json));
  }
  return history;
}

std::string joined(const std::vector<std::string>& lines) {
  std::string text;
  for (const std::string& line : lines) text += line + "\n";
  return text;
}

TEST(Stats, WhatIsShown) {
  const std::string text = joined(stats_lines(busy(), "http://127.0.0.1:8080", 5, "", {}));
  for (const char* expected : {"next (qwen3_next)",
                               "http://127.0.0.1:8080",
                               "up 1:01:10",
                               "budget 12.0 GiB",
                               "planned 11.0 GiB",
                               "resident 9.0 GiB",
                               "E expert slots 6.0 GiB",
                               "2 running, ",
                               "1 in the queue",
                               "24.0 tok/s of answers",
                               "128.0 tok/s of prompts",
                               "1.50 GB/s",
                               "37.5 % of the 4.00 GB/s",
                               "75.0 % found in memory",
                               "75.0 % since the start",
                               "90.0 % right",
                               "0.0 % of the reading hidden",
                               "M mixer 33.3 %",
                               "E experts 44.4 %",
                               "W waiting for the disk 22.2 %",
                               "12 finished",
                               "550 of 600 in use",
                               "last 5 s"})
    EXPECT_THAT(text, HasSubstr(expected)) << text;
  EXPECT_THAT(text, Not(HasSubstr("snapshots")));  // parts of nothing are not listed
  StatsHistory young;
  young.push(snapshot(70, {{decode_tokens, 5000}, {hits, 1}, {misses, 1}}));
  const std::string first = joined(stats_lines(young, "x", 5, "", {}));
  EXPECT_THAT(first, AllOf(HasSubstr("- of answers"), HasSubstr("50.0 % since the start"),
                           Not(HasSubstr("tok/s")), Not(HasSubstr("last "))));
}

TEST(Stats, FitsTheScreen) {
  for (const size_t columns : {20, 35, 50, 80, 200}) {
    for (const bool colour : {false, true}) {
      ScreenStyle style = {.columns = columns, .lines = 0, .colour = colour, .blocks = true};
      for (const std::string& line :
           stats_lines(busy(), "http://127.0.0.1:8080", 5, "not answering for 12 s", style)) {
        std::string plain;
        for (size_t i = 0; i < line.size(); ++i) {
          if (line[i] == '\x1b')
            i = line.find('m', i);
          else
            plain += line[i];
        }
        EXPECT_LE(columns_of(plain), columns) << line;
        EXPECT_TRUE(colour || plain == line);
      }
    }
  }
  ScreenStyle low = {.columns = 80, .lines = 5, .colour = false, .blocks = false};
  const auto few = stats_lines(busy(), "x", 5, "", low);
  EXPECT_EQ(few.size(), 5u);
  EXPECT_LE(stats_lines(busy(), "x", 5, "", {}).size(), 23u);  // a terminal of 24 lines
}

TEST(Stats, StringsOfTheServerCommandNothing) {
  Json json = document();
  json["model"]["id"] = "a\x1b]0;title\x07\nb\xE2\x80\xAE";
  json["model"]["family"] = "\x1b[2J";
  StatsHistory history;
  history.push(snapshot(1, {}, json));
  const std::string text = joined(stats_lines(history, "x\x1b", 5, "notice \x1b[1m\r", {}));
  EXPECT_THAT(text, Not(AnyOf(HasSubstr("\x1b"), HasSubstr("\x07"), HasSubstr("\r"),
                              HasSubstr("\xE2\x80\xAE"))));
  EXPECT_THAT(text, HasSubstr("\\nb"));
}

}  // namespace
}  // namespace wader
