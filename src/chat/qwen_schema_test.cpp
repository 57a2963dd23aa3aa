#include "chat/qwen_schema.h"

#include <gtest/gtest.h>

#include "chat/harmony_testing.h"

namespace wader {
namespace {

uint8_t kinds(std::string_view schema) {
  const Json parameters =
      json_of(R"({"type": "object", "properties": {"p": )" + std::string(schema) +
              R"(}, "$defs": {"Place": {"type": "object"}, "a": {"$ref": "#/$defs/b"},
                                  "b": {"$ref": "#/$defs/a"}}})");
  return property_kinds(&parameters, "p").bits;
}

TEST(QwenSchema, KindsOfAProperty) {
  using Kinds = JsonKinds;
  EXPECT_EQ(kinds(R"({"type": "string"})"), Kinds::string);
  EXPECT_EQ(kinds(R"({"type": "integer"})"), Kinds::integer);
  EXPECT_EQ(kinds(R"({"type": ["number", "null"]})"), Kinds::number | Kinds::null);
  EXPECT_EQ(kinds(R"({"type": "boolean", "nullable": true})"), Kinds::boolean | Kinds::null);
  EXPECT_EQ(kinds(R"({"enum": ["a", 1, true]})"), Kinds::string | Kinds::integer | Kinds::boolean);
  EXPECT_EQ(kinds(R"({"const": [1]})"), Kinds::array);
  EXPECT_EQ(kinds(R"({"anyOf": [{"type": "integer"}, {"type": "null"}]})"),
            Kinds::integer | Kinds::null);
  EXPECT_EQ(kinds(R"({"oneOf": [{"type": "integer"}, {}]})"), 0) << "the second allows anything";
  EXPECT_EQ(kinds(R"({"allOf": [{"type": "integer"}, {"minimum": 1}]})"), Kinds::integer);
  EXPECT_EQ(kinds(R"({"$ref": "#/$defs/Place"})"), Kinds::object);
  EXPECT_EQ(kinds(R"({"anyOf": [{"$ref": "#/$defs/Place"}, {"type": "null"}]})"),
            Kinds::object | Kinds::null);
  for (const std::string_view unknown :
       {"{}", "true", "[]", "\"string\"", R"({"type": "date"})", R"({"type": 1})",
        R"({"anyOf": []})", R"({"anyOf": {}})", R"({"$ref": "#/$defs/a"})",
        R"({"$ref": "#/nowhere/else"})", R"({"$ref": "http://x/y"})", R"({"$ref": 1})",
        R"({"$ref": "#/"})"})
    EXPECT_EQ(kinds(unknown), 0) << unknown;
  EXPECT_EQ(property_kinds(nullptr, "p").bits, 0);
  const Json none = json_of(R"({"properties": []})");
  EXPECT_EQ(property_kinds(&none, "p").bits, 0);
}

// Variants that name each other must not multiply.
TEST(QwenSchema, HostileReferences) {
  Json parameters =
      json_of(R"({"properties": {"p": {"$ref": "#/$defs/a"}}, "$defs": {"a": {"allOf": []}}})");
  for (int i = 0; i < 100; ++i)
    parameters["$defs"]["a"]["allOf"].push_back({{"$ref", "#/$defs/a"}});
  EXPECT_EQ(property_kinds(&parameters, "p").bits, 0);
}

TEST(QwenSchema, FunctionsOfAToolsList) {
  const Json tools = json_of(R"([1, {}, {"function": {"name": 1}}, {"function": {"name": "f"}},
                                 {"function": {"name": "g", "parameters": {"properties": {"p": {}}}}}])");
  EXPECT_EQ(find_parameters(tools, "f"), nullptr);
  EXPECT_EQ(find_parameters(tools, "h"), nullptr);
  EXPECT_EQ(find_parameters(Json(), "f"), nullptr);
  const Json* parameters = find_parameters(tools, "g");
  ASSERT_NE(parameters, nullptr);
  EXPECT_TRUE(may_be_property(parameters, "p"));
  EXPECT_FALSE(may_be_property(parameters, "q"));
  EXPECT_TRUE(may_be_property(nullptr, "q"));
}

}  // namespace
}  // namespace wader
