#include "server/openapi.h"

#include <fmt/format.h>

#include <span>
#include <string>
#include <utility>

#include "base/check.h"
#include "server/api_params.h"

namespace wader {
namespace {

// What goes back. Bodies are checked against the keys of these in openapi_test.cpp.
constexpr std::string_view kSchemas = R"json({
"Error": {"type": "object", "required": ["error"], "properties": {
  "error": {"type": "object", "required": ["message", "type", "param", "code"], "properties": {
    "message": {"type": "string"},
    "type": {"enum": ["invalid_request_error", "authentication_error", "permission_error",
      "rate_limit_error", "server_error"]},
    "param": {"type": ["string", "null"],
      "description": "path of the field that is wrong: messages[2].role"},
    "code": {"type": ["string", "null"]}}}}},
"Timings": {"type": "object", "properties": {
  "queue_seconds": {"type": "number"}, "prefill_seconds": {"type": "number"},
    "decode_seconds": {"type": "number"},
  "bytes_read": {"type": "integer", "description": "of experts, from the disk"},
  "hit_rate": {"type": "number", "description": "share of the experts asked for that were in memory"}}},
"Usage": {"type": "object", "properties": {
  "prompt_tokens": {"type": "integer"}, "completion_tokens": {"type": "integer"},
    "total_tokens": {"type": "integer"},
  "prompt_tokens_details": {"type": "object", "properties": {"cached_tokens": {"type": "integer"}}},
  "completion_tokens_details": {"type": "object",
    "properties": {"reasoning_tokens": {"type": "integer"}}}}},
"Message": {"type": "object", "properties": {
  "role": {"const": "assistant"}, "content": {"type": ["string", "null"]}, "refusal": {"type": "null"},
  "reasoning_content": {"type": "string"},
  "tool_calls": {"type": "array", "items": {"type": "object", "properties": {
    "id": {"type": "string"}, "type": {"const": "function"},
    "function": {"type": "object", "properties": {"name": {"type": "string"},
      "arguments": {"type": "string"}}}}}}}},
"ChatCompletion": {"type": "object", "properties": {
  "id": {"type": "string"}, "object": {"const": "chat.completion"}, "created": {"type": "integer"},
    "model": {"type": "string"},
  "choices": {"type": "array", "items": {"type": "object", "properties": {
    "index": {"type": "integer"}, "message": {"$ref": "#/components/schemas/Message"},
      "logprobs": {"type": ["object", "null"]},
    "finish_reason": {"enum": ["stop", "length", "tool_calls"]}}}},
  "usage": {"$ref": "#/components/schemas/Usage"}, "timings": {"$ref": "#/components/schemas/Timings"}}},
"Completion": {"type": "object", "properties": {
  "id": {"type": "string"}, "object": {"const": "text_completion"}, "created": {"type": "integer"},
    "model": {"type": "string"},
  "choices": {"type": "array", "items": {"type": "object", "properties": {
    "text": {"type": "string"}, "index": {"type": "integer"}, "logprobs": {"type": ["object", "null"]},
    "finish_reason": {"enum": ["stop", "length"]}}}},
  "usage": {"$ref": "#/components/schemas/Usage"}, "timings": {"$ref": "#/components/schemas/Timings"}}},
"Response": {"type": "object", "properties": {
  "id": {"type": "string"}, "object": {"const": "response"}, "created_at": {"type": "integer"},
  "status": {"enum": ["in_progress", "completed", "incomplete", "failed"]},
    "error": {"type": ["object", "null"]},
  "incomplete_details": {"type": ["object", "null"]}, "model": {"type": "string"},
  "output": {"type": "array", "items": {"type": "object", "properties": {
    "id": {"type": "string"}, "type": {"enum": ["message", "reasoning", "function_call"]},
      "status": {"type": "string"}}}},
  "instructions": {"type": ["string", "null"]}, "max_output_tokens": {"type": ["integer", "null"]},
    "metadata": {"type": "object"},
  "parallel_tool_calls": {"type": "boolean"}, "previous_response_id": {"type": "null"},
    "reasoning": {"type": "object"},
  "store": {"const": false}, "temperature": {"type": "number"}, "text": {"type": "object"},
    "tool_choice": {"type": "string"},
  "tools": {"type": "array", "items": {"type": "object"}}, "top_logprobs": {"type": "integer"},
    "top_p": {"type": "number"},
  "truncation": {"const": "disabled"}, "usage": {"type": ["object", "null"]},
  "timings": {"$ref": "#/components/schemas/Timings"}}},
"Model": {"type": "object", "properties": {
  "id": {"type": "string"}, "object": {"const": "model"}, "created": {"type": "integer"},
    "owned_by": {"const": "wader"},
  "context_length": {"type": "integer"}}},
"ModelList": {"type": "object", "properties": {
  "object": {"const": "list"}, "data": {"type": "array", "items": {"$ref": "#/components/schemas/Model"}}}},
"Tokens": {"type": "object", "properties": {
  "tokens": {"type": "array", "items": {"type": "integer"}}, "count": {"type": "integer"},
    "max_model_len": {"type": "integer"}}},
"Text": {"type": "object", "properties": {"prompt": {"type": "string"}}},
"Health": {"type": "object", "properties": {"status": {"type": "string"}}},
"Stats": {"type": "object", "properties": {
  "uptime_seconds": {"type": "number"}, "started_unix_ms": {"type": "integer"},
    "version": {"type": "string"},
  "model": {"type": "object", "description": "shape, formats and size of the model that is served"},
  "plan": {"type": "object", "description": "the memory plan: bytes of each part of the budget"},
  "engine": {"type": "object", "properties": {"kernels": {"type": "string"}, "reads": {"type": "string"},
    "disk_bytes_per_second": {"type": ["number", "null"],
      "description": "what the disk gave when it was measured, the way the engine reads"},
    "spare_cpus": {"type": "integer", "description": "CPUs of the machine that no compute thread has"}}},
  "now": {"type": "object", "properties": {"resident_bytes": {"type": "integer"},
    "usable_slots": {"type": "integer"}, "running": {"type": "integer"}, "queued": {"type": "integer"}}},
  "counters": {"type": "object", "description": "numbers that only grow while a model is served"}}},
"InstalledModels": {"type": "object", "properties": {
  "directory": {"type": "string"}, "free_bytes": {"type": ["integer", "null"]},
  "serving": {"type": ["string", "null"]}, "loading": {"type": ["string", "null"]},
  "problem": {"type": ["string", "null"], "description": "why no model is served"},
  "models": {"type": "array", "items": {"type": "object", "properties": {
    "name": {"type": "string"}, "path": {"type": "string"},
    "state": {"enum": ["complete", "unfinished", "damaged", "stale"]},
    "source": {"type": "string"}, "family": {"type": "string"}, "expert_format": {"type": "string"},
    "trunk_format": {"type": "string"}, "layers": {"type": "integer"}, "experts": {"type": "integer"},
    "disk_bytes": {"type": "integer"}, "serving": {"type": "boolean"}, "problem": {"type": "string"}}}},
  "installs": {"type": "array", "items": {"$ref": "#/components/schemas/Install"}}}},
"Install": {"type": "object", "properties": {
  "name": {"type": "string"}, "source": {"type": "string"},
  "state": {"enum": ["running", "pausing", "paused", "done", "failed"]}, "stage": {"type": "string"},
  "done_bytes": {"type": "integer"}, "total_bytes": {"type": "integer"}, "error": {"type": "string"}}},
"ModelPlan": {"type": "object", "properties": {
  "name": {"type": "string"}, "fits": {"type": "boolean"}, "plan": {"type": "object"},
  "context": {"type": "integer"}, "problem": {"type": "string"}}},
"InstallPreview": {"type": "object", "description": "what `wader install --dry-run --json` says"},
"Name": {"type": "object", "properties": {"name": {"type": "string"}}},
"Serving": {"type": "object", "properties": {"serving": {"type": "string"}}},
"Nothing": {"type": "object"},
"RangeMap": {"type": "object", "description": "range.json: see docs/format.md"}
})json";

struct Endpoint {
  std::string_view path, method, summary;
  std::span<const ApiParam> params;  // of a JSON body; empty: none
  std::string_view schema;           // of the answer; empty: plain text
  bool streams = false;
  std::string_view required = {};  // the one field that must be there
};

Json request_schema(const Endpoint& endpoint) {
  Json properties = Json::object();
  for (const ApiParam& param : endpoint.params) {
    if (param.use == ApiParam::Use::refused) continue;
    auto schema = parse_json(param.schema, param.name);
    CHECK(schema.ok());
    if (param.use == ApiParam::Use::ignored) {
      std::string note = "accepted without effect";
      if (!param.note.empty()) note.append("; ").append(param.note);
      (*schema)["description"] = note;
    } else if (!param.note.empty()) {
      (*schema)["description"] = param.note;
    }
    properties[std::string(param.name)] = std::move(schema).value();
  }
  return {{"type", "object"},
          {"required", Json::array({endpoint.required})},
          {"properties", std::move(properties)},
          {"additionalProperties", false}};
}

Json content(std::string_view type, Json schema) {
  Json json = Json::object();
  json[std::string(type)]["schema"] = std::move(schema);
  return json;
}

Json reference(std::string_view schema) {
  Json json = Json::object();
  json["$ref"] = fmt::format("#/components/schemas/{}", schema);
  return json;
}

Json operation(const Endpoint& endpoint) {
  Json json = {{"summary", endpoint.summary}};
  if (const size_t begin = endpoint.path.find('{'); begin != endpoint.path.npos) {
    const std::string_view name =
        endpoint.path.substr(begin + 1, endpoint.path.find('}') - begin - 1);
    json["parameters"] = Json::array(
        {{{"name", name}, {"in", "path"}, {"required", true}, {"schema", {{"type", "string"}}}}});
  }
  if (!endpoint.params.empty()) {
    json["requestBody"] = {{"required", true},
                           {"content", content("application/json", request_schema(endpoint))}};
  }
  Json body = endpoint.schema.empty() ? content("text/plain", {{"type", "string"}})
                                      : content("application/json", reference(endpoint.schema));
  if (endpoint.streams) body.update(content("text/event-stream", {{"type", "string"}}));
  json["responses"]["200"] = {{"description", "the answer"}, {"content", std::move(body)}};
  json["responses"]["default"] = {{"description", "an error, in OpenAI's form"},
                                  {"content", content("application/json", reference("Error"))}};
  return json;
}

}  // namespace

Json openapi_json(std::string_view version) {
  const Endpoint endpoints[] = {
      {"/v1/models", "get", "The model that is served", {}, "ModelList"},
      {"/v1/models/{id}", "get", "One model", {}, "Model"},
      {"/v1/chat/completions", "post", "Answers a conversation", chat_params(), "ChatCompletion",
       true, "messages"},
      {"/v1/completions", "post", "Continues a text", completion_params(), "Completion", true,
       "prompt"},
      {"/v1/responses", "post", "Answers input items; nothing is stored", responses_params(),
       "Response", true, "input"},
      {"/tokenize", "post", "Text to token ids", tokenize_params(), "Tokens", false, "prompt"},
      {"/detokenize", "post", "Token ids to text", detokenize_params(), "Text", false, "tokens"},
      {"/health", "get", "Whether the server can answer", {}, "Health"},
      {"/metrics", "get", "Counters in Prometheus' text format", {}, ""},
      {"/wader/stats", "get", "What the engine has done, and how things stand", {}, "Stats"},
      {"/wader/events",
       "get",
       "Server-sent events: hello, pass, resident, stats, range, model, install",
       {},
       ""},
      {"/wader/range",
       "get",
       "What the model's experts respond to; 204 where no map was built",
       {},
       "RangeMap"},
      {"/wader/range",
       "post",
       "Builds the range map (202); events `range` say how far",
       {},
       "Nothing"},
      {"/wader/models",
       "get",
       "What is installed and what is being installed",
       {},
       "InstalledModels"},
      {"/wader/models", "post", "Installs a model, or goes on with that (202)", install_params(),
       "Name", false, "source"},
      {"/wader/models/preview", "post", "What installing would fetch and write", install_params(),
       "InstallPreview", false, "source"},
      {"/wader/models/{name}/plan",
       "get",
       "What the planner says of it in this server's memory",
       {},
       "ModelPlan"},
      {"/wader/models/{name}/load", "post", "Serves it instead of the present one", {}, "Serving"},
      {"/wader/models/{name}/pause",
       "post",
       "Stops its install; what it has is kept (202)",
       {},
       "Name"},
      {"/wader/models/{name}/remove", "post", "Deletes it", {}, "Nothing"},
  };
  Json paths = Json::object();
  for (const Endpoint& endpoint : endpoints)
    paths[std::string(endpoint.path)][std::string(endpoint.method)] = operation(endpoint);
  auto schemas = parse_json(kSchemas, "schemas");
  CHECK(schemas.ok());
  Json bearer = {{"type", "http"}, {"scheme", "bearer"}};
  return {
      {"openapi", "3.1.0"},
      {"info",
       {{"title", "Wader"},
        {"version", version},
        {"description",
         "OpenAI's API for the model that is served. null counts as absent. A parameter that is "
         "not listed is refused by name."}}},
      {"security", Json::array({Json::object(), {{"key", Json::array()}}})},
      {"paths", std::move(paths)},
      {"components",
       {{"securitySchemes", {{"key", std::move(bearer)}}},
        {"schemas", std::move(schemas).value()}}}};
}

}  // namespace wader
