// JSON schemas as the TypeScript-like types that GPT-OSS was trained to read. Every space and comma
// follows harmony's renderer, odd ones too: the model has seen exactly these.
#include <algorithm>
#include <string>

#include "base/check.h"
#include "chat/harmony.h"

namespace wader {
namespace {

const Json* find(const Json& object, const char* key) {
  if (!object.is_object()) return nullptr;
  const auto found = object.find(key);
  return found == object.end() ? nullptr : &*found;
}

const std::string* find_string(const Json& object, const char* key) {
  const Json* value = find(object, key);
  return value != nullptr && value->is_string() ? &value->get_ref<const std::string&>() : nullptr;
}

const Json* find_array(const Json& object, const char* key) {
  const Json* value = find(object, key);
  return value != nullptr && value->is_array() ? value : nullptr;
}

bool is_enum(const Json& schema) {
  const Json* values = find_array(schema, "enum");
  return values != nullptr && !values->empty();
}

// `default: "x"`, but a member of an enum stands bare: `default: celsius`.
std::string default_text(const Json& schema, const Json& value) {
  if (!value.is_string()) return "default: " + json_text(value);
  const std::string& text = value.get_ref<const std::string&>();
  return is_enum(schema) ? "default: " + text : "default: \"" + text + '"';
}

// " // description default: 3", or nothing. `skip`, if any: a description written above.
std::string variant_comment(const Json& variant, const std::string* skip, bool no_description) {
  std::string comment;
  const std::string* description = find_string(variant, "description");
  if (description != nullptr && !no_description && (skip == nullptr || *description != *skip))
    comment += ' ' + *description;
  if (const Json* value = find(variant, "default")) comment += ' ' + default_text(variant, *value);
  return comment.empty() ? comment : " //" + comment;
}

// The type of `schema`; lines after the first begin with `indent`.
std::string type_of(const Json& schema, const std::string& indent);

std::string nullable_type_of(const Json& schema, const std::string& indent) {
  std::string type = type_of(schema, indent);
  const Json* nullable = find(schema, "nullable");
  const bool add_null = nullable != nullptr && nullable->is_boolean() && nullable->get<bool>() &&
                        type.find("null") == std::string::npos;
  return add_null ? type + " | null" : type;
}

// A union that is not a property's own: array items, a variant within a variant.
std::string union_type(const Json& variants, const std::string& indent) {
  std::string out;
  for (const Json& variant : variants) {
    out += '\n' + indent + " | " + nullable_type_of(variant, indent + "   ");
    out += variant_comment(variant, nullptr, false);
  }
  return out;
}

// ["integer", "null"] → "number | null". Empty when no name is in the list.
std::string type_list(const Json& types) {
  std::string out;
  for (const Json& type : types) {
    if (!type.is_string()) continue;
    const std::string& name = type.get_ref<const std::string&>();
    out += (out.empty() ? "" : " | ") + (name == "integer" ? std::string("number") : name);
  }
  return out;
}

std::string string_type(const Json& schema) {
  std::string out;
  if (const Json* values = find_array(schema, "enum")) {
    for (const Json& value : *values) {
      if (!value.is_string()) continue;
      out += (out.empty() ? "\"" : " | \"") + value.get_ref<const std::string&>() + '"';
    }
  }
  return out.empty() ? "string" : out;
}

// Lines above a property: title, description (a union places its own), examples.
std::string comments_above(const Json& schema, const std::string& indent) {
  std::string out;
  if (const std::string* title = find_string(schema, "title"))
    out += indent + "// " + *title + '\n' + indent + "//\n";
  const std::string* description = find_string(schema, "description");
  if (description != nullptr && find(schema, "oneOf") == nullptr)
    out += indent + "// " + *description + '\n';
  const Json* examples = find_array(schema, "examples");
  if (examples != nullptr && !examples->empty()) {
    out += indent + "// Examples:\n";
    for (const Json& example : *examples) {
      if (example.is_string())
        out += indent + "// - \"" + example.get_ref<const std::string&>() + "\"\n";
    }
  }
  return out;
}

// name?:
//  | string // default: "x"
//  | number // its description
// ,
std::string union_property(const std::string& label, const Json& schema, const Json& variants,
                           const std::string& indent) {
  std::string out;
  const std::string* description = find_string(schema, "description");
  const std::string* first =
      variants.empty() ? nullptr : find_string(variants.front(), "description");
  const bool above = description != nullptr && (first == nullptr || *first != *description);
  if (above) out += indent + "// " + *description + '\n';
  if (const Json* value = find(schema, "default"))
    out += indent + "// " + default_text(schema, *value) + '\n';
  out += indent + label + ":\n";
  for (size_t i = 0; i < variants.size(); ++i) {
    out += indent + " | " + nullable_type_of(variants[i], indent + "   ");
    // With a description above, the first variant's own is left out.
    out += variant_comment(variants[i], description, i == 0 && above) + '\n';
  }
  return out + indent + ",\n";
}

std::string property(const std::string& name, const Json& schema, bool required,
                     const std::string& indent) {
  const std::string label = required ? name : name + '?';
  std::string out = comments_above(schema, indent);
  if (const Json* variants = find_array(schema, "oneOf"))
    return out + union_property(label, schema, *variants, indent);
  out += indent + label + ": " + nullable_type_of(schema, indent + "    ") + ',';
  const Json* value = find(schema, "default");
  if (value != nullptr && find(schema, "oneOf") == nullptr)
    out += " // " + default_text(schema, *value);
  return out + '\n';
}

std::string object_type(const Json& schema, const std::string& indent) {
  std::string out;
  if (const std::string* description = find_string(schema, "description"))
    out += indent + "// " + *description + '\n';
  out += "{\n";
  const Json* properties = find(schema, "properties");
  if (properties != nullptr && properties->is_object()) {
    const Json* required = find_array(schema, "required");
    for (const auto& [name, value] : properties->items()) {
      const bool is_required = required != nullptr && std::find(required->begin(), required->end(),
                                                                Json(name)) != required->end();
      out += property(name, value, is_required, indent);
    }
  }
  return out + indent + '}';
}

std::string type_of(const Json& schema, const std::string& indent) {
  if (const Json* variants = find_array(schema, "oneOf")) return union_type(*variants, indent);
  if (const Json* types = find_array(schema, "type")) {
    std::string list = type_list(*types);
    if (!list.empty()) return list;
  }
  const std::string* type = find_string(schema, "type");
  if (type == nullptr) return "any";
  if (*type == "object") return object_type(schema, indent);
  if (*type == "string") return string_type(schema);
  if (*type == "number" || *type == "integer") return "number";
  if (*type == "boolean") return "boolean";
  if (*type == "array") {
    const Json* items = find(schema, "items");
    return items == nullptr ? "Array<any>" : type_of(*items, indent) + "[]";
  }
  return "any";
}

// The format writes a function without arguments as () => any. OpenAI clients send an object schema
// without properties for it.
bool takes_arguments(const Json* parameters) {
  if (parameters == nullptr || parameters->is_null() || parameters->empty()) return false;
  const std::string* type = find_string(*parameters, "type");
  if (find(*parameters, "oneOf") != nullptr || (type != nullptr && *type != "object")) return true;
  const Json* properties = find(*parameters, "properties");
  return properties != nullptr && properties->is_object() && !properties->empty();
}

// Every line of a function's description as a comment.
std::string description_comment(const std::string& text) {
  std::string out;
  for (size_t begin = 0; begin < text.size();) {
    const size_t end = std::min(text.find('\n', begin), text.size());
    const size_t trimmed = end > begin && text[end - 1] == '\r' ? end - 1 : end;
    out += "// " + text.substr(begin, trimmed - begin) + '\n';
    begin = end + 1;
  }
  return out;
}

}  // namespace

std::string render_harmony_tools(const Json& tools) {
  std::string out = "# Tools\n\n## functions\n\nnamespace functions {\n\n";
  for (const Json& tool : tools) {
    const Json& function = tool["function"];
    if (const std::string* description = find_string(function, "description"))
      out += description_comment(*description);
    const std::string* name = find_string(function, "name");
    CHECK(name != nullptr);
    const Json* parameters = find(function, "parameters");
    out += "type " + *name + " = ";
    out += takes_arguments(parameters) ? "(_: " + type_of(*parameters, "") + ")" : "()";
    out += " => any;\n\n";
  }
  return out + "} // namespace functions";
}

}  // namespace wader
