// Untrusted text in error messages: quoted, escaped to ASCII, cut short.
#pragma once

#include <string>
#include <string_view>

namespace wader {

std::string quote(
    std::string_view text);  // "'<|end|>'"; control characters and non-ASCII as \uXXXX

}  // namespace wader
