// Small checks and conversions of HTTP's text (RFC 9110 section 5.6, RFC 3986). Pure. Bytes from
// the network come in; what is not as the RFC has it gives nullopt or false.
#pragma once

#include <cstdint>
#include <optional>
#include <span>
#include <string>
#include <string_view>

namespace wader {

std::string_view trim_blanks(std::string_view text);  // spaces and tabs at both ends

// A header's name, and what a header's value may hold: no control bytes but tab.
bool is_token(std::string_view text);
bool is_field_value(std::string_view text);

// %XX decoded. nullopt: a '%' without two hex digits, a control byte, or invalid UTF-8.
std::optional<std::string> percent_decode(std::string_view text);

// The path of a request's target, decoded, and its query as it came.
struct Target {
  std::string path, query;
  std::string authority;  // of the absolute form "http://authority/path"; else empty
};
// nullopt: neither "/path?query" nor "http://authority/path" nor "*", a "." or ".." segment (also
// one that was encoded), a fragment, or what percent_decode refuses.
std::optional<Target> parse_target(std::string_view target);

// "application/json", perhaps with a charset, which must be UTF-8 (RFC 8259 knows no other).
bool is_json_type(std::string_view content_type);

// A host as in Host and in origins: the name in lower case, without the final dot; IPv6 in
// brackets.
struct Authority {
  std::string host;
  std::optional<uint16_t> port;
};
std::optional<Authority> parse_authority(std::string_view text);

std::string base64(std::span<const uint8_t> bytes);  // RFC 4648 section 4

}  // namespace wader
