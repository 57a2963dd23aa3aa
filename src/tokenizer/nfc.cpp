#include "tokenizer/nfc.h"

#include <utf8proc.h>

#include <algorithm>
#include <vector>

#include "base/check.h"
#include "tokenizer/utf8.h"

namespace wader {
namespace {

constexpr auto kOptions = static_cast<utf8proc_option_t>(UTF8PROC_STABLE | UTF8PROC_COMPOSE);

utf8proc_propval_t combining_class(utf8proc_int32_t code_point) {
  return utf8proc_get_property(code_point)->combining_class;
}

// Canonical ordering: every run of marks (class > 0) sorted by class, equal ones kept in their
// order.
void order_marks(std::vector<utf8proc_int32_t>& code_points) {
  const auto is_starter = [](utf8proc_int32_t c) { return combining_class(c) == 0; };
  const auto by_class = [](utf8proc_int32_t a, utf8proc_int32_t b) {
    return combining_class(a) < combining_class(b);
  };
  auto at = code_points.begin();
  while (at != code_points.end()) {
    const auto begin = std::find_if_not(at, code_points.end(), is_starter);
    at = std::find_if(begin, code_points.end(), is_starter);
    std::stable_sort(begin, at, by_class);
  }
}

// Orders and composes what is in `code_points`, appends it to `result` and empties it.
void flush(std::vector<utf8proc_int32_t>& code_points, std::string& result) {
  order_marks(code_points);
  const auto count = utf8proc_normalize_utf32(
      code_points.data(), static_cast<utf8proc_ssize_t>(code_points.size()), kOptions);
  CHECK(count >= 0);
  for (utf8proc_ssize_t i = 0; i < count; ++i)
    append_utf8(static_cast<uint32_t>(code_points[static_cast<size_t>(i)]), result);
  code_points.clear();
}

void append_nfc(std::string_view text, std::vector<utf8proc_int32_t>& scratch,
                std::string& result) {
  // The vowel before the first trailing consonant of Hangul, index 0 in the arithmetic of
  // composition. It composes with nothing, but utf8proc (2.8) lets a syllable before it swallow it.
  constexpr uint32_t kTrailingBase = 0x11A7;
  while (!text.empty()) {
    const uint32_t code_point = take_code_point(text);
    if (code_point == kTrailingBase) {
      flush(scratch, result);
      append_utf8(code_point, result);
      continue;
    }
    utf8proc_int32_t parts[16];  // canonical decompositions have at most 4
    int boundary_state = 0;
    const auto count = utf8proc_decompose_char(static_cast<utf8proc_int32_t>(code_point), parts,
                                               std::size(parts), kOptions, &boundary_state);
    CHECK(count > 0 && count <= static_cast<utf8proc_ssize_t>(std::size(parts)));
    scratch.insert(scratch.end(), parts, parts + count);
  }
  flush(scratch, result);
}

}  // namespace

bool is_trivially_nfc(std::string_view text) {
  // U+0300 is CC 80; below it stand only starters that decompose to what composes back to them.
  return std::none_of(text.begin(), text.end(),
                      [](char c) { return static_cast<uint8_t>(c) >= 0xCC; });
}

std::string to_nfc(std::string_view text) {
  const auto is_ascii = [](char c) { return static_cast<uint8_t>(c) < 0x80; };
  std::string result;
  result.reserve(text.size());
  std::vector<utf8proc_int32_t> scratch;
  // An ASCII character never composes with what precedes it, so the text falls into independent
  // segments of one ASCII character and the non-ASCII ones after it.
  while (!text.empty()) {
    const auto first = std::find_if_not(text.begin(), text.end(), is_ascii);
    auto plain = static_cast<size_t>(first - text.begin());
    if (plain < text.size() && plain > 0) --plain;
    result.append(text.substr(0, plain));
    text.remove_prefix(plain);
    if (text.empty()) break;
    const auto end = std::find_if(text.begin() + 1, text.end(), is_ascii);
    const auto length = static_cast<size_t>(end - text.begin());
    append_nfc(text.substr(0, length), scratch, result);
    text.remove_prefix(length);
  }
  return result;
}

}  // namespace wader
