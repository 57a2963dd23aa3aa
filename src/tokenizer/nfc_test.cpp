#include "tokenizer/nfc.h"

#include <gtest/gtest.h>
#include <utf8proc.h>

#include <cstdlib>
#include <random>

#include "tokenizer/utf8.h"

namespace wader {
namespace {

TEST(Nfc, ComposesAndOrders) {
  EXPECT_EQ(to_nfc("Cafe\u0301 ole\u0301"), "Caf\u00E9 ol\u00E9");
  EXPECT_EQ(to_nfc("\u1112\u1161\u11AB"), "\uD55C");    // Hangul
  EXPECT_EQ(to_nfc("\u212B"), "\u00C5");                // a singleton
  EXPECT_EQ(to_nfc("q\u0307\u0323"), "q\u0323\u0307");  // ordered, nothing to compose
  EXPECT_EQ(to_nfc("\u1E0B\u0323"), "\u1E0D\u0307");    // taken apart and composed otherwise
  EXPECT_EQ(to_nfc("\u0958"), "\u0915\u093C");          // excluded from composition
  EXPECT_EQ(to_nfc(">\u0338"), "\u226F");               // an ASCII base
  EXPECT_EQ(to_nfc("\u0301a"), "\u0301a");              // a mark without base
  EXPECT_EQ(to_nfc("\uAC00\u11A7 \uAC00\u11A8"), "\uAC00\u11A7 \uAC01");  // not swallowed
  EXPECT_EQ(to_nfc(""), "");
  EXPECT_EQ(to_nfc("a\u0300"), "\u00E0");  // at the end, after ASCII
}

TEST(Nfc, QuickCheckHoldsWhereNothingChanges) {
  for (uint32_t code_point = 0; code_point < 0x300; ++code_point) {
    std::string text = "a";
    append_utf8(code_point, text);
    EXPECT_TRUE(is_trivially_nfc(text));
    EXPECT_EQ(to_nfc(text), text);
  }
  EXPECT_FALSE(is_trivially_nfc("e\u0301"));
}

// Segments, ordering and scratch are ours; utf8proc_map does the same on short texts.
TEST(Nfc, EqualsUtf8procOnRandomText) {
  std::mt19937 random(7);
  const std::vector<std::pair<uint32_t, uint32_t>> ranges = {
      {0x20, 0x7E},     {0xC0, 0x17F},    {0x300, 0x36F},   {0x591, 0x5C7},
      {0x915, 0x94D},   {0x1100, 0x11A6}, {0x11A8, 0x11FF}, {0xAC00, 0xAC40},
      {0x3041, 0x309A}, {0x1E00, 0x1EFF}, {0xF900, 0xFA20}};
  for (int round = 0; round < 3000; ++round) {
    std::string text;
    for (auto length = random() % 30; length > 0; --length) {
      const auto [first, last] = ranges[random() % ranges.size()];
      append_utf8(first + static_cast<uint32_t>(random() % (last - first + 1)), text);
    }
    utf8proc_uint8_t* expected =
        utf8proc_NFC(reinterpret_cast<const utf8proc_uint8_t*>(text.c_str()));
    ASSERT_NE(expected, nullptr);
    const std::string copy = reinterpret_cast<const char*>(expected);
    std::free(expected);
    ASSERT_EQ(to_nfc(text), copy) << text;
  }
}

// 400,000 marks in two alternating classes: 4e10 swaps for a bubble sort.
TEST(Nfc, EndlessMarksTakeLinearithmicTime) {
  std::string text = "x";
  for (int i = 0; i < 200'000; ++i) text += "\u0307\u0323";
  std::string expected = "\u1E8B";  // x composes with the first U+0307; marks below do not block it
  for (int i = 0; i < 200'000; ++i) expected += "\u0323";
  for (int i = 1; i < 200'000; ++i) expected += "\u0307";
  EXPECT_TRUE(to_nfc(text) == expected);
}

}  // namespace
}  // namespace wader
