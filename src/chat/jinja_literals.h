// The string literals of a Jinja template. Wader runs no template: it reads off the released text
// which known format it is, and takes its wording from there.
#pragma once

#include <string>
#include <string_view>
#include <vector>

namespace wader {

struct JinjaLiteral {
  size_t offset;     // of its opening quote in the template
  std::string text;  // escapes resolved
};

// In order; comments and text outside of {{ }} and {% %} hold none. Any bytes will do; a literal
// without a closing quote ends with the template.
std::vector<JinjaLiteral> jinja_literals(std::string_view source);

}  // namespace wader
