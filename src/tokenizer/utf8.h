// UTF-8 as the WHATWG Encoding Standard reads it: no overlong forms, no surrogates, nothing over
// U+10FFFF; an ill-formed sequence counts as its maximal subparts, each of which reads as one
// U+FFFD.
#pragma once

#include <cstddef>
#include <cstdint>
#include <string>
#include <string_view>

namespace wader {

inline constexpr std::string_view kReplacementCharacter = "\xEF\xBF\xBD";  // U+FFFD

struct Utf8Step {
  enum class Kind : uint8_t {
    valid,       // `bytes` hold one character
    invalid,     // `bytes` are one maximal subpart; no continuation can make them valid
    incomplete,  // `bytes` are all that is left and could still become a character
  };
  Kind kind;
  uint8_t bytes;  // 1 to 4
};

// The first character of `text`, which must not be empty.
Utf8Step utf8_step(std::string_view text);

// How many leading bytes of `text` are whole valid characters.
size_t valid_utf8_prefix(std::string_view text);

// `text` with U+FFFD for every maximal ill-formed subpart, an unfinished one at the end included.
std::string replace_invalid_utf8(std::string_view text);

// Decodes the character at the front of valid, non-empty UTF-8 and removes it.
uint32_t take_code_point(std::string_view& text);

// Appends one Unicode scalar value.
void append_utf8(uint32_t code_point, std::string& text);

}  // namespace wader
