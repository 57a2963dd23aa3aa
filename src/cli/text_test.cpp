#include "cli/text.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <cmath>

namespace wader {
namespace {

using testing::ElementsAre;
using testing::HasSubstr;

TEST(TerminalSafe, LeavesTextAlone) {
  for (const std::string text :
       {"", "plain", "tab\tand\nnewline", "Čeština 中文 हिन्दी 👩‍🚀 e\u0301",
        "\u200D\u00A0\u2028"}) {
    EXPECT_EQ(terminal_safe(text), text);
  }
}

TEST(TerminalSafe, DisarmsEveryControl) {
  EXPECT_EQ(terminal_safe("\x1b[31mred\x1b]0;title\x07"), "\uFFFD[31mred\uFFFD]0;title\uFFFD");
  EXPECT_EQ(terminal_safe("a\rb\bc\x7f"), "a\uFFFDb\uFFFDc\uFFFD");
  EXPECT_EQ(terminal_safe("\u009b31m"), "\uFFFD31m");  // C1: the one-character CSI
  EXPECT_EQ(terminal_safe("a\u202Eb\u2066c\u2069"), "a\uFFFDb\uFFFDc\uFFFD");
  EXPECT_EQ(terminal_safe(std::string_view("\0x", 2)), "\uFFFDx");
  // Every code point below U+0100, as UTF-8: only the two allowed controls survive.
  for (int c = 0; c < 0x100; ++c) {
    const std::string text = c < 0x80 ? std::string(1, static_cast<char>(c))
                                      : std::string{static_cast<char>(0xC0 | (c >> 6)),
                                                    static_cast<char>(0x80 | (c & 0x3F))};
    const bool control = (c < 0x20 && c != '\n' && c != '\t') || (c >= 0x7F && c < 0xA0);
    EXPECT_EQ(terminal_safe(text), control ? "\uFFFD" : text) << c;
  }
}

TEST(TerminalSafe, ReplacesInvalidUtf8) {
  EXPECT_EQ(terminal_safe("\xff\xfe"), "\uFFFD\uFFFD");
  EXPECT_EQ(terminal_safe("\xC0\xAF"), "\uFFFD\uFFFD");            // overlong
  EXPECT_EQ(terminal_safe("\xE0\x80\x9B"), "\uFFFD\uFFFD\uFFFD");  // an overlong CSI
  EXPECT_EQ(terminal_safe("\xED\xA0\x80"), "\uFFFD\uFFFD\uFFFD");  // surrogate
  EXPECT_EQ(terminal_safe("\xF4\x90\x80\x80"), "\uFFFD\uFFFD\uFFFD\uFFFD");
  EXPECT_EQ(terminal_safe("x\xE2\x82"), "x\uFFFD\uFFFD");    // cut short
  EXPECT_EQ(terminal_safe("\xE2\x1b[m"), "\uFFFD\uFFFD[m");  // a control inside a sequence
}

TEST(TerminalSafe, OneLine) {
  EXPECT_EQ(terminal_safe_line("a\nb\tc\x1b"), "a\\nb\\tc\uFFFD");
}

TEST(NearestName, FindsTypingMistakes) {
  const std::string_view names[] = {"install",       "list",    "chat",   "check",
                                    "--temperature", "--top-k", "--top-p"};
  EXPECT_EQ(nearest_name("instal", names), "install");
  EXPECT_EQ(nearest_name("chta", names), "chat");
  EXPECT_EQ(nearest_name("--temprature", names), "--temperature");
  EXPECT_EQ(nearest_name("--topk", names), "--top-k");
  EXPECT_EQ(nearest_name("zebra", names), "");
  EXPECT_EQ(nearest_name("", names), "");
  EXPECT_EQ(nearest_name(std::string(100'000, 'x'), names), "");
}

TEST(Format, Figures) {
  EXPECT_EQ(format_rate(0), "0 B/s");
  EXPECT_EQ(format_rate(999), "999.00 B/s");
  EXPECT_EQ(format_rate(2.5e9), "2.50 GB/s");
  EXPECT_EQ(format_rate(5e12), "5000.00 GB/s");
  EXPECT_EQ(format_rate(std::nan("")), "0 B/s");
  EXPECT_EQ(format_seconds(0.347), "0.35 s");
  EXPECT_EQ(format_seconds(75), "1:15");
  EXPECT_EQ(format_seconds(4000), "1:06:40");
  EXPECT_EQ(format_seconds(HUGE_VAL), "?");
  EXPECT_EQ(bar(0.5, 10), "#####.....");
  EXPECT_EQ(bar(-1, 4), "....");
  EXPECT_EQ(bar(7, 4), "####");
  EXPECT_EQ(bar(std::nan(""), 4), "....");
  EXPECT_EQ(pad_to("été", 5), "été  ");
}

TEST(Format, Wraps) {
  EXPECT_THAT(wrap("one two three", 7), ElementsAre("one two", "three"));
  EXPECT_THAT(wrap("a-very-long-word b", 4), ElementsAre("a-very-long-word", "b"));
  EXPECT_THAT(wrap("", 4), ElementsAre(""));
}

TEST(TokenIds, TakeListsAsPeopleWriteThem) {
  for (const char* text : {"1,2,3", "1 2 3", "[1, 2, 3]", " 1 ,2\n3\n", "1,\t2, 3"}) {
    const auto ids = parse_token_ids(text, 10);
    ASSERT_TRUE(ids.ok()) << text << ": " << ids.error().message;
    EXPECT_THAT(*ids, ElementsAre(1, 2, 3)) << text;
  }
  EXPECT_EQ(join_ids(std::vector<int32_t>{1, 2, 3}, " "), "1 2 3");
}

TEST(TokenIds, NameTheBadItem) {
  const auto message = [](std::string_view text) {
    return parse_token_ids(text, 10).error().message;
  };
  EXPECT_THAT(message("1,10"),
              HasSubstr("token id 10 (item 2) is outside the vocabulary: ids go from 0 to 9"));
  EXPECT_THAT(message("1,99999999999999999999999"), HasSubstr("outside the vocabulary"));
  EXPECT_THAT(message("1,-2"), HasSubstr("'-2' is not a whole number (item 2)"));
  EXPECT_THAT(message("1,,2"), HasSubstr("item 2"));
  EXPECT_THAT(message("1,2,"), HasSubstr("last comma"));
  EXPECT_THAT(message(",1"), HasSubstr("item 1"));
  EXPECT_THAT(message("1.5"), HasSubstr("'1.5'"));
  EXPECT_THAT(message("0x5"), HasSubstr("'0x5'"));
  for (const char* empty : {"", "  ", "[]", "[ ]"})
    EXPECT_THAT(message(empty), HasSubstr("empty")) << empty;
  EXPECT_FALSE(parse_token_ids("0", 0).ok());
}

}  // namespace
}  // namespace wader
