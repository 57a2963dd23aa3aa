#include "server/stop_strings.h"

#include <gtest/gtest.h>

#include <random>

namespace wader {
namespace {

struct Seen {
  std::string text;
  bool found = false;
};

Seen run(const std::vector<std::string>& stops, const std::vector<std::string>& pieces) {
  StopMatcher matcher(stops);
  Seen seen;
  for (const std::string& piece : pieces) seen.text += matcher.push(piece);
  seen.text += matcher.flush();
  seen.found = matcher.found();
  return seen;
}

void expect_seen(const std::vector<std::string>& stops, const std::vector<std::string>& pieces,
                 std::string_view text, bool found) {
  const Seen seen = run(stops, pieces);
  EXPECT_EQ(seen.text, text);
  EXPECT_EQ(seen.found, found);
}

// Case D-02: the alphabet that goes on after ABC, a stop in the middle, one that never completes.
TEST(StopStrings, AcrossPieces) {
  expect_seen({"DEFGHIJ"}, {"DE", "FG", "HIJ", "KLM"}, "", true);
  expect_seen({"beta gamma"}, {"alpha", " beta", " gam", "ma", " delta"}, "alpha ", true);
  expect_seen({"deltaX"}, {"alpha beta", " del", "ta", ""}, "alpha beta delta", false);
}

TEST(StopStrings, OnlyATailThatCanStillGrowIsHeld) {
  StopMatcher matcher({"beta gamma"});
  EXPECT_EQ(matcher.push("alpha b"), "alpha ");
  EXPECT_EQ(matcher.push("est"), "best");
  EXPECT_EQ(matcher.push(" beta gamm"), " ");
  EXPECT_EQ(matcher.push("o"), "beta gammo");
  EXPECT_EQ(matcher.push("beta beta g"), "beta ");
  EXPECT_EQ(matcher.flush(), "beta g");
  EXPECT_EQ(matcher.flush(), "");
  EXPECT_FALSE(matcher.found());
}

TEST(StopStrings, NothingComesAfterOneIsFound) {
  StopMatcher matcher({"\n\n"});
  EXPECT_EQ(matcher.push("one\n"), "one");
  EXPECT_EQ(matcher.push("\ntwo"), "");
  EXPECT_TRUE(matcher.found());
  EXPECT_EQ(matcher.push("three"), "");
  EXPECT_EQ(matcher.flush(), "");
}

TEST(StopStrings, WhichOfSeveral) {
  expect_seen({"abcdef", "cd"}, {"xabcdef"}, "xab", true);  // "cd" is complete first
  expect_seen({"cd", "bcd"}, {"abcd"}, "a", true);          // both end here: the longer one
  expect_seen({"x", "y"}, {"ay", "x"}, "a", true);
  expect_seen({"aab"}, {"aa", "aab"}, "aa", true);  // a match that begins within a failed one
}

TEST(StopStrings, CharactersOfSeveralBytes) {
  expect_seen({"→Ω"}, {"a→", "Ωb"}, "a", true);
  StopMatcher matcher({"→Ω"});
  EXPECT_EQ(matcher.push("→"), "");
  EXPECT_EQ(matcher.push("→"), "→");
  // "€" shares its first byte with "→": pieces are whole characters, so none is ever cut.
  EXPECT_EQ(matcher.push("€"), "→€");
}

TEST(StopStrings, WithoutAnyAllTextPasses) {
  StopMatcher matcher({});
  EXPECT_EQ(matcher.push("all of it"), "all of it");
  EXPECT_EQ(matcher.flush(), "");
}

// Over texts of two letters, where matches and near misses are everywhere: the cut into pieces
// never matters, and the result is the first complete match of a plain search.
TEST(StopStrings, TheCutNeverMatters) {
  std::mt19937 random(7);
  const auto text_of = [&](size_t bytes) {
    std::string text;
    for (size_t i = 0; i < bytes; ++i) text += random() % 2 ? 'a' : 'b';
    return text;
  };
  int found = 0;
  for (int round = 0; round < 3000; ++round) {
    std::vector<std::string> stops;
    for (size_t i = 0; i < 1 + random() % 3; ++i) stops.push_back(text_of(1 + random() % 7));
    const std::string text = text_of(random() % 24);
    Seen expected{text, false};
    for (size_t end = 1; end <= text.size() && !expected.found; ++end) {
      size_t longest = 0;
      for (const std::string& stop : stops)
        if (std::string_view(text).substr(0, end).ends_with(stop))
          longest = std::max(longest, stop.size());
      if (longest > 0) expected = {text.substr(0, end - longest), true};
    }
    std::vector<std::string> pieces;
    for (size_t at = 0; at < text.size(); at += pieces.back().size())
      pieces.push_back(text.substr(at, 1 + random() % 4));
    const Seen seen = run(stops, pieces);
    ASSERT_EQ(seen.text, expected.text) << text << " of " << pieces.size();
    ASSERT_EQ(seen.found, expected.found);
    found += seen.found;
  }
  EXPECT_GT(found, 500);
  EXPECT_LT(found, 2900);
}

}  // namespace
}  // namespace wader
