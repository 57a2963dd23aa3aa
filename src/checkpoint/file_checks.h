// What the readers of several kinds of files check and say alike.
#pragma once

#include <algorithm>
#include <cstdint>
#include <string>
#include <string_view>
#include <utility>
#include <vector>

#include "base/error.h"
#include "base/json.h"
#include "base/result.h"
#include "checkpoint/json_events.h"

namespace wader {

// "name: message", unless the message begins with the name already.
inline Error named_error(Error error, std::string_view name) {
  return error.message.starts_with(name) ? error : std::move(error).within(name);
}

struct NamedSpan {
  std::string name;
  uint64_t offset_bytes, bytes;  // their sum does not overflow
};

// corrupt, with their names, when two of `spans` share a byte.
inline Status check_disjoint(std::vector<NamedSpan> spans) {
  std::sort(spans.begin(), spans.end(),
            [](const NamedSpan& a, const NamedSpan& b) { return a.offset_bytes < b.offset_bytes; });
  for (size_t i = 1; i < spans.size(); ++i)
    if (spans[i].offset_bytes < spans[i - 1].offset_bytes + spans[i - 1].bytes)
      return corrupt_error("sections {} and {} overlap", in_quotes(spans[i - 1].name),
                           in_quotes(spans[i].name));
  return {};
}

}  // namespace wader
