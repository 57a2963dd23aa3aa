#include "base/error.h"

#include <cerrno>
#include <cstring>

namespace wader {

Error errno_error(int errno_value, std::string_view what) {
  ErrorCode code = ErrorCode::io;
  if (errno_value == ENOENT) code = ErrorCode::not_found;
  if (errno_value == ENOSPC || errno_value == EDQUOT) code = ErrorCode::over_budget;
  char text[256];
  return Error{code, fmt::format("{}: {}", what, strerror_r(errno_value, text, sizeof text))};
}

}  // namespace wader
