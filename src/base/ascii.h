// Letters as machines mean them: ASCII alone, whatever the locale. Other bytes stay as they are.
#pragma once

#include <string>
#include <string_view>

namespace wader {

constexpr bool is_ascii_alnum(char c) {
  return (c >= '0' && c <= '9') || (c >= 'a' && c <= 'z') || (c >= 'A' && c <= 'Z');
}
constexpr char ascii_lower(char c) {
  return c >= 'A' && c <= 'Z' ? static_cast<char>(c + ('a' - 'A')) : c;
}

std::string lower_ascii(std::string_view text);
bool equal_ignoring_case(std::string_view a, std::string_view b);

}  // namespace wader
