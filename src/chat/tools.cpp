#include "chat/tools.h"

#include <fmt/format.h>

#include "base/error.h"
#include "tokenizer/quote.h"

namespace wader {
namespace {

bool deeper_than(const Json& value, int levels) {
  if (!value.is_structured()) return false;
  if (levels == 0) return true;
  for (const Json& child : value)
    if (deeper_than(child, levels - 1)) return true;
  return false;
}

Status check_tool(const Json& tool, const std::string& at) {
  if (!tool.is_object()) return invalid_argument_error("{} must be an object", at);
  const Json* type = find_field(tool, "type");
  if (type == nullptr) return invalid_argument_error("{}.type is missing", at);
  if (*type != "function") {
    return invalid_argument_error("{}.type {} is not supported: only 'function' is", at,
                                  quote(type->is_string() ? type->get<std::string>() : "?"));
  }
  const Json* function = find_field(tool, "function");
  if (function == nullptr) return invalid_argument_error("{}.function is missing", at);
  if (!function->is_object()) return invalid_argument_error("{}.function must be an object", at);
  const Json* name = find_field(*function, "name");
  if (name == nullptr) return invalid_argument_error("{}.function.name is missing", at);
  if (!name->is_string() || name->get_ref<const std::string&>().empty())
    return invalid_argument_error("{}.function.name must be a string with at least one letter", at);
  const Json* description = find_field(*function, "description");
  if (description != nullptr && !description->is_string())
    return invalid_argument_error("{}.function.description must be a string", at);
  const Json* parameters = find_field(*function, "parameters");
  if (parameters != nullptr && !parameters->is_object())
    return invalid_argument_error("{}.function.parameters must be a JSON schema object", at);
  return {};
}

}  // namespace

const Json* find_field(const Json& object, std::string_view key) {
  const auto found = object.find(std::string(key));
  return found == object.end() || found->is_null() ? nullptr : &*found;
}

Status check_tools(const Json& tools) {
  if (!tools.is_array()) return invalid_argument_error("tools must be a list");
  // The renderer recurses over schemas; parse_json() keeps this limit too, other callers may not.
  if (deeper_than(tools, kMaxJsonDepth))
    return invalid_argument_error("tools are nested deeper than {} levels", kMaxJsonDepth);
  for (size_t i = 0; i < tools.size(); ++i)
    RETURN_IF_ERROR(check_tool(tools[i], fmt::format("tools[{}]", i)));
  return {};
}

}  // namespace wader
