// POST /v1/responses: the request. Input items become messages; what follows is as in chat
// completions.
#include <fmt/format.h>

#include <utility>

#include "server/answer_request.h"
#include "server/api.h"
#include "server/api_params.h"
#include "server/responses_input.h"
#include "tokenizer/quote.h"

namespace wader {
namespace {

// {type, name, description, parameters, strict} → the form with a nested "function".
Json chat_tools(const Json& tools, FieldReader& fields) {
  Json list = Json::array();
  if (!tools.is_array()) {
    fields.fail("tools", "must be a list");
    return list;
  }
  for (size_t i = 0; i < tools.size(); ++i) {
    FieldReader tool(tools[i], fmt::format("tools[{}]", i));
    std::string type, name, description;
    if (!tool.read("type", type)) tool.fail("type", "is missing");
    if (tool.ok() && type != "function") {
      tool.fail(unsupported_field(tool.path_of("type"), quote(type),
                                  "there are no built-in tools here; only 'function' is"));
    }
    if (!tool.read("name", name) || name.empty()) tool.fail("name", "is missing");
    Json function = {{"name", name}};
    if (tool.read("description", description)) function["description"] = description;
    if (const Json* parameters = tool.find("parameters")) {
      if (!parameters->is_object()) tool.fail("parameters", "must be a JSON schema object");
      function["parameters"] = *parameters;
    }
    if (!tool.ok()) {
      fields.fail(tool.error());
      return list;
    }
    list.push_back({{"type", "function"}, {"function", std::move(function)}});
  }
  return list;
}

void read_chat(const Json& body, FieldReader& fields, ResponsesRequest& request) {
  if (!fields.ok()) return;
  std::string instructions;
  fields.read("instructions", instructions);
  InputMessages input = read_input(body, instructions, fields);
  Json prompt = {{"messages", std::move(input.messages)}};
  if (json_has(body, "tools")) prompt["tools"] = chat_tools(body.at("tools"), fields);
  const auto effort = read_reasoning(body, fields);
  if (!fields.ok()) return;
  auto read = chat_request_from_json(prompt);
  if (!read) return fields.fail(render_error(read.error(), input.origin));
  request.chat = std::move(read).value();
  request.chat.reasoning = effort;
  request.origin = std::move(input.origin);
}

void read_include(FieldReader& fields, ResponsesRequest& request) {
  const Json* include = fields.find("include");
  if (include == nullptr) return;
  if (!include->is_array()) return fields.fail("include", "must be a list");
  for (size_t i = 0; i < include->size(); ++i) {
    const Json& entry = (*include)[i];
    if (entry == "message.output_text.logprobs") {
      if (!request.top_logprobs) request.top_logprobs = 0;
    } else if (entry == "reasoning.encrypted_content") {
      request.returns_reasoning = true;
    } else if (!entry.is_string()) {
      return fields.fail(bad_field(fmt::format("include[{}]", i), "must be a string"));
    }
    // The others ask for parts of items that no answer has here.
  }
}

void check_text(const Json& body, FieldReader& fields) {
  if (!json_has(body, "text")) return;
  const Json& text = body.at("text");
  if (!text.is_object()) return fields.fail("text", "must be an object");
  for (const auto& [key, value] : text.items()) {
    if (key == "format" && !value.is_null()) {
      check_text_format(value, "text.format", fields);
    } else if (key != "format" && key != "verbosity" && !value.is_null()) {
      return fields.fail({400, fmt::format("text: key {} is not supported", quote(key)), "text",
                          "unsupported_parameter"});
    }
  }
}

void check_stateless(FieldReader& fields) {
  check_store(fields);
  bool background = false;
  if (fields.read("background", background) && background) {
    fields.fail(unsupported_field("background", "true", "an answer lives as long as its request"));
  }
  std::string truncation;
  if (fields.read("truncation", truncation) && truncation != "disabled") {
    fields.fail(unsupported_field("truncation", "other than 'disabled'",
                                  "what is too long is refused rather than cut"));
  }
}

// OpenAI's limits: 16 pairs, keys of 64 characters, values of 512.
void check_metadata(FieldReader& fields) {
  const Json* metadata = fields.find("metadata");
  if (metadata == nullptr) return;
  if (!metadata->is_object()) return fields.fail("metadata", "must be an object");
  if (metadata->size() > 16) return fields.fail("metadata", "must have at most 16 keys");
  for (const auto& [key, value] : metadata->items()) {
    if (key.size() > 4 * 64 || !value.is_string() ||
        value.get_ref<const std::string&>().size() > 4 * 512) {
      return fields.fail("metadata", "must map short keys to strings of at most 512 characters");
    }
  }
}

Json fields_as_sent(const Json& body, const ResponsesRequest& request) {
  const auto sent = [&](const char* key, Json otherwise = nullptr) {
    return json_has(body, key) ? body.at(key) : std::move(otherwise);
  };
  Json reasoning = {{"effort", nullptr}, {"summary", nullptr}};
  if (json_has(body, "reasoning"))
    for (const char* key : {"effort", "summary"})
      if (json_has(body.at("reasoning"), key)) reasoning[key] = body.at("reasoning").at(key);
  return {{"instructions", sent("instructions")},
          {"max_output_tokens", sent("max_output_tokens")},
          {"metadata", sent("metadata", Json::object())},
          {"parallel_tool_calls", request.parallel_tool_calls},
          {"previous_response_id", nullptr},
          {"reasoning", std::move(reasoning)},
          {"store", false},
          {"temperature", request.sampling.temperature},
          {"text", {{"format", {{"type", "text"}}}}},
          {"tool_choice", sent("tool_choice", "auto")},
          {"tools", sent("tools", Json::array())},
          {"top_logprobs", request.top_logprobs.value_or(0)},
          {"top_p", request.sampling.top_p},
          {"truncation", "disabled"}};
}

}  // namespace

ApiResult<ResponsesRequest> parse_responses(const Json& body, const ModelFacts& facts) {
  FieldReader fields(body);
  ResponsesRequest request;
  check_params(body, responses_params(), fields);
  read_model(fields, facts);
  read_chat(body, fields, request);
  if (fields.ok()) read_stream(body, fields, request);
  read_temperature(fields, facts, request);
  read_max_tokens("max_output_tokens", fields, facts, request);
  uint32_t top = 0;
  if (fields.read_count("top_logprobs", 0, 20, top) && top > 0) request.top_logprobs = top;
  read_include(fields, request);
  if (fields.ok()) read_tool_use(fields, request.chat, request.parallel_tool_calls);
  check_text(body, fields);
  check_stateless(fields);
  // Who says so knows that nothing is stored; the AI SDK then drops reasoning that has no
  // encrypted_content, also while a tool call waits for its result.
  if (json_has(body, "store")) request.returns_reasoning = true;
  check_metadata(fields);
  if (!fields.ok()) return fields.error();
  request.as_sent = fields_as_sent(body, request);
  return request;
}

}  // namespace wader
