// The server's OpenAPI 3.1 document, made from the tables that the parsers use (api_params.h).
// Source: the OpenAPI Specification 3.1.0.
#pragma once

#include <string_view>

#include "base/json.h"

namespace wader {

Json openapi_json(std::string_view version);

}  // namespace wader
