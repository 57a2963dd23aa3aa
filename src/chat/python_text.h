// Text as the Python behind released chat templates writes it (Jinja2 as the transformers library
// sets it up): models were trained on exactly these spaces and spellings.
#pragma once

#include <string>
#include <string_view>

#include "base/json.h"

namespace wader {

// json.dumps(value, ensure_ascii=False), which is the templates' `tojson`: {"a": [1, 2.0], "b":
// "é"}. Recursive: the caller bounds the depth.
std::string python_json(const Json& value);

// str(value), which is the templates' `string`: True, None, 1e-05, ['a', 1]; a string is itself.
std::string python_str(const Json& value);

// str.strip(): without the Unicode whitespace around it.
std::string_view python_strip(std::string_view text);

// lstrip("\n"), rstrip("\n"), strip("\n").
std::string_view strip_newlines_left(std::string_view text);
std::string_view strip_newlines_right(std::string_view text);
inline std::string_view strip_newlines(std::string_view text) {
  return strip_newlines_left(strip_newlines_right(text));
}

}  // namespace wader
