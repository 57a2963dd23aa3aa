#include "chat/python_text.h"

#include <fmt/format.h>

#include <charconv>

#include "base/check.h"
#include "tokenizer/utf8.h"

namespace wader {
namespace {

// float.__repr__: the shortest digits that read back as the same number, with an exponent below
// 1e-4 and from 1e16 on.
std::string float_repr(double value) {
  char buffer[32];
  const auto [end, code] =
      std::to_chars(buffer, buffer + sizeof(buffer), value, std::chars_format::scientific);
  CHECK(code == std::errc{});
  std::string_view text(buffer, static_cast<size_t>(end - buffer));
  std::string out;
  if (text.starts_with('-')) {
    out = "-";
    text.remove_prefix(1);
  }
  const size_t e = text.find('e');
  if (e == text.npos) return out + std::string(text);  // not finite: JSON has no such number
  int exponent = 0;
  const std::string_view power = text.substr(text[e + 1] == '+' ? e + 2 : e + 1);
  std::from_chars(power.data(), power.data() + power.size(), exponent);
  std::string digits(text.substr(0, 1));
  if (e > 2) digits += text.substr(2, e - 2);
  const int count = static_cast<int>(digits.size());
  if (exponent < -4 || exponent >= 16) {
    out += digits[0];
    if (count > 1) out += '.' + digits.substr(1);
    return out + fmt::format("e{}{:02}", exponent < 0 ? '-' : '+', std::abs(exponent));
  }
  if (exponent < 0)
    return out + "0." + std::string(static_cast<size_t>(-exponent - 1), '0') + digits;
  const auto whole = static_cast<size_t>(exponent + 1);
  if (digits.size() <= whole) return out + digits + std::string(whole - digits.size(), '0') + ".0";
  return out + digits.substr(0, whole) + '.' + digits.substr(whole);
}

// repr() of a string; only characters below U+0080 are escaped.
std::string string_repr(const std::string& text) {
  const char quote = text.find('\'') != text.npos && text.find('"') == text.npos ? '"' : '\'';
  std::string out(1, quote);
  for (const char c : text) {
    if (c == quote || c == '\\') {
      out += '\\';
      out += c;
    } else if (c == '\n') {
      out += "\\n";
    } else if (c == '\r') {
      out += "\\r";
    } else if (c == '\t') {
      out += "\\t";
    } else if ((c >= 0 && c < ' ') || c == '\x7f') {
      out += fmt::format("\\x{:02x}", static_cast<int>(c));
    } else {
      out += c;
    }
  }
  return out + quote;
}

enum class Form { json, repr };

std::string write(const Json& value, Form form) {
  const bool json = form == Form::json;
  switch (value.type()) {
    case Json::value_t::object: {
      std::string out = "{";
      for (const auto& [key, child] : value.items()) {
        if (out.size() > 1) out += ", ";
        out += (json ? json_text(Json(key)) : string_repr(key)) + ": " + write(child, form);
      }
      return out + '}';
    }
    case Json::value_t::array: {
      std::string out = "[";
      for (const Json& child : value) {
        if (out.size() > 1) out += ", ";
        out += write(child, form);
      }
      return out + ']';
    }
    case Json::value_t::string:
      return json ? json_text(value) : string_repr(value.get_ref<const std::string&>());
    case Json::value_t::boolean:
      if (json) return value.get<bool>() ? "true" : "false";
      return value.get<bool>() ? "True" : "False";
    case Json::value_t::number_float:
      return float_repr(value.get<double>());
    case Json::value_t::number_integer:
    case Json::value_t::number_unsigned:
      return json_text(value);
    default:
      return json ? "null" : "None";
  }
}

bool is_space(uint32_t c) {
  return (c >= 0x09 && c <= 0x0D) || (c >= 0x1C && c <= 0x20) || c == 0x85 || c == 0xA0 ||
         c == 0x1680 || (c >= 0x2000 && c <= 0x200A) || c == 0x2028 || c == 0x2029 || c == 0x202F ||
         c == 0x205F || c == 0x3000;
}

// The character at the front of `text`; U+FFFD for bytes that are none.
uint32_t first_character(std::string_view text) {
  const Utf8Step step = utf8_step(text);
  if (step.kind != Utf8Step::Kind::valid) return 0xFFFD;
  return take_code_point(text);
}

}  // namespace

std::string python_json(const Json& value) {
  return write(value, Form::json);
}

std::string python_str(const Json& value) {
  if (value.is_string()) return value.get<std::string>();
  return write(value, Form::repr);
}

std::string_view python_strip(std::string_view text) {
  while (!text.empty() && is_space(first_character(text)))
    text.remove_prefix(utf8_step(text).bytes);
  while (!text.empty()) {
    size_t last = text.size() - 1;
    while (last > 0 && text.size() - last < 4 && (static_cast<uint8_t>(text[last]) & 0xC0) == 0x80)
      --last;
    const std::string_view tail = text.substr(last);
    if (utf8_step(tail).bytes != tail.size() || !is_space(first_character(tail))) break;
    text.remove_suffix(tail.size());
  }
  return text;
}

std::string_view strip_newlines_left(std::string_view text) {
  text.remove_prefix(std::min(text.find_first_not_of('\n'), text.size()));
  return text;
}

std::string_view strip_newlines_right(std::string_view text) {
  return text.substr(0, text.find_last_not_of('\n') + 1);
}

}  // namespace wader
