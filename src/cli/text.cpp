#include "cli/text.h"

#include <fmt/format.h>

#include <algorithm>
#include <charconv>
#include <cmath>

#include "base/error.h"

namespace wader {
namespace {

constexpr std::string_view kReplacement = "\xEF\xBF\xBD";

struct Decoded {
  char32_t point;
  size_t bytes;  // consumed; 1 and valid == false for a byte that starts nothing valid
  bool valid;
};

// Strict UTF-8 (RFC 3629): no overlong forms, no surrogates, nothing over U+10FFFF.
Decoded decode_utf8(std::string_view text) {
  const auto byte = [&](size_t i) { return static_cast<unsigned char>(text[i]); };
  const unsigned char lead = byte(0);
  if (lead < 0x80) return {lead, 1, true};
  const size_t bytes = lead >= 0xF0 ? 4 : lead >= 0xE0 ? 3 : 2;
  if (lead < 0xC2 || lead > 0xF4 || text.size() < bytes) return {0, 1, false};
  char32_t point = lead & (0x7Fu >> bytes);
  for (size_t i = 1; i < bytes; ++i) {
    if ((byte(i) & 0xC0) != 0x80) return {0, 1, false};
    point = (point << 6) | (byte(i) & 0x3Fu);
  }
  const bool overlong = (bytes == 3 && point < 0x800) || (bytes == 4 && point < 0x10000);
  const bool surrogate = point >= 0xD800 && point <= 0xDFFF;
  if (overlong || surrogate || point > 0x10FFFF) return {0, 1, false};
  return {point, bytes, true};
}

bool harmless(char32_t point) {
  if (point == '\n' || point == '\t') return true;
  if (point < 0x20 || (point >= 0x7F && point <= 0x9F)) return false;
  const bool bidi = (point >= 0x202A && point <= 0x202E) || (point >= 0x2066 && point <= 0x2069);
  return !bidi;
}

// Optimal string alignment: insertions, deletions, substitutions, swaps of neighbours.
size_t edit_distance(std::string_view a, std::string_view b) {
  std::vector<std::vector<size_t>> d(a.size() + 1, std::vector<size_t>(b.size() + 1));
  for (size_t i = 0; i <= a.size(); ++i) d[i][0] = i;
  for (size_t j = 0; j <= b.size(); ++j) d[0][j] = j;
  for (size_t i = 1; i <= a.size(); ++i) {
    for (size_t j = 1; j <= b.size(); ++j) {
      const size_t substitution = d[i - 1][j - 1] + (a[i - 1] != b[j - 1]);
      d[i][j] = std::min({d[i - 1][j] + 1, d[i][j - 1] + 1, substitution});
      if (i > 1 && j > 1 && a[i - 1] == b[j - 2] && a[i - 2] == b[j - 1]) {
        d[i][j] = std::min(d[i][j], d[i - 2][j - 2] + 1);
      }
    }
  }
  return d[a.size()][b.size()];
}

}  // namespace

std::string terminal_safe(std::string_view text) {
  std::string safe;
  safe.reserve(text.size());
  while (!text.empty()) {
    const Decoded next = decode_utf8(text);
    safe += next.valid && harmless(next.point) ? text.substr(0, next.bytes) : kReplacement;
    text.remove_prefix(next.bytes);
  }
  return safe;
}

std::string terminal_safe_line(std::string_view text) {
  std::string line;
  for (const char c : terminal_safe(text)) {
    if (c == '\n') {
      line += "\\n";
    } else if (c == '\t') {
      line += "\\t";
    } else {
      line += c;
    }
  }
  return line;
}

std::string_view nearest_name(std::string_view typed,
                              std::span<const std::string_view> candidates) {
  constexpr size_t kLongestName = 64;  // the distance is quadratic in the length
  if (typed.size() > kLongestName) return {};
  std::string_view best;
  size_t best_distance = 1 + std::max<size_t>(1, typed.size() / 3);
  for (const std::string_view candidate : candidates) {
    const size_t distance = edit_distance(typed, candidate);
    if (distance < best_distance) best = candidate, best_distance = distance;
  }
  return best;
}

std::string format_rate(double bytes_per_second) {
  if (!(bytes_per_second > 0)) return "0 B/s";
  static constexpr std::string_view kUnits[] = {"B/s", "kB/s", "MB/s", "GB/s"};
  size_t unit = 0;
  while (bytes_per_second >= 1000 && unit + 1 < std::size(kUnits)) bytes_per_second /= 1000, ++unit;
  return fmt::format("{:.2f} {}", bytes_per_second, kUnits[unit]);
}

std::string format_seconds(double seconds) {
  if (!(seconds >= 0) || seconds > 1e9) return "?";
  if (seconds < 60) return fmt::format("{:.2f} s", seconds);
  const auto whole = static_cast<int64_t>(std::llround(seconds));
  if (whole < 3600) return fmt::format("{}:{:02}", whole / 60, whole % 60);
  return fmt::format("{}:{:02}:{:02}", whole / 3600, whole / 60 % 60, whole % 60);
}

std::string bar(double fraction, int width) {
  const double clamped = fraction > 0 ? std::min(fraction, 1.0) : 0;  // NaN too
  const auto filled = static_cast<size_t>(std::lround(clamped * width));
  return std::string(filled, '#') + std::string(static_cast<size_t>(width) - filled, '.');
}

std::vector<std::string> wrap(std::string_view text, size_t width) {
  std::vector<std::string> lines(1);
  while (!text.empty()) {
    const std::string_view word = text.substr(0, text.find(' '));
    text.remove_prefix(std::min(text.size(), word.size() + 1));
    std::string& line = lines.back();
    if (line.empty()) {
      line = word;
    } else if (columns_of(line) + 1 + columns_of(word) <= width) {
      line.append(" ").append(word);
    } else {
      lines.emplace_back(word);
    }
  }
  return lines;
}

size_t columns_of(std::string_view text) {
  return static_cast<size_t>(std::count_if(text.begin(), text.end(), [](char c) {
    return (static_cast<unsigned char>(c) & 0xC0) != 0x80;
  }));
}

std::string pad_to(std::string_view text, size_t columns) {
  const size_t used = columns_of(text);
  return std::string(text) + std::string(used < columns ? columns - used : 0, ' ');
}

std::vector<std::string_view> split_list(std::string_view text) {
  std::vector<std::string_view> items;
  for (size_t begin = 0; begin <= text.size();) {
    const size_t end = std::min(text.find(',', begin), text.size());
    items.push_back(text.substr(begin, end - begin));
    begin = end + 1;
  }
  return items;
}

Result<std::vector<int32_t>> parse_token_ids(std::string_view text, uint32_t limit) {
  constexpr std::string_view kBlank = " \t\r\n";
  const auto trim = [&](std::string_view s) {
    const size_t begin = s.find_first_not_of(kBlank);
    if (begin == s.npos) return std::string_view();
    return s.substr(begin, s.find_last_not_of(kBlank) - begin + 1);
  };
  text = trim(text);
  if (text.size() >= 2 && text.front() == '[' && text.back() == ']') {
    text = trim(text.substr(1, text.size() - 2));
  }
  std::vector<int32_t> ids;
  while (!text.empty()) {
    const size_t end = std::min(text.find_first_of(", \t\r\n"), text.size());
    const std::string_view item = text.substr(0, end);
    uint64_t id = 0;
    const auto [stop, code] = std::from_chars(item.data(), item.data() + item.size(), id);
    const bool whole = !item.empty() && stop == item.data() + item.size();
    if (!whole && code != std::errc::result_out_of_range) {
      return invalid_argument_error("token ids: '{}' is not a whole number (item {})",
                                    item.substr(0, 40), ids.size() + 1);
    }
    if (code == std::errc::result_out_of_range || id >= limit) {
      return invalid_argument_error(
          "token id {} (item {}) is outside the vocabulary: ids go from 0 to {}",
          item.substr(0, 40), ids.size() + 1, int64_t{limit} - 1);
    }
    ids.push_back(static_cast<int32_t>(id));
    text.remove_prefix(end);
    text = trim(text);
    if (text.starts_with(',')) {
      text = trim(text.substr(1));
      if (text.empty()) return invalid_argument_error("token ids: nothing follows the last comma");
    }
  }
  if (ids.empty()) return invalid_argument_error("token ids: the list is empty");
  return ids;
}

std::string join_ids(std::span<const int32_t> ids, std::string_view separator) {
  return fmt::format("{}", fmt::join(ids, separator));
}

}  // namespace wader
