#include "cli/stats_view.h"

#include <gmock/gmock.h>

#include "cli/text.h"
#include "server/stats_testing.h"

namespace wader {
namespace {

using enum StatsCounter;
using testing::AllOf;
using testing::AnyOf;
using testing::HasSubstr;
using testing::Not;

TEST(StatsView, Sparkline) {
  EXPECT_EQ(sparkline({0, 1, 2, 4, 8}, 60, true), "▁▂▃▅█");
  EXPECT_EQ(sparkline({0, 1, 2, 4, 8}, 60, false), "_.:=#");
  EXPECT_EQ(sparkline({9, 0, 1000, 0.001}, 3, false), "_#.");
  EXPECT_EQ(sparkline({0, 0}, 60, false), "__");
  EXPECT_EQ(sparkline({}, 60, true), "");
}

StatsHistory busy() {
  Json json = stats_document();
  json["engine"]["disk_bytes_per_second"] = 4e9;
  StatsHistory history;
  for (int second = 0; second <= 70; ++second) {
    const double n = second;
    history.push(stats_snapshot(3600 + n,
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

TEST(StatsView, WhatIsShown) {
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
  young.push(stats_snapshot(70, {{decode_tokens, 5000}, {hits, 1}, {misses, 1}}));
  const std::string first = joined(stats_lines(young, "x", 5, "", {}));
  EXPECT_THAT(first, AllOf(HasSubstr("- of answers"), HasSubstr("50.0 % since the start"),
                           Not(HasSubstr("tok/s")), Not(HasSubstr("last "))));
}

TEST(StatsView, FitsTheScreen) {
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

TEST(StatsView, StringsOfTheServerCommandNothing) {
  Json json = stats_document();
  json["model"]["id"] = "a\x1b]0;title\x07\nb\xE2\x80\xAE";
  json["model"]["family"] = "\x1b[2J";
  StatsHistory history;
  history.push(stats_snapshot(1, {}, json));
  const std::string text = joined(stats_lines(history, "x\x1b", 5, "notice \x1b[1m\r", {}));
  EXPECT_THAT(text, Not(AnyOf(HasSubstr("\x1b"), HasSubstr("\x07"), HasSubstr("\r"),
                              HasSubstr("\xE2\x80\xAE"))));
  EXPECT_THAT(text, HasSubstr("\\nb"));
}

}  // namespace
}  // namespace wader
