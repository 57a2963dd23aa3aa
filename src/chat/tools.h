// What the JSON door and the renderers share: reading request fields, the check of a tools list.
#pragma once

#include <string_view>

#include "base/json.h"
#include "base/result.h"

namespace wader {

// Value of `key` in an object; nullptr when absent or null, as clients mean the same by both.
const Json* find_field(const Json& object, std::string_view key);

// Checks the OpenAI form of a tools list, whatever format renders it later. Errors name the field:
// "tools[1].function.name is missing".
Status check_tools(const Json& tools);

}  // namespace wader
