#include "tokenizer/bpe.h"

#include <gtest/gtest.h>

#include <algorithm>
#include <map>
#include <random>
#include <string>
#include <utility>
#include <vector>

namespace wader {
namespace {

// Merges over short strings: id = index into `words`.
struct Vocab {
  std::vector<std::string> words;
  std::vector<Merge> merges;
  std::map<std::string, uint32_t> ids;

  uint32_t add(const std::string& word) {
    const auto [at, is_new] = ids.emplace(word, static_cast<uint32_t>(words.size()));
    if (is_new) words.push_back(word);
    return at->second;
  }
  void merge(const std::string& left, const std::string& right) {
    const uint32_t l = add(left), r = add(right);
    merges.push_back({l, r, add(left + right)});
  }
  MergeTable table() const {
    MergeTable table;
    size_t culprit;
    EXPECT_TRUE(table.build(merges, &culprit));
    return table;
  }
  std::vector<std::string> run(const std::string& text,
                               void (BpeMerger::*how)(std::vector<uint32_t>&)) {
    std::vector<uint32_t> symbols;
    for (const char c : text) symbols.push_back(add(std::string(1, c)));
    const MergeTable merge_table = table();
    BpeMerger merger(merge_table);
    (merger.*how)(symbols);
    std::vector<std::string> result;
    for (const uint32_t id : symbols) result.push_back(words[id]);
    return result;
  }
};

using Words = std::vector<std::string>;

TEST(Bpe, LowestRankFirstThenLeftmost) {
  Vocab vocab;
  vocab.merge("b", "c");
  vocab.merge("a", "b");
  vocab.merge("a", "a");
  vocab.merge("aa", "aa");
  for (const auto how : {&BpeMerger::merge, &BpeMerger::merge_by_scan, &BpeMerger::merge_by_heap}) {
    EXPECT_EQ(vocab.run("abc", how), (Words{"a", "bc"}));
    EXPECT_EQ(vocab.run("aaaaa", how), (Words{"aaaa", "a"}));
    EXPECT_EQ(vocab.run("aaabc", how), (Words{"aa", "a", "bc"}));
    EXPECT_EQ(vocab.run("a", how), (Words{"a"}));
    EXPECT_EQ(vocab.run("", how), Words{});
    EXPECT_EQ(vocab.run("xyz", how), (Words{"x", "y", "z"}));
  }
}

// A merge may make a pair of lower rank possible, which then goes first (no trained vocabulary has
// that).
TEST(Bpe, RanksNeedNotGrow) {
  Vocab vocab;
  vocab.merge("ab", "c");
  vocab.merge("c", "d");
  vocab.merge("a", "b");
  for (const auto how : {&BpeMerger::merge_by_scan, &BpeMerger::merge_by_heap}) {
    EXPECT_EQ(vocab.run("abcabcd", how), (Words{"abc", "ab", "cd"}));
    EXPECT_EQ(vocab.run("abc", how), (Words{"abc"}));
  }
}

TEST(Bpe, HeapEqualsScanOnRandomVocabularies) {
  std::mt19937 random(11);
  for (int round = 0; round < 200; ++round) {
    Vocab vocab;
    for (const char* letter : {"a", "b", "c"}) vocab.add(letter);
    std::map<std::pair<std::string, std::string>, bool> seen;
    for (int i = 0; i < 40; ++i) {
      const std::string left = vocab.words[random() % vocab.words.size()];
      const std::string right = vocab.words[random() % vocab.words.size()];
      if (left.size() + right.size() <= 12 && !std::exchange(seen[{left, right}], true))
        vocab.merge(left, right);
    }
    std::shuffle(vocab.merges.begin(), vocab.merges.end(), random);
    std::string text;
    for (auto length = random() % 200; length > 0; --length)
      text += static_cast<char>('a' + random() % 3);
    ASSERT_EQ(vocab.run(text, &BpeMerger::merge_by_heap),
              vocab.run(text, &BpeMerger::merge_by_scan))
        << text;
  }
}

TEST(MergeTable, RefusesAPairNamedTwice) {
  MergeTable table;
  size_t culprit = 0;
  EXPECT_FALSE(table.build({{1, 2, 3}, {2, 1, 4}, {1, 2, 5}}, &culprit));
  EXPECT_EQ(culprit, 2u);
}

TEST(MergeTable, FindsAllAndOnlyItsPairs) {
  std::vector<Merge> merges;
  for (uint32_t i = 0; i < 20'000; ++i) merges.push_back({i % 141, i / 141, i});
  MergeTable table;
  size_t culprit;
  ASSERT_TRUE(table.build(merges, &culprit));
  for (uint32_t i = 0; i < 20'000; ++i) {
    ASSERT_EQ(table.rank(i % 141, i / 141), i);
    ASSERT_EQ(table.result(i), i);
    ASSERT_EQ(table.rank(i % 141, 1000 + i), MergeTable::kNoRank);
  }
  EXPECT_EQ(MergeTable().rank(1, 2), MergeTable::kNoRank);
  ASSERT_TRUE(table.build({}, &culprit));
  EXPECT_EQ(table.rank(1, 2), MergeTable::kNoRank);
}

}  // namespace
}  // namespace wader
