// JSON schemas as types: every shape that harmony writes, each with the exact text.
#include <gtest/gtest.h>

#include "chat/harmony_testing.h"

namespace wader {
namespace {

// The section's text between the namespace's braces, for one function.
std::string rendered(const Json& function) {
  Json tools = Json::array();
  tools.push_back({{"type", "function"}, {"function", function}});
  const std::string text = render_harmony_tools(tools);
  const std::string head = "# Tools\n\n## functions\n\nnamespace functions {\n\n";
  const std::string tail = "\n\n} // namespace functions";
  EXPECT_EQ(text.substr(0, head.size()), head);
  EXPECT_EQ(text.substr(text.size() - tail.size()), tail);
  return text.substr(head.size(), text.size() - head.size() - tail.size());
}

// Text of the parameters of a function with one property "p" (or those given).
std::string parameter(std::string_view schema) {
  const Json function = {
      {"name", "f"},
      {"parameters", {{"type", "object"}, {"properties", {{"p", json_of(schema)}}}}}};
  const std::string text = rendered(function);
  const std::string head = "type f = (_: {\n", tail = "}) => any;";
  EXPECT_EQ(text.substr(0, head.size()), head);
  EXPECT_EQ(text.substr(text.size() - tail.size()), tail);
  return text.substr(head.size(), text.size() - head.size() - tail.size());
}

TEST(HarmonyTools, FunctionWithoutArguments) {
  for (const std::string_view parameters :
       {"null", "{}", R"({"type": "object"})", R"({"type": "object", "properties": {}})",
        R"({"type": "object", "properties": {}, "required": [], "additionalProperties": false})"}) {
    const Json function = {
        {"name", "now"}, {"description", "Tells the time."}, {"parameters", json_of(parameters)}};
    EXPECT_EQ(rendered(function), "// Tells the time.\ntype now = () => any;") << parameters;
  }
  EXPECT_EQ(rendered({{"name", "now"}}), "type now = () => any;");
}

TEST(HarmonyTools, EveryLineOfAFunctionsDescriptionIsAComment) {
  EXPECT_EQ(rendered({{"name", "f"}, {"description", "One.\r\n\nThree.\n"}}),
            "// One.\n// \n// Three.\ntype f = () => any;");
  EXPECT_EQ(rendered({{"name", "f"}, {"description", ""}}), "type f = () => any;");
}

TEST(HarmonyTools, SeveralFunctionsKeepTheirOrder) {
  Json tools = Json::array();
  for (const char* name : {"zeta", "alpha"})
    tools.push_back({{"type", "function"}, {"function", {{"name", name}}}});
  EXPECT_EQ(render_harmony_tools(tools),
            "# Tools\n\n## functions\n\nnamespace functions {\n\ntype zeta = () => any;\n\n"
            "type alpha = () => any;\n\n} // namespace functions");
}

TEST(HarmonyTools, PlainTypes) {
  EXPECT_EQ(parameter(R"({"type": "string"})"), "p?: string,\n");
  EXPECT_EQ(parameter(R"({"type": "integer"})"), "p?: number,\n");
  EXPECT_EQ(parameter(R"({"type": "number"})"), "p?: number,\n");
  EXPECT_EQ(parameter(R"({"type": "boolean"})"), "p?: boolean,\n");
  EXPECT_EQ(parameter(R"({"type": "null"})"), "p?: any,\n");
  EXPECT_EQ(parameter(R"({})"), "p?: any,\n");
  EXPECT_EQ(parameter(R"(true)"), "p?: any,\n");
  EXPECT_EQ(parameter(R"({"anyOf": [{"type": "string"}, {"type": "null"}]})"), "p?: any,\n");
  EXPECT_EQ(parameter(R"({"$ref": "#/$defs/x"})"), "p?: any,\n");
}

TEST(HarmonyTools, TypeLists) {
  EXPECT_EQ(parameter(R"({"type": ["integer", "null"]})"), "p?: number | null,\n");
  EXPECT_EQ(parameter(R"({"type": ["string"]})"), "p?: string,\n");
  EXPECT_EQ(parameter(R"({"type": []})"), "p?: any,\n");
}

TEST(HarmonyTools, Arrays) {
  EXPECT_EQ(parameter(R"({"type": "array", "items": {"type": "string"}})"), "p?: string[],\n");
  EXPECT_EQ(
      parameter(R"({"type": "array", "items": {"type": "array", "items": {"type": "integer"}}})"),
      "p?: number[][],\n");
  EXPECT_EQ(parameter(R"({"type": "array"})"), "p?: Array<any>,\n");
  EXPECT_EQ(parameter(R"({"type": "array", "items": {"type": "string", "enum": ["a", "b"]}})"),
            "p?: \"a\" | \"b\"[],\n");
  EXPECT_EQ(parameter(R"({"type": "array", "items": {"type": "object",
                          "properties": {"q": {"type": "string"}}, "required": ["q"]}})"),
            "p?: {\n    q: string,\n    }[],\n");
}

TEST(HarmonyTools, EnumsNullsAndDefaults) {
  EXPECT_EQ(parameter(R"({"type": "string", "enum": ["a", "b"]})"), "p?: \"a\" | \"b\",\n");
  EXPECT_EQ(parameter(R"({"type": "string", "enum": ["a", "b"], "default": "b"})"),
            "p?: \"a\" | \"b\", // default: b\n");
  EXPECT_EQ(parameter(R"({"type": "string", "enum": [], "default": "b"})"),
            "p?: string, // default: \"b\"\n");
  EXPECT_EQ(parameter(R"({"type": "integer", "enum": [1, 2], "default": 2})"),
            "p?: number, // default: 2\n");
  EXPECT_EQ(parameter(R"({"type": "string", "nullable": true, "default": "x"})"),
            "p?: string | null, // default: \"x\"\n");
  EXPECT_EQ(parameter(R"({"type": ["string", "null"], "nullable": true})"), "p?: string | null,\n");
  EXPECT_EQ(parameter(R"({"type": "number", "nullable": "yes", "default": 1.5})"),
            "p?: number, // default: 1.5\n");
  EXPECT_EQ(parameter(R"({"type": "array", "items": {"type": "string"}, "default": ["é", 1]})"),
            "p?: string[], // default: [\"é\",1]\n");
  EXPECT_EQ(parameter(R"({"type": "string", "default": null})"), "p?: string, // default: null\n");
}

TEST(HarmonyTools, CommentsAboveAProperty) {
  EXPECT_EQ(parameter(R"({"type": "string", "description": "D"})"), "// D\np?: string,\n");
  EXPECT_EQ(parameter(R"({"type": "string", "title": "T", "description": "D",
                          "examples": ["one", 2, "three"]})"),
            "// T\n//\n// D\n// Examples:\n// - \"one\"\n// - \"three\"\np?: string,\n");
  EXPECT_EQ(parameter(R"({"type": "string", "examples": []})"), "p?: string,\n");
}

TEST(HarmonyTools, RequiredProperties) {
  const Json function = {{"name", "f"}, {"parameters", json_of(R"({"type": "object", "properties": {
      "a": {"type": "string"}, "b": {"type": "string"}}, "required": ["b", 3]})")}};
  EXPECT_EQ(rendered(function), "type f = (_: {\na?: string,\nb: string,\n}) => any;");
}

TEST(HarmonyTools, ObjectsNest) {
  EXPECT_EQ(parameter(R"({"type": "object", "description": "Outer", "properties": {
                "inner": {"type": "object", "properties": {
                  "x": {"type": "number", "description": "X", "default": 0}}},
                "free": {"type": "object"}}, "required": ["inner"]})"),
            "// Outer\n"
            "p?:     // Outer\n"
            "{\n"
            "    inner: {\n"
            "        // X\n"
            "        x?: number, // default: 0\n"
            "        },\n"
            "    free?: {\n"
            "        },\n"
            "    },\n");
}

TEST(HarmonyTools, DescriptionOfTheParameters) {
  const Json function = {{"name", "f"},
                         {"parameters", json_of(R"({"type": "object", "description": "All of them",
                                                    "properties": {"a": {"type": "string"}}})")}};
  EXPECT_EQ(rendered(function), "type f = (_: // All of them\n{\na?: string,\n}) => any;");
}

TEST(HarmonyTools, UnionsOfAProperty) {
  EXPECT_EQ(parameter(R"({"description": "Size", "default": 10, "oneOf": [
                {"type": "string", "description": "hidden", "default": "big"},
                {"type": "number", "nullable": true, "description": "in mm"},
                {"type": "string", "enum": ["s", "m"], "default": "m"}]})"),
            "// Size\n"
            "// default: 10\n"
            "p?:\n"
            " | string // default: \"big\"\n"
            " | number | null // in mm\n"
            " | \"s\" | \"m\" // default: m\n"
            ",\n");
  // The property's text is its first variant's too: harmony then writes neither.
  EXPECT_EQ(
      parameter(R"({"description": "Same", "oneOf": [{"type": "string", "description": "Same"},
                          {"type": "number"}]})"),
      "p?:\n | string\n | number\n,\n");
  EXPECT_EQ(
      parameter(R"({"oneOf": [{"type": "object", "properties": {"k": {"type": "string"}}}]})"),
      "p?:\n | {\n   k?: string,\n   }\n,\n");
}

TEST(HarmonyTools, UnionsElsewhere) {
  EXPECT_EQ(parameter(R"({"type": "array", "items": {"oneOf": [
                {"type": "string", "description": "a word", "default": "w"}, {"type": "integer"}]}})"),
            "p?: \n     | string // a word default: \"w\"\n     | number[],\n");
}

// The schema comes from a client: whatever it holds, rendering ends and stays text.
TEST(HarmonyTools, OddSchemasRender) {
  for (const std::string_view schema :
       {R"({"type": 3})", R"({"type": "object", "properties": []})", R"({"oneOf": 1})",
        R"({"oneOf": []})", R"({"type": "object", "required": "p", "properties": {"q": 1}})",
        R"({"type": "array", "items": [1]})", R"({"enum": "x", "type": "string", "examples": {}})",
        R"({"title": 1, "description": [], "default": {}})"}) {
    EXPECT_FALSE(parameter(schema).empty()) << schema;
  }
}

}  // namespace
}  // namespace wader
