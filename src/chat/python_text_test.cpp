// Expected texts are what CPython 3.11 prints.
#include "chat/python_text.h"

#include <gtest/gtest.h>

#include "chat/harmony_testing.h"

namespace wader {
namespace {

TEST(PythonText, Json) {
  const std::string text = R"({"a": [1, -2.5, true, false, null, {}], "é\n\"\u0001": "\\/\u007f"})";
  EXPECT_EQ(python_json(json_of(text)),
            "{\"a\": [1, -2.5, true, false, null, {}], \"é\\n\\\"\\u0001\": \"\\\\/\x7f\"}");
  EXPECT_EQ(python_json(json_of("[]")), "[]");
  EXPECT_EQ(python_json(json_of("[ [ ] , { } ]")), "[[], {}]");
}

TEST(PythonText, Floats) {
  const std::pair<const char*, const char*> cases[] = {
      {"0.0", "0.0"},
      {"-0.0", "-0.0"},
      {"1.0", "1.0"},
      {"1.10", "1.1"},
      {"0.1", "0.1"},
      {"100.0", "100.0"},
      {"123456.789", "123456.789"},
      {"0.0001", "0.0001"},
      {"0.00012345", "0.00012345"},
      {"0.00001", "1e-05"},
      {"0.000012345", "1.2345e-05"},
      {"1e15", "1000000000000000.0"},
      {"123456789012345.6", "123456789012345.6"},
      {"1e16", "1e+16"},
      {"12345678901234567890.0", "1.2345678901234567e+19"},
      {"1.5e300", "1.5e+300"},
      {"-2e-300", "-2e-300"},
      {"5e-324", "5e-324"},
  };
  for (const auto& [json, text] : cases) EXPECT_EQ(python_json(json_of(json)), text);
  EXPECT_EQ(python_json(json_of("18446744073709551615")), "18446744073709551615");
  EXPECT_EQ(python_json(json_of("-9223372036854775808")), "-9223372036854775808");
}

TEST(PythonText, Str) {
  EXPECT_EQ(python_str(json_of(R"("a'b")")), "a'b");
  EXPECT_EQ(python_str(json_of("true")), "True");
  EXPECT_EQ(python_str(json_of("null")), "None");
  EXPECT_EQ(python_str(json_of("2.0")), "2.0");
  EXPECT_EQ(python_str(json_of(R"(["string", null, false, 1])")), "['string', None, False, 1]");
  EXPECT_EQ(python_str(json_of(R"({"a": ["it's", "\"", "'\"", "\\\n\t\r\u0001\u007f"]})")),
            R"({'a': ["it's", '"', '\'"', '\\\n\t\r\x01\x7f']})");
}

TEST(PythonText, Strip) {
  EXPECT_EQ(
      python_strip(" \t\n\v\f\r\x1c\x1d\x1e\x1f a b \u0085\u00a0\u1680\u2000\u200a\u2028\u2029"
                   "\u202f\u205f\u3000"),
      "a b");
  EXPECT_EQ(python_strip("\u3000\u2003x"), "x");
  EXPECT_EQ(python_strip(" \n "), "");
  EXPECT_EQ(python_strip(""), "");
  EXPECT_EQ(python_strip("\ufeffa\u200b"), "\ufeffa\u200b") << "no whitespace to Python";
  EXPECT_EQ(python_strip("é"), "é");
  EXPECT_EQ(python_strip(" \xFF\x80\x80 "), "\xFF\x80\x80") << "bytes that are no text";
  EXPECT_EQ(python_strip("\xE3\x80"), "\xE3\x80");
  EXPECT_EQ(python_strip("a\x80\x80\x80\x80\x80"), "a\x80\x80\x80\x80\x80");
}

TEST(PythonText, Newlines) {
  EXPECT_EQ(strip_newlines("\n\n a\n \n"), " a\n ");
  EXPECT_EQ(strip_newlines("\n\n"), "");
  EXPECT_EQ(strip_newlines_left("\n\r\na\n"), "\r\na\n");
  EXPECT_EQ(strip_newlines_right("\na\r\n"), "\na\r");
}

}  // namespace
}  // namespace wader
