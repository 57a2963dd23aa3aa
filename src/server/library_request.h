// Bodies of POST /wader/models as data. Pure but for looking whether a path is there.
#pragma once

#include <string>
#include <string_view>
#include <vector>

#include "server/api.h"

namespace wader {

struct InstallRequest {
  std::string source, name;            // the name that `wader install` will give it
  std::vector<std::string> arguments;  // of `wader install`, after the source
};
ApiResult<InstallRequest> parse_install(const Json& body);
// "{}" or nothing: what needs no more than its path.
std::optional<ApiError> check_empty_body(std::string_view body);

}  // namespace wader
