// Tools and arguments in the XML-like form of Qwen3-Coder and Qwen3.5. Nothing in it is escaped:
// the models were trained on values as they are.
#include <fmt/format.h>

#include <algorithm>
#include <initializer_list>

#include "chat/python_text.h"
#include "chat/qwen.h"

namespace wader {
namespace {

const Json* member(const Json& object, const char* key) {
  if (!object.is_object()) return nullptr;
  const auto found = object.find(key);
  return found == object.end() ? nullptr : &*found;
}

std::string element(std::string_view name, std::string_view text) {
  return fmt::format("\n<{0}>{1}</{0}>", name, text);
}

// Fields that have no line of their own in the format.
std::string other_fields(const Json& object, std::initializer_list<std::string_view> written) {
  std::string out;
  if (!object.is_object()) return out;
  for (const auto& [key, value] : object.items()) {
    if (std::find(written.begin(), written.end(), key) != written.end()) continue;
    out += element(key, value.is_structured() ? python_json(value) : python_str(value));
  }
  return out;
}

std::string parameter(const std::string& name, const Json& schema) {
  std::string out = "\n<parameter>" + element("name", name);
  if (const Json* type = member(schema, "type")) out += element("type", python_str(*type));
  if (const Json* description = member(schema, "description"))
    out += element("description", python_strip(python_str(*description)));
  return out + other_fields(schema, {"name", "type", "description"}) + "\n</parameter>";
}

std::string tool(const Json& function) {
  std::string out = "\n<function>" + element("name", python_str(function["name"]));
  const Json* description = member(function, "description");
  if (description != nullptr && !description->is_null())
    out += element("description", python_strip(python_str(*description)));
  out += "\n<parameters>";
  if (const Json* parameters = member(function, "parameters")) {
    const Json* properties = member(*parameters, "properties");
    if (properties != nullptr && properties->is_object()) {
      for (const auto& [name, schema] : properties->items()) out += parameter(name, schema);
    }
    out += other_fields(*parameters, {"type", "properties"});
  }
  out += "\n</parameters>";
  return out + other_fields(function, {"type", "name", "description", "parameters"}) +
         "\n</function>";
}

}  // namespace

std::string qwen_coder_tools(const Json& tools) {
  std::string out;
  for (const Json& entry : tools) out += tool(entry["function"]);
  return out;
}

std::string qwen_parameters(const std::string& arguments, bool json_scalars) {
  if (python_strip(arguments).empty()) return "";
  const auto parsed = parse_json(arguments, "arguments");
  if (!parsed || !parsed->is_object()) return arguments + "\n";
  std::string out;
  for (const auto& [name, value] : parsed->items()) {
    const bool as_json = value.is_structured() || (json_scalars && !value.is_string());
    out += fmt::format("<parameter={}>\n{}\n</parameter>\n", name,
                       as_json ? python_json(value) : python_str(value));
  }
  return out;
}

}  // namespace wader
