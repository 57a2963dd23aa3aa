// A tokenizer.json's split pattern is written for Oniguruma (Ruby syntax, Unicode classes). This
// translates it to PCRE2 with the same meaning, or refuses it: a construct is accepted only when
// both engines read it alike.
#pragma once

#include <string>
#include <string_view>

#include "base/result.h"

namespace wader {

constexpr size_t kMaxPatternBytes = 8192;

// Error unsupported, naming the construct. What PCRE2 itself cannot compile is found later, by
// Splitter.
Result<std::string> translate_split_pattern(std::string_view pattern);

}  // namespace wader
