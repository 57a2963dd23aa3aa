// Types of a tool's parameters, for calls whose values come as bare text.
#pragma once

#include <cstdint>
#include <string>
#include <string_view>

#include "base/json.h"

namespace wader {

// A set of JSON types. Empty: nothing is known.
struct JsonKinds {
  enum : uint8_t {
    string = 1,
    number = 2,
    integer = 4,
    boolean = 8,
    null = 16,
    object = 32,
    array = 64,
  };
  uint8_t bits = 0;

  bool has(uint8_t kind) const { return (bits & kind) != 0; }
  // Any text is such a value as it stands.
  bool only_string() const { return bits == 0 || bits == string; }
};

// The schema of the parameters of function `name` in an OpenAI list of tools; nullptr where the
// list has none. Takes any JSON.
const Json* find_parameters(const Json& tools, std::string_view name);

// What `parameters`, a JSON schema (or nullptr), allows for one property: its type, nullable, enum
// and const, the variants of anyOf, oneOf and allOf, and local references ("#/$defs/Place").
JsonKinds property_kinds(const Json* parameters, std::string_view property);
// False where the schema lists properties and this is none of them.
bool may_be_property(const Json* parameters, std::string_view property);

// `text` as JSON: verbatim where it is a value of one of the kinds (True, False and None count, as
// the templates write Python's spelling), else as a string.
std::string value_as_json(std::string_view text, JsonKinds kinds);

}  // namespace wader
