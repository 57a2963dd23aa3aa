// How long work reports where it is. The library calls it; the command line draws it.
#pragma once

#include <cstdint>
#include <functional>
#include <string_view>

namespace wader {

struct Progress {
  std::string_view phase;  // "trunk", "experts", "verify"
  uint64_t done_bytes = 0;
  uint64_t total_bytes = 0;
  std::string_view note = {};  // why it is slow or stands still, when that is known
};

// Called from the working thread, at most every few MiB. Returning false asks the work to stop; it
// then ends with ErrorCode::cancelled and leaves what it has for a later resume.
using ProgressFn = std::function<bool(const Progress&)>;

}  // namespace wader
