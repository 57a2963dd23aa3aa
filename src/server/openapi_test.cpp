// The document, the tables and the parsers say the same.
#include "server/openapi.h"

#include <fmt/format.h>
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <set>

#include "server/api_params.h"
#include "server/api_testing.h"
#include "server/chat_answer.h"
#include "server/completion_answer.h"
#include "server/library_request.h"
#include "server/models_answer.h"
#include "server/responses_answer.h"

namespace wader {
namespace {

struct Endpoint {
  std::string_view path;
  std::span<const ApiParam> params;
  std::string least;  // a request to which parameters are added
  // What a request is refused for; "-" when it is accepted.
  std::string (*refusal)(const Json&);
};

template <auto kParse>
std::string param_of(const Json& body) {
  return refused(kParse(body, test_facts())).param;
}

std::vector<Endpoint> endpoints() {
  return {
      {"/v1/chat/completions", chat_params(),
       R"({"messages": [{"role": "user", "content": "x"}], "logprobs": true})",
       param_of<parse_chat_completion>},
      {"/v1/completions", completion_params(), R"({"prompt": "x"})", param_of<parse_completion>},
      {"/v1/responses", responses_params(), R"({"input": "x"})", param_of<parse_responses>},
      {"/tokenize", tokenize_params(), R"({"prompt": "x"})", param_of<parse_tokenize>},
      {"/detokenize", detokenize_params(), R"({"tokens": []})", param_of<parse_detokenize>},
      {"/wader/models", install_params(), R"({"source": "org/name"})",
       [](const Json& body) { return refused(parse_install(body)).param; }}};
}

std::string refusal_with(const Endpoint& endpoint, std::string_view name, const Json& value) {
  Json body = body_of(endpoint.least);
  body[std::string(name)] = value;
  return endpoint.refusal(body);
}

TEST(OpenApi, EveryParameterDoesWhatItsTableSays) {
  const Json wrong = 12345.5;  // no parameter that is read may be this
  for (const Endpoint& endpoint : endpoints()) {
    for (const ApiParam& param : endpoint.params) {
      const std::string refusal = refusal_with(endpoint, param.name, wrong);
      EXPECT_EQ(refusal, param.use == ApiParam::Use::ignored ? "-" : std::string(param.name))
          << endpoint.path;
      EXPECT_EQ(
          refusal_with(endpoint, param.name, nullptr),
          body_of(endpoint.least).contains(std::string(param.name)) && param.name != "logprobs"
              ? std::string(param.name)
              : "-")
          << endpoint.path;
    }
    EXPECT_EQ(refusal_with(endpoint, "no_such_thing", 1), "no_such_thing") << endpoint.path;
  }
}

TEST(OpenApi, TheDocumentListsTheTables) {
  const Json document = openapi_json("1.2.3");
  EXPECT_EQ(document.at("openapi"), "3.1.0");
  EXPECT_EQ(document.at("info").at("version"), "1.2.3");
  for (const Endpoint& endpoint : endpoints()) {
    const Json& schema = document.at("paths")
                             .at(std::string(endpoint.path))
                             .at("post")
                             .at("requestBody")
                             .at("content")
                             .at("application/json")
                             .at("schema");
    std::vector<std::string> listed, expected;
    for (const auto& [name, value] : schema.at("properties").items()) listed.push_back(name);
    for (const ApiParam& param : endpoint.params)
      if (param.use != ApiParam::Use::refused) expected.emplace_back(param.name);
    EXPECT_EQ(listed, expected) << endpoint.path;
    EXPECT_EQ(schema.at("additionalProperties"), false);
    const std::string required = schema.at("required").at(0);
    EXPECT_TRUE(schema.at("properties").contains(required)) << endpoint.path;
    EXPECT_EQ(endpoint.refusal(Json::object()), required) << "alone of all it must be there";
  }
  const Json& paths = document.at("paths");
  EXPECT_EQ(paths.size(), 18u);
  for (const char* path : {"/v1/models", "/v1/models/{id}", "/health", "/metrics"})
    EXPECT_TRUE(paths.at(path).contains("get")) << path;
}

// The bounds and lists in the document are those that requests are checked against.
TEST(OpenApi, SchemasHoldForTheParsers) {
  int bounds = 0, choices = 0;
  for (const Endpoint& endpoint : endpoints()) {
    for (const ApiParam& param : endpoint.params) {
      if (param.use != ApiParam::Use::read) continue;
      const Json schema = body_of(param.schema);
      const auto refusal = [&](const Json& value) {
        return refusal_with(endpoint, param.name, value);
      };
      const auto where = fmt::format("{} of {}", param.name, endpoint.path);
      if (schema.contains("minimum")) {
        const auto min = schema.at("minimum").get<double>(),
                   max = schema.at("maximum").get<double>();
        EXPECT_EQ(refusal(min), "-") << where;
        EXPECT_EQ(refusal(max), "-") << where;
        EXPECT_EQ(refusal(min - 1), param.name) << where;
        EXPECT_EQ(refusal(max + 1), param.name) << where;
        EXPECT_EQ(refusal(0.5) == "-", schema.at("type") == "number") << where;
        ++bounds;
      }
      for (const Json& value : schema.value("enum", Json::array())) {
        EXPECT_EQ(refusal(value), "-") << where << ' ' << value;
        EXPECT_EQ(refusal("something else"), param.name) << where;
        ++choices;
      }
      if (schema.contains("const")) {
        EXPECT_EQ(refusal(schema.at("const")), "-") << where;
        EXPECT_EQ(refusal("something else"), param.name) << where;
        ++choices;
      }
    }
  }
  EXPECT_EQ(bounds, 25);
  EXPECT_EQ(choices, 7 + 2 + 1 + 1 + 2 + 1 + 1 + 1 + 5 + 3);
}

std::set<std::string> keys_of(const Json& object) {
  std::set<std::string> keys;
  for (const auto& [key, value] : object.items()) keys.insert(key);
  return keys;
}

TEST(OpenApi, BodiesHaveTheKeysOfTheirSchemas) {
  const Json document = openapi_json("1");
  const auto schema = [&](const char* name) {
    return document.at("components").at("schemas").at(name).at("properties");
  };
  AnswerHead head{"x_1", 1, "demo"};
  Answer answer;
  answer.reasoning = "r";
  answer.tool_calls = {{"call_1", "f", "{}"}};
  AnswerUsage usage;
  usage.add(GenerationTimings(), answer);
  const Json chat =
      chat_completion_json(head, ChatCompletionRequest(), std::span(&answer, 1), usage);
  EXPECT_EQ(keys_of(chat), keys_of(schema("ChatCompletion")));
  EXPECT_EQ(keys_of(chat.at("choices")[0]),
            keys_of(schema("ChatCompletion").at("choices").at("items").at("properties")));
  EXPECT_EQ(keys_of(chat.at("choices")[0].at("message")), keys_of(schema("Message")));
  EXPECT_EQ(keys_of(chat.at("usage")), keys_of(schema("Usage")));
  EXPECT_EQ(keys_of(chat.at("timings")), keys_of(schema("Timings")));
  const Json text = completion_json(head, CompletionRequest(), "", std::span(&answer, 1), usage);
  EXPECT_EQ(keys_of(text), keys_of(schema("Completion")));
  EXPECT_EQ(keys_of(text.at("choices")[0]),
            keys_of(schema("Completion").at("choices").at("items").at("properties")));
  ResponsesAnswer responses(head, responses_of(R"({"input": "x"})"));
  responses.finish(AnswerFinish::stop, usage);
  EXPECT_EQ(keys_of(responses.response()), keys_of(schema("Response")));
  EXPECT_EQ(keys_of(models_json(test_facts())), keys_of(schema("ModelList")));
  EXPECT_EQ(keys_of(accepted(model_json("demo", test_facts()))), keys_of(schema("Model")));
}

}  // namespace
}  // namespace wader
