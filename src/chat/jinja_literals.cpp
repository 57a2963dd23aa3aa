#include "chat/jinja_literals.h"

#include <algorithm>

namespace wader {
namespace {

char unescaped(char c) {
  switch (c) {
    case 'n':
      return '\n';
    case 't':
      return '\t';
    case 'r':
      return '\r';
    default:
      return c;  // \\ \' \"
  }
}

// From an opening quote to behind the closing one.
size_t read_literal(std::string_view source, size_t at, std::string& text) {
  const char quote = source[at++];
  for (; at < source.size(); ++at) {
    if (source[at] == quote) return at + 1;
    if (source[at] == '\\' && at + 1 < source.size())
      text += unescaped(source[++at]);
    else
      text += source[at];
  }
  return at;
}

}  // namespace

std::vector<JinjaLiteral> jinja_literals(std::string_view source) {
  std::vector<JinjaLiteral> literals;
  for (size_t at = 0; (at = source.find('{', at)) != source.npos;) {
    const char kind = at + 1 < source.size() ? source[at + 1] : '\0';
    if (kind == '#') {
      at = std::min(source.find("#}", at), source.size());
      continue;
    }
    if (kind != '{' && kind != '%') {
      ++at;
      continue;
    }
    const char end = kind == '{' ? '}' : '%';
    for (at += 2; at < source.size() && !(source[at] == end && source.substr(at + 1, 1) == "}");) {
      if (source[at] != '\'' && source[at] != '"') {
        ++at;
        continue;
      }
      JinjaLiteral literal{at, ""};
      at = read_literal(source, at, literal.text);
      literals.push_back(std::move(literal));
    }
  }
  return literals;
}

}  // namespace wader
