// What the three answering endpoints read in the same way. Each function reads some fields of a
// request's body into `request`; problems stay in `fields`.
#pragma once

#include "server/api.h"
#include "server/api_fields.h"

namespace wader {

constexpr size_t kMaxStops = 32;
constexpr size_t kMaxStopBytes = 512;
constexpr uint32_t kMaxChoices = 8;

// 404 model_not_found for a model that is not the served one. Absent is the served one: there is no
// other.
void read_model(FieldReader& fields, const ModelFacts& facts);
// stream, stream_options
void read_stream(const Json& body, FieldReader& fields, AnswerRequest& request);
// A count under `key` that is cut down to what the context can hold: a client that asks for a
// billion tokens wants no limit.
bool read_max_tokens(std::string_view key, FieldReader& fields, const ModelFacts& facts,
                     AnswerRequest& request);
// temperature and top_p; all of the model's defaults for the rest
void read_temperature(FieldReader& fields, const ModelFacts& facts, AnswerRequest& request);
// top_k, min_p, the penalties, seed, logit_bias, stop, n
void read_sampling(FieldReader& fields, const ModelFacts& facts, AnswerRequest& request);

// parallel_tool_calls and tool_choice; with "none" the model never hears of its tools.
void read_tool_use(FieldReader& fields, ChatRequest& chat, bool& parallel_tool_calls);
// none, minimal, low, medium, high, xhigh, max. `path` is where the value stands.
std::optional<ReasoningEffort> read_effort(const Json& value, const std::string& path,
                                           FieldReader& fields);
// {"effort": …} under "reasoning"
std::optional<ReasoningEffort> read_reasoning(const Json& body, FieldReader& fields);
// Refuses any format but {"type": "text"}. `path` is where `format` stands.
void check_text_format(const Json& format, const std::string& path, FieldReader& fields);
// store, which must not be true
void check_store(FieldReader& fields);

}  // namespace wader
