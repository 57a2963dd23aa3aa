#include "base/units.h"

#include <array>
#include <cctype>
#include <charconv>

#include "base/error.h"

namespace wader {

std::string format_bytes(uint64_t bytes) {
  if (bytes < kKiB) return fmt::format("{} B", bytes);
  static constexpr std::array kUnits = {"KiB", "MiB", "GiB", "TiB", "PiB", "EiB"};
  double value = static_cast<double>(bytes) / 1024.0;
  size_t unit = 0;
  while (value >= 1023.95 && unit + 1 < kUnits.size()) value /= 1024.0, ++unit;
  return fmt::format("{:.1f} {}", value, kUnits[unit]);
}

Result<uint64_t> parse_bytes(std::string_view text) {
  const auto bad = [&] {
    return invalid_argument_error("'{}' is not a size; write for example 4GiB, 512MiB or 1000000",
                                  text);
  };
  double value = 0;
  const auto [end, errc] =
      std::from_chars(text.data(), text.data() + text.size(), value, std::chars_format::fixed);
  if (errc != std::errc{} || value < 0) return bad();
  std::string unit;
  for (const char* c = end; c != text.data() + text.size(); ++c) {
    if (*c != ' ') unit.push_back(static_cast<char>(std::tolower(static_cast<unsigned char>(*c))));
  }
  double scale = 1;
  if (!unit.empty() && unit != "b") {
    const size_t power = std::string_view("kmgt").find(unit[0]);
    if (power == std::string_view::npos) return bad();
    const std::string_view rest = std::string_view(unit).substr(1);
    if (!rest.empty() && rest != "ib" && rest != "b" && rest != "i") return bad();
    const double base = rest == "b" ? 1000.0 : 1024.0;
    for (size_t i = 0; i <= power; ++i) scale *= base;
  }
  const double bytes = value * scale;
  if (!(bytes < 9.2e18)) return bad();
  return static_cast<uint64_t>(bytes);
}

}  // namespace wader
