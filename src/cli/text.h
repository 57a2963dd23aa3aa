// Pure helpers on text: what a terminal may be shown, how figures read, which name was meant.
#pragma once

#include <cstdint>
#include <span>
#include <string>
#include <string_view>
#include <vector>

#include "base/result.h"

namespace wader {

// `text` without anything that could command a terminal: C0 and C1 controls except \n and \t, DEL,
// and the bidirectional overrides and isolates (U+202A…202E, U+2066…2069) come out as U+FFFD, and
// so does invalid UTF-8. The pieces of a stream may be passed one by one when each is whole UTF-8.
std::string terminal_safe(std::string_view text);
// The same on one line: \n and \t become visible as "\n" and "\t".
std::string terminal_safe_line(std::string_view text);

// The candidate nearest to `typed` by edit distance with transpositions, or empty when none is
// near.
std::string_view nearest_name(std::string_view typed, std::span<const std::string_view> candidates);

// 5 → "5.00 B/s", 2.5e9 → "2.50 GB/s". Rates are decimal, as disks are sold.
std::string format_rate(double bytes_per_second);
// 0.35 → "0.35 s", 75 → "1:15", 4000 → "1:06:40".
std::string format_seconds(double seconds);
// "####....": `filled` of `width` cells, for fractions outside [0, 1] too.
std::string bar(double fraction, int width);
// Lines of at most `width` columns, broken at spaces; a longer word stands alone.
std::vector<std::string> wrap(std::string_view text, size_t width);
// Columns a terminal needs for `text`, one a code point (the program's own texts hold no wide
// ones).
size_t columns_of(std::string_view text);
std::string pad_to(std::string_view text, size_t columns);

// "a,b,c" → its items, empty ones too.
std::vector<std::string_view> split_list(std::string_view text);
// "1,2,3", "1 2 3" or "[1, 2, 3]" → ids, at least one, each in [0, limit). The error names the
// first bad item.
Result<std::vector<int32_t>> parse_token_ids(std::string_view text, uint32_t limit);
std::string join_ids(std::span<const int32_t> ids, std::string_view separator);

}  // namespace wader
