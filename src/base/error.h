// Error makers with fmt formatting: return corrupt_error("{}: bad magic", path);
#pragma once

#include <fmt/format.h>

#include "base/result.h"

namespace wader {

#define WADER_ERROR_MAKER(name)                                                      \
  template <typename... Args>                                                        \
  Error name##_error(fmt::format_string<Args...> format, Args&&... args) {           \
    return Error{ErrorCode::name, fmt::format(format, std::forward<Args>(args)...)}; \
  }
WADER_ERROR_MAKER(invalid_argument)
WADER_ERROR_MAKER(not_found)
WADER_ERROR_MAKER(already_exists)
WADER_ERROR_MAKER(corrupt)
WADER_ERROR_MAKER(unsupported)
WADER_ERROR_MAKER(io)
WADER_ERROR_MAKER(over_budget)
WADER_ERROR_MAKER(cancelled)
#undef WADER_ERROR_MAKER

// "what: No such file or directory", with the code that fits errno: ENOENT not_found,
// ENOSPC/EDQUOT over_budget, the rest io.
Error errno_error(int errno_value, std::string_view what);

}  // namespace wader
