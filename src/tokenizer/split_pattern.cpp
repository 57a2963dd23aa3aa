#include "tokenizer/split_pattern.h"

#include <array>

#include "base/ascii.h"
#include "base/error.h"
#include "tokenizer/quote.h"

namespace wader {
namespace {

// Unicode's White_Space property, spelt out: PCRE2's \s adds U+180E, and \p{White_Space} needs
// PCRE2 10.40.
constexpr std::string_view kSpace =
    R"(\x{9}-\x{d}\x{20}\x{85}\x{a0}\x{1680}\x{2000}-\x{200a}\x{2028}\x{2029}\x{202f}\x{205f}\x{3000})";
constexpr std::string_view kNotSpace =
    R"(\x{0}-\x{8}\x{e}-\x{1f}\x{21}-\x{84}\x{86}-\x{9f}\x{a1}-\x{167f}\x{1681}-\x{1fff}\x{200b}-\x{2027})"
    R"(\x{202a}-\x{202e}\x{2030}-\x{205e}\x{2060}-\x{2fff}\x{3001}-\x{10ffff})";

bool is_digit(char c) {
  return c >= '0' && c <= '9';
}

class Translator {
 public:
  explicit Translator(std::string_view pattern) : rest_(pattern) {}

  Result<std::string> run() {
    while (!rest_.empty()) RETURN_IF_ERROR(item());
    return std::move(out_);
  }

 private:
  char peek(size_t i) const { return i < rest_.size() ? rest_[i] : '\0'; }
  void copy(size_t bytes) {
    out_.append(rest_.substr(0, bytes));
    rest_.remove_prefix(bytes);
  }
  Error refuse(size_t bytes) const {
    return unsupported_error("split pattern uses {}, which is not supported",
                             quote(rest_.substr(0, bytes)));
  }

  Status item() {
    switch (rest_[0]) {
      case '\\':
        return escape(/*in_class=*/false);
      case '[':
        return character_class();
      case '(':
        return group();
      case '{':
        return counted_repeat();
      case '^':  // line anchors in Ruby, subject anchors in PCRE2
      case '$':
      case '.':  // newline conventions differ
        return refuse(1);
      default:
        copy(1);
        return {};
    }
  }

  Status group() {
    static constexpr std::array<std::string_view, 7> kOpeners = {"(?:",  "(?i:", "(?=", "(?!",
                                                                 "(?<=", "(?<!", "(?>"};
    for (const std::string_view opener : kOpeners) {
      if (rest_.starts_with(opener)) {
        copy(opener.size());
        return {};
      }
    }
    if (peek(1) == '?' || peek(1) == '*') return refuse(4);  // other groups, inline options, verbs
    copy(1);
    return {};
  }

  // {m}, {m,} and {m,n}. Ruby and PCRE2 differ in {,n} and in what a following + or ? means.
  Status counted_repeat() {
    size_t at = 1;
    while (is_digit(peek(at))) ++at;
    const bool has_minimum = at > 1;
    if (peek(at) == ',') ++at;
    while (is_digit(peek(at))) ++at;
    if (!has_minimum || peek(at) != '}') return refuse(at + 1);
    if (peek(at + 1) == '+' || peek(at + 1) == '?') return refuse(at + 2);
    copy(at + 1);
    return {};
  }

  Status escape(bool in_class) {
    const char kind = peek(1);
    switch (kind) {
      case 's':
      case 'S':
        if (!in_class) out_ += kind == 's' ? "[" : "[^";
        out_ += in_class && kind == 'S' ? kNotSpace : kSpace;
        if (!in_class) out_ += "]";
        rest_.remove_prefix(2);
        return {};
      case 'r':
      case 'n':
      case 't':
      case 'f':
      case 'd':
      case 'D':
        copy(2);
        return {};
      case 'p':
      case 'P':
      case 'x':
        return braced_escape();
      default:  // \w, \b, \h, \v, \1 … differ between the engines; escaped punctuation does not
        if (kind <= ' ' || kind > '~' || is_ascii_alnum(kind)) return refuse(2);
        copy(2);
        return {};
    }
  }

  // \p{L}, \P{Lu}, \x{3000}
  Status braced_escape() {
    size_t at = 3;
    while (is_ascii_alnum(peek(at)) || peek(at) == '_' || peek(at) == '^') ++at;
    if (peek(2) != '{' || at == 3 || peek(at) != '}') return refuse(3);
    copy(at + 1);
    return {};
  }

  Status character_class() {
    copy(1);
    if (peek(0) == '^') copy(1);
    if (peek(0) == ']') return refuse(1);  // "[]" is read differently
    bool after_dash = false;               // an unescaped '-' that may open a range
    bool first = true;
    while (!rest_.empty() && rest_[0] != ']') {
      // Nested classes, POSIX names and intersections exist only in Ruby's syntax.
      if (rest_[0] == '[' || rest_.starts_with("&&")) return refuse(2);
      const bool is_set =
          rest_[0] == '\\' && std::string_view("sSdDpP").find(peek(1)) != std::string_view::npos;
      if (is_set && after_dash) return refuse(2);
      if (rest_[0] == '\\') {
        RETURN_IF_ERROR(escape(/*in_class=*/true));
        after_dash = false;
      } else {
        after_dash = rest_[0] == '-' && !first;
        copy(1);
      }
      if (is_set && peek(0) == '-' && peek(1) != ']') return refuse(1);  // [\s-x]: a range of what?
      first = false;
    }
    if (rest_.empty()) return unsupported_error("split pattern has a character class without end");
    copy(1);
    return {};
  }

  std::string_view rest_;
  std::string out_;
};

}  // namespace

Result<std::string> translate_split_pattern(std::string_view pattern) {
  if (pattern.empty()) return unsupported_error("split pattern is empty");
  if (pattern.size() > kMaxPatternBytes) {
    return unsupported_error("split pattern has {} bytes, more than {}", pattern.size(),
                             kMaxPatternBytes);
  }
  return Translator(pattern).run();
}

}  // namespace wader
