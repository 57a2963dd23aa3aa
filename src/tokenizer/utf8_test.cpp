#include "tokenizer/utf8.h"

#include <gtest/gtest.h>

#include "tokenizer/tokenizer.h"

namespace wader {
namespace {

constexpr std::string_view kBad = kReplacementCharacter;

std::string bad(int count) {
  std::string text;
  for (int i = 0; i < count; ++i) text += kBad;
  return text;
}

TEST(Utf8, CodePointsRoundTripAndNothingElseIsValid) {
  for (uint32_t code_point = 0; code_point <= 0x110000;
       code_point += code_point < 0x11000 ? 1 : 251) {
    std::string text;
    append_utf8(code_point, text);
    const bool is_scalar = code_point < 0x110000 && (code_point < 0xD800 || code_point > 0xDFFF);
    ASSERT_EQ(valid_utf8_prefix(text) == text.size(), is_scalar) << code_point;
    if (!is_scalar) continue;
    std::string_view rest = text;
    ASSERT_EQ(take_code_point(rest), code_point);
    ASSERT_TRUE(rest.empty());
  }
}

// Examples of the WHATWG Encoding Standard's behaviour (Unicode 15, table 3-8 and its neighbours).
TEST(Utf8, ReplacesMaximalSubparts) {
  EXPECT_EQ(replace_invalid_utf8("plain"), "plain");
  EXPECT_EQ(replace_invalid_utf8("a\xFF"), std::string("a") + bad(1));
  EXPECT_EQ(replace_invalid_utf8("\xC0\x80"), bad(2));             // overlong
  EXPECT_EQ(replace_invalid_utf8("\xE0\x80\xAF"), bad(3));         // overlong
  EXPECT_EQ(replace_invalid_utf8("\xED\xA0\x80"), bad(3));         // a surrogate
  EXPECT_EQ(replace_invalid_utf8("\xF4\x90\x80\x80"), bad(4));     // over U+10FFFF
  EXPECT_EQ(replace_invalid_utf8("\xF0\x9F\x98z"), bad(1) + "z");  // cut short
  EXPECT_EQ(replace_invalid_utf8("\xE2\x82"), bad(1));             // cut short by the end
  EXPECT_EQ(replace_invalid_utf8("\xF1\x80\x80\xE1\x80\xC2\x62"), bad(3) + "b");
  EXPECT_EQ(replace_invalid_utf8("12345678\x80"
                                 "12345678"),
            std::string("12345678") + bad(1) + "12345678");
}

// However a stream is cut, the text is the same, every piece is whole UTF-8, and nothing valid is
// held back.
TEST(Utf8Stream, GivesTheSameTextAtEverySplit) {
  const std::vector<std::string> texts = {
      "aé中😀z",
      "\xF0\x9F\x98\xF0\x9F\x98\x80",
      "\xE2\x82\xE2\x82\xAC\xC3",
      "\xED\xA0\x80\xF4\x90\x80\x80\xC0\x80\xFF",
      "👩‍👩‍👧‍👦 e\xCC\x81",
      "\xF0\x9F\x98",
  };
  for (const std::string& text : texts) {
    const std::string expected = replace_invalid_utf8(text);
    for (size_t first = 0; first <= text.size(); ++first) {
      for (size_t second = first; second <= text.size(); ++second) {
        Utf8Stream stream;
        std::string result;
        for (const std::string& piece :
             {stream.push(text.substr(0, first)), stream.push(text.substr(first, second - first)),
              stream.push(text.substr(second)), stream.finish()}) {
          EXPECT_EQ(valid_utf8_prefix(piece), piece.size());
          result += piece;
        }
        ASSERT_EQ(result, expected) << first << " " << second;
      }
    }
  }
}

TEST(Utf8Stream, HoldsBackOnlyWhatIsUnfinished) {
  Utf8Stream stream;
  EXPECT_EQ(stream.push("a\xF0\x9F"), "a");
  EXPECT_EQ(stream.push("\x98"), "");
  EXPECT_EQ(stream.push("\x80 b"), "😀 b");
  EXPECT_EQ(stream.push("\xE4\xB8"), "");
  EXPECT_EQ(stream.push("x"), bad(1) + "x");
  EXPECT_EQ(stream.push("\xC3"), "");
  EXPECT_EQ(stream.finish(), bad(1));
  EXPECT_EQ(stream.finish(), "");
  EXPECT_EQ(stream.push("fresh"), "fresh");
}

}  // namespace
}  // namespace wader
