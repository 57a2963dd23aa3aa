#include "tokenizer/splitter.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#define PCRE2_CODE_UNIT_WIDTH 8
#include <pcre2.h>

#include <fstream>
#include <random>
#include <set>

#include "base/json.h"
#include "tokenizer/split_pattern.h"
#include "tokenizer/test_files.h"

namespace wader {
namespace {

using testing::HasSubstr;
using Pieces = std::vector<std::string>;

// The pattern of o200k, as GPT-OSS and the demo model carry it.
std::string read_o200k_pattern() {
  std::ifstream file(WADER_SOURCE_DIR "/models/demo/tokenizer.json");
  const std::string text((std::istreambuf_iterator<char>(file)), {});
  const Json json = parse_json(text, "tokenizer.json").value();
  return json["pre_tokenizer"]["pretokenizers"][0]["pattern"]["Regex"];
}

const std::string& o200k_pattern() {
  static const std::string pattern = read_o200k_pattern();
  return pattern;
}

Result<Pieces> split(const Splitter& splitter, std::string_view text) {
  PieceCursor cursor(splitter);
  cursor.start(text);
  Pieces pieces;
  for (std::string_view piece; cursor.next(piece);) pieces.emplace_back(piece);
  RETURN_IF_ERROR(cursor.status());
  return pieces;
}

Pieces split_by(std::string_view pattern, std::string_view text) {
  return split(Splitter::create(pattern).value(), text).value();
}

// Plain PCRE2 over the whole text: no windows, no limits, no JIT.
Pieces reference_split(std::string_view pattern, std::string_view text) {
  const std::string translated = translate_split_pattern(pattern).value();
  int code;
  PCRE2_SIZE offset;
  pcre2_code* regex =
      pcre2_compile(reinterpret_cast<PCRE2_SPTR>(translated.data()), translated.size(),
                    PCRE2_UTF | PCRE2_UCP, &code, &offset, nullptr);
  pcre2_match_data* data = pcre2_match_data_create_from_pattern(regex, nullptr);
  Pieces pieces;
  size_t at = 0;
  while (at < text.size()) {
    size_t begin = text.size(), end = begin;
    if (pcre2_match(regex, reinterpret_cast<PCRE2_SPTR>(text.data()), text.size(), at,
                    PCRE2_NO_UTF_CHECK, data, nullptr) > 0) {
      begin = pcre2_get_ovector_pointer(data)[0];
      end = pcre2_get_ovector_pointer(data)[1];
    }
    if (begin > at) pieces.emplace_back(text.substr(at, begin - at));
    if (end > begin) pieces.emplace_back(text.substr(begin, end - begin));
    at = end;
  }
  pcre2_match_data_free(data);
  pcre2_code_free(regex);
  return pieces;
}

// Case A-02: o200k is aware of case, keeps contractions as suffixes, takes digits in threes and
// swallows slashes and newlines after symbols; letters and symbols are Unicode's.
TEST(Splitter, SplitsAsO200kDoes) {
  const std::string pattern = o200k_pattern();
  EXPECT_EQ(split_by(pattern, "camelCase HTTPSession don't DON'T 1234567"),
            (Pieces{"camel", "Case", " HTTPSession", " don't", " DON'T", " ", "123", "456", "7"}));
  EXPECT_EQ(split_by(pattern, "a//\n\nb ->/\nx"), (Pieces{"a", "//\n\n", "b", " ->/\n", "x"}));
  EXPECT_EQ(split_by(pattern, "→/\n"), (Pieces{"→/\n"}));
  EXPECT_EQ(split_by(pattern, "  two   three \n\n  x"),
            (Pieces{" ", " two", "  ", " three", " \n\n", " ", " x"}));
}

TEST(Splitter, SplitsAsQwen3Does) {
  EXPECT_EQ(split_by(kTestPattern, "I don't 123 →/\n"),
            (Pieces{"I", " don", "'t", " ", "1", "2", "3", " →/\n"}));
}

TEST(Splitter, SpaceIsUnicodesWhiteSpace) {
  // U+180E was a space until Unicode 6.3, and still is one to PCRE2's \s. U+0085 and U+3000 are
  // spaces.
  EXPECT_EQ(split_by(R"(\s+|\S+)", "a\u180Eb\u0085\u3000c"),
            (Pieces{"a\u180Eb", "\u0085\u3000", "c"}));
  EXPECT_EQ(split_by(R"([\s]+|[^\s]+)", "a\u180Eb\u0085\u3000c"),
            (Pieces{"a\u180Eb", "\u0085\u3000", "c"}));
  EXPECT_EQ(split_by(R"([\S]+|[^\S]+)", "a\u180Eb\u0085\u3000c"),
            (Pieces{"a\u180Eb", "\u0085\u3000", "c"}));
}

TEST(Splitter, SpaceClassesAgreeOnEveryCharacter) {
  std::vector<Splitter> space, not_space;
  for (const char* pattern : {R"(x\s)", R"(x[\s])", R"(x[^\S])"})
    space.push_back(Splitter::create(pattern).value());
  for (const char* pattern : {R"(x\S)", R"(x[\S])", R"(x[^\s])"})
    not_space.push_back(Splitter::create(pattern).value());
  const std::set<uint32_t> white_space = {0x9,    0xA,    0xB,    0xC,    0xD,    0x20,   0x85,
                                          0xA0,   0x1680, 0x2000, 0x2001, 0x2002, 0x2003, 0x2004,
                                          0x2005, 0x2006, 0x2007, 0x2008, 0x2009, 0x200A, 0x2028,
                                          0x2029, 0x202F, 0x205F, 0x3000};
  for (uint32_t c = 0; c < 0x3100; ++c) {
    std::string text = "x";
    append_utf8(c, text);
    text += "y";  // after a match it is a piece of its own
    for (const Splitter& splitter : space)
      ASSERT_EQ(split(splitter, text)->size(), white_space.contains(c) ? 2u : 1u) << c;
    for (const Splitter& splitter : not_space)
      ASSERT_EQ(split(splitter, text)->size(), white_space.contains(c) ? 1u : 2u) << c;
  }
}

TEST(Splitter, TextBetweenMatchesIsAPieceToo) {
  EXPECT_EQ(split_by(R"(\d)", "ab12cd"), (Pieces{"ab", "1", "2", "cd"}));
  EXPECT_EQ(split_by(R"(\d)", std::string(3000, 'x')), (Pieces{std::string(3000, 'x')}));
  EXPECT_EQ(split_by(R"(\d)", std::string(3000, 'x') + "7"), (Pieces{std::string(3000, 'x'), "7"}));
  EXPECT_EQ(split_by(R"(\d)", ""), Pieces{});
  EXPECT_EQ(split(Splitter(), "all of it").value(), (Pieces{"all of it"}));
}

// Runs that end just before, at and after the window's edges must not be cut there.
TEST(Splitter, WindowsDoNotShow) {
  std::mt19937 random(3);
  const std::vector<std::string> units = {" ", "a", "A", "中", "\n",  "/",
                                          "1", "😀", "é", "'s", "\r\n"};
  const Splitter o200k = Splitter::create(o200k_pattern()).value();
  const Splitter slow = Splitter::create(o200k_pattern(), Splitter::Engine::interpreter).value();
  for (int round = 0; round < 25; ++round) {
    std::string text;
    while (text.size() < 6000) {
      const std::string& unit = units[random() % units.size()];
      const size_t lengths[] = {1 + random() % 3, 505 + random() % 12, 1020 + random() % 8};
      const size_t length = lengths[random() % 3];
      for (size_t i = 0; i < length; i += unit.size()) text += unit;
    }
    const Pieces expected = reference_split(o200k_pattern(), text);
    ASSERT_EQ(split(o200k, text).value(), expected);
    ASSERT_EQ(split(slow, text).value(), expected);
  }
}

// Case A-03 for the splitter alone, by both engines.
TEST(Splitter, EndlessRunsStayWithinTheBudget) {
  for (const auto engine : {Splitter::Engine::automatic, Splitter::Engine::interpreter}) {
    for (const std::string& pattern : {o200k_pattern(), std::string(kTestPattern)}) {
      const Splitter splitter = Splitter::create(pattern, engine).value();
      for (const std::string unit :
           {"a", "A", "^", " ", "\n", "中", "1", " \n", "中A", "\u0301", "a "}) {
        std::string text;
        while (text.size() < 100'000) text += unit;
        for (const std::string& variant : {text, text + "x", "中" + text + "/"}) {
          const auto pieces = split(splitter, variant);
          ASSERT_TRUE(pieces.ok()) << unit << ": " << pieces.error().message;
        }
      }
    }
  }
}

TEST(Splitter, HostilePatternsEndInAnError) {
  const std::string run(200'000, 'a');
  for (const auto engine : {Splitter::Engine::automatic, Splitter::Engine::interpreter}) {
    for (const std::string_view pattern :
         {R"((?:a+)+b|a)", R"((?:a|aa)+b|a)", R"(a*a*a*b|a)", R"(a+b|a)", R"((?=(?:a|a)+b)c|a)",
          R"((?:(?:a+)+)+[bc]d|a)", R"((?:a{1,50}){1,50}b|a)"}) {
      const auto splitter = Splitter::create(pattern, engine);
      ASSERT_TRUE(splitter.ok()) << pattern;
      const auto pieces = split(*splitter, run + "cb");
      ASSERT_FALSE(pieces.ok()) << pattern;
      EXPECT_THAT(pieces.error().message, HasSubstr("split pattern"));
      EXPECT_EQ(split(*splitter, "aab").ok(), true) << pattern;  // the splitter stays usable
    }
  }
}

TEST(SplitPattern, RefusesWhatPcre2ReadsDifferently) {
  for (const std::string_view pattern : {"^a",
                                         "a$",
                                         ".",
                                         "a.b",
                                         R"(\bx)",
                                         R"(\w+)",
                                         R"(\h)",
                                         R"(\v)",
                                         R"(\R)",
                                         R"(\X)",
                                         R"(\K)",
                                         R"((a)\1)",
                                         R"(\Ga)",
                                         R"(\pL)",
                                         R"(\x41)",
                                         R"(\u0041)",
                                         R"([[:alpha:]])",
                                         R"([a[bc]])",
                                         R"([a&&b])",
                                         R"([]a])",
                                         R"([^]a])",
                                         R"([\s-x])",
                                         R"([a-\s])",
                                         R"([\p{L}-x])",
                                         R"((?i)a)",
                                         R"((?R))",
                                         R"((?C1)a)",
                                         R"((?#x)a)",
                                         R"((*UTF)a)",
                                         R"((?P<n>a))",
                                         R"((?|a))",
                                         R"(a{,3})",
                                         R"(a{2}+)",
                                         R"(a{2,}?)",
                                         R"(a{x})",
                                         R"(a{)",
                                         R"([a)",
                                         "a\\",
                                         R"(\p{L)",
                                         R"(\p{}a)",
                                         ""}) {
    const auto splitter = Splitter::create(pattern);
    ASSERT_FALSE(splitter.ok()) << pattern;
    EXPECT_EQ(splitter.error().code, ErrorCode::unsupported);
    EXPECT_THAT(splitter.error().message, HasSubstr("split pattern"));
  }
}

TEST(SplitPattern, RefusesBrokenEmptyAndOversizedPatterns) {
  const std::string deep = std::string(3000, '(') + "a" + std::string(3000, ')');
  for (const std::string& pattern :
       {std::string("(a"), std::string("a)"), std::string(R"(\p{Nonsense})"), std::string("*a"),
        std::string("a*"), std::string("a|"), std::string("(?=a)"), std::string("[b-a]"), deep,
        std::string(10'000, 'a'), std::string(R"((?:(?:a{1,9999}){1,9999}){1,9999})")}) {
    const auto splitter = Splitter::create(pattern);
    ASSERT_FALSE(splitter.ok()) << pattern.substr(0, 40);
    EXPECT_EQ(splitter.error().code, ErrorCode::unsupported);
  }
}

TEST(SplitPattern, AcceptsTheFieldsPatterns) {
  for (
      const std::string_view pattern :
      {kTestPattern,
       // cl100k, with possessive repeats, and Qwen3.5's letters with marks
       std::string_view(
           R"((?i:'s|'t)|[^\r\n\p{L}\p{N}]?+\p{L}+|\p{N}{1,3}| ?[^\s\p{L}\p{N}]++[\r\n]*|\s+(?!\S)|\s+)"),
       std::string_view(
           R"([^\r\n\p{L}\p{N}]?[\p{L}\p{M}]+|\p{N}| ?[^\s\p{L}\p{M}\p{N}]+[\r\n]*|\s+)"),
       std::string_view(
           R"([!"#$%&'()*+,\-./:;<=>?@\[\\\]^_`{|}~][A-Za-z]+|[一-龥]+|[\x{3040}-\x{30ff}]+)")}) {
    EXPECT_TRUE(Splitter::create(pattern).ok()) << pattern;
  }
}

}  // namespace
}  // namespace wader
