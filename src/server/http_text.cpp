#include "server/http_text.h"

#include <algorithm>
#include <charconv>

#include "base/ascii.h"
#include "tokenizer/utf8.h"

namespace wader {
namespace {

bool is_control(char c) {
  return static_cast<unsigned char>(c) < 0x20 || c == 0x7F;
}

int hex_digit(char c) {
  if (c >= '0' && c <= '9') return c - '0';
  const char small = ascii_lower(c);
  return small >= 'a' && small <= 'f' ? small - 'a' + 10 : -1;
}

bool has_dot_segment(std::string_view path) {
  for (size_t begin = 0; begin <= path.size();) {
    const size_t end = std::min(path.find('/', begin), path.size());
    const std::string_view segment = path.substr(begin, end - begin);
    if (segment == "." || segment == "..") return true;
    begin = end + 1;
  }
  return false;
}

// The name of a host: letters, digits, '-', '_' and '.', or an IPv6 address in brackets.
bool is_host(std::string_view host) {
  if (host.empty()) return false;
  if (host.front() == '[') {
    if (host.size() < 4 || host.back() != ']') return false;
    host = host.substr(1, host.size() - 2);
    return std::all_of(host.begin(), host.end(),
                       [](char c) { return hex_digit(c) >= 0 || c == ':' || c == '.'; });
  }
  if (host.front() == '.' || host.back() == '.') return false;
  return std::all_of(host.begin(), host.end(),
                     [](char c) { return is_ascii_alnum(c) || c == '-' || c == '_' || c == '.'; });
}

}  // namespace

std::string_view trim_blanks(std::string_view text) {
  const size_t begin = text.find_first_not_of(" \t");
  if (begin == text.npos) return {};
  return text.substr(begin, text.find_last_not_of(" \t") - begin + 1);
}

bool is_token(std::string_view text) {
  constexpr std::string_view kMarks = "!#$%&'*+-.^_`|~";
  return !text.empty() && std::all_of(text.begin(), text.end(), [&](char c) {
    return is_ascii_alnum(c) || kMarks.find(c) != kMarks.npos;
  });
}

bool is_field_value(std::string_view text) {
  return std::none_of(text.begin(), text.end(), [](char c) { return is_control(c) && c != '\t'; });
}

std::optional<std::string> percent_decode(std::string_view text) {
  std::string decoded;
  decoded.reserve(text.size());
  for (size_t i = 0; i < text.size(); ++i) {
    char c = text[i];
    if (c == '%') {
      if (i + 2 >= text.size()) return std::nullopt;
      const int high = hex_digit(text[i + 1]), low = hex_digit(text[i + 2]);
      if (high < 0 || low < 0) return std::nullopt;
      c = static_cast<char>(high * 16 + low);
      i += 2;
    }
    if (is_control(c)) return std::nullopt;
    decoded += c;
  }
  if (valid_utf8_prefix(decoded) != decoded.size()) return std::nullopt;
  return decoded;
}

std::optional<Target> parse_target(std::string_view target) {
  Target result;
  constexpr std::string_view kScheme = "http://";
  if (equal_ignoring_case(target.substr(0, kScheme.size()), kScheme)) {
    target.remove_prefix(kScheme.size());
    const size_t end = std::min(target.find_first_of("/?"), target.size());
    result.authority = target.substr(0, end);
    if (result.authority.empty()) return std::nullopt;
    target.remove_prefix(end);
    if (target.empty() || target.front() == '?') {
      result.path = "/";
      if (!target.empty()) result.query = target.substr(1);
      return target.find('#') == target.npos ? std::optional(result) : std::nullopt;
    }
  }
  if (target == "*") {
    result.path = "*";
    return result;
  }
  if (target.empty() || target.front() != '/' || target.find('#') != target.npos)
    return std::nullopt;
  const size_t mark = std::min(target.find('?'), target.size());
  auto path = percent_decode(target.substr(0, mark));
  if (!path || has_dot_segment(*path)) return std::nullopt;
  result.path = *std::move(path);
  if (mark < target.size()) result.query = target.substr(mark + 1);
  return result;
}

bool is_json_type(std::string_view content_type) {
  const size_t semicolon = std::min(content_type.find(';'), content_type.size());
  if (!equal_ignoring_case(trim_blanks(content_type.substr(0, semicolon)), "application/json"))
    return false;
  std::string_view parameters = content_type.substr(semicolon);
  while (!parameters.empty()) {
    parameters.remove_prefix(1);
    const size_t end = std::min(parameters.find(';'), parameters.size());
    const std::string parameter = lower_ascii(trim_blanks(parameters.substr(0, end)));
    if (parameter.starts_with("charset=") && parameter != "charset=utf-8" &&
        parameter != "charset=\"utf-8\"")
      return false;
    parameters.remove_prefix(end);
  }
  return true;
}

std::optional<Authority> parse_authority(std::string_view text) {
  Authority result;
  const size_t bracket = text.rfind(']');
  const size_t colon = text.find(':', bracket == text.npos ? 0 : bracket);
  std::string_view host = text.substr(0, std::min(colon, text.size()));
  if (colon != text.npos) {
    const std::string_view digits = text.substr(colon + 1);
    uint16_t port = 0;
    const auto [end, error] = std::from_chars(digits.data(), digits.data() + digits.size(), port);
    if (error != std::errc() || end != digits.data() + digits.size() || port == 0)
      return std::nullopt;
    result.port = port;
  }
  if (host.size() > 1 && host.back() == '.') host.remove_suffix(1);
  if (!is_host(host)) return std::nullopt;
  result.host = lower_ascii(host);
  return result;
}

std::string base64(std::span<const uint8_t> bytes) {
  constexpr char kDigits[] = "ABCDEFGHIJKLMNOPQRSTUVWXYZabcdefghijklmnopqrstuvwxyz0123456789+/";
  std::string text;
  text.reserve((bytes.size() + 2) / 3 * 4);
  for (size_t at = 0; at < bytes.size(); at += 3) {
    const size_t count = std::min<size_t>(3, bytes.size() - at);
    uint32_t group = 0;  // 24 bits
    for (size_t i = 0; i < 3; ++i) group = group << 8 | (i < count ? bytes[at + i] : 0u);
    for (size_t digit = 0; digit < 4; ++digit)
      text += digit <= count ? kDigits[group >> (18 - 6 * digit) & 63] : '=';
  }
  return text;
}

}  // namespace wader
