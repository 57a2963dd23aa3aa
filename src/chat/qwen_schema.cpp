#include "chat/qwen_schema.h"

#include <array>
#include <cmath>
#include <utility>

#include "chat/python_text.h"

namespace wader {
namespace {

// References and variants within each other; real schemas need two or three.
constexpr int kMaxDepth = 8;
// Variants of anyOf may name each other: bounds what they can cost together.
constexpr int kMaxSchemas = 1000;

const Json* member(const Json* object, std::string_view key) {
  if (object == nullptr || !object->is_object()) return nullptr;
  const auto found = object->find(std::string(key));
  return found == object->end() ? nullptr : &*found;
}

uint8_t kind_named(const Json& name) {
  constexpr std::array<std::pair<std::string_view, uint8_t>, 7> kNames = {{
      {"string", JsonKinds::string},
      {"number", JsonKinds::number},
      {"integer", JsonKinds::integer},
      {"boolean", JsonKinds::boolean},
      {"null", JsonKinds::null},
      {"object", JsonKinds::object},
      {"array", JsonKinds::array},
  }};
  if (!name.is_string()) return 0;
  for (const auto& [text, kind] : kNames)
    if (name.get_ref<const std::string&>() == text) return kind;
  return 0;
}

uint8_t kind_of(const Json& value) {
  if (value.is_string()) return JsonKinds::string;
  if (value.is_number_integer()) return JsonKinds::integer;
  if (value.is_number()) return JsonKinds::number;
  if (value.is_boolean()) return JsonKinds::boolean;
  if (value.is_object()) return JsonKinds::object;
  return value.is_array() ? JsonKinds::array : JsonKinds::null;
}

// "#/$defs/Place" within `root`; nullptr where it leads nowhere.
const Json* resolve(const Json& root, const Json& reference) {
  if (!reference.is_string()) return nullptr;
  std::string_view path = reference.get_ref<const std::string&>();
  if (!path.starts_with("#/") || path.size() == 2) return nullptr;
  path.remove_prefix(2);
  const Json* at = &root;
  while (at != nullptr && !path.empty()) {
    const std::string_view step = path.substr(0, path.find('/'));
    at = member(at, step);
    path.remove_prefix(std::min(step.size() + 1, path.size()));
  }
  return at;
}

class KindCollector {
 public:
  explicit KindCollector(const Json& root) : root_(root) {}

  uint8_t kinds(const Json& schema, int depth) {
    if (!schema.is_object() || depth > kMaxDepth || ++visited_ > kMaxSchemas) return 0;
    if (const Json* reference = member(&schema, "$ref")) {
      const Json* target = resolve(root_, *reference);
      return target == nullptr ? 0 : kinds(*target, depth + 1);
    }
    uint8_t found = named(schema);
    if (found == 0) found = by_values(schema);
    if (found == 0) found = variants(schema, depth);
    const Json* nullable = member(&schema, "nullable");
    if (found != 0 && nullable != nullptr && *nullable == true) found |= JsonKinds::null;
    return found;
  }

 private:
  static uint8_t named(const Json& schema) {
    const Json* type = member(&schema, "type");
    if (type == nullptr) return 0;
    if (!type->is_array()) return kind_named(*type);
    uint8_t found = 0;
    for (const Json& name : *type) found |= kind_named(name);
    return found;
  }

  static uint8_t by_values(const Json& schema) {
    uint8_t found = 0;
    if (const Json* value = member(&schema, "const")) found |= kind_of(*value);
    const Json* values = member(&schema, "enum");
    if (values == nullptr || !values->is_array()) return found;
    for (const Json& value : *values) found |= kind_of(value);
    return found;
  }

  // A variant that says nothing allows anything.
  uint8_t variants(const Json& schema, int depth) {
    uint8_t found = 0;
    for (const std::string_view key : {"anyOf", "oneOf", "allOf"}) {
      const Json* list = member(&schema, key);
      if (list == nullptr || !list->is_array()) continue;
      for (const Json& variant : *list) {
        const uint8_t more = kinds(variant, depth + 1);
        if (more == 0 && key != "allOf") return 0;
        found |= more;
      }
    }
    return found;
  }

  const Json& root_;
  int visited_ = 0;
};

std::string as_string(std::string_view text) {
  return json_text(Json(std::string(text)));
}

bool is_integral(const Json& number) {
  return number.is_number_integer() || std::trunc(number.get<double>()) == number.get<double>();
}

bool is_of(const Json& value, JsonKinds kinds) {
  if (value.is_number()) {
    return kinds.has(JsonKinds::number) || (kinds.has(JsonKinds::integer) && is_integral(value));
  }
  return !value.is_string() && kinds.has(kind_of(value));
}

}  // namespace

const Json* find_parameters(const Json& tools, std::string_view name) {
  if (!tools.is_array()) return nullptr;
  for (const Json& tool : tools) {
    const Json* function = member(&tool, "function");
    const Json* called = member(function, "name");
    if (called == nullptr || !called->is_string()) continue;
    if (called->get_ref<const std::string&>() == name) return member(function, "parameters");
  }
  return nullptr;
}

JsonKinds property_kinds(const Json* parameters, std::string_view property) {
  const Json* schema = member(member(parameters, "properties"), property);
  if (schema == nullptr) return {};
  return {KindCollector(*parameters).kinds(*schema, 0)};
}

bool may_be_property(const Json* parameters, std::string_view property) {
  const Json* properties = member(parameters, "properties");
  return properties == nullptr || !properties->is_object() ||
         properties->find(std::string(property)) != properties->end();
}

std::string value_as_json(std::string_view text, JsonKinds kinds) {
  const std::string_view bare = python_strip(text);
  if (kinds.has(JsonKinds::null) && (bare == "null" || bare == "None")) return "null";
  if (kinds.only_string() || kinds.has(JsonKinds::string)) return as_string(text);
  if (kinds.has(JsonKinds::boolean)) {
    if (bare == "true" || bare == "True") return "true";
    if (bare == "false" || bare == "False") return "false";
  }
  const auto parsed = parse_json(bare, "parameter");
  return parsed && is_of(*parsed, kinds) ? std::string(bare) : as_string(text);
}

}  // namespace wader
