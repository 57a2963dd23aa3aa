#include "server/api_params.h"

#include <fmt/format.h>

#include <algorithm>
#include <array>

#include "tokenizer/quote.h"

namespace wader {
namespace {

using Use = ApiParam::Use;

// Schemas that several tables share.
constexpr std::string_view kString = R"({"type": "string"})";
constexpr std::string_view kBool = R"({"type": "boolean"})";
constexpr std::string_view kFalse = R"({"const": false})";
constexpr std::string_view kObject = R"({"type": "object"})";
constexpr std::string_view kAny = "{}";
constexpr std::string_view kCount = R"({"type": "integer", "minimum": 1, "maximum": 2147483647})";
constexpr std::string_view kSeed = R"({"type": "integer"})";
constexpr std::string_view kStop =
    R"({"oneOf": [{"type": "string"}, {"type": "array", "maxItems": 32, "items": {"type": "string"}}]})";
constexpr std::string_view kChoices = R"({"type": "integer", "minimum": 1, "maximum": 8})";
constexpr std::string_view kTemperature = R"({"type": "number", "minimum": 0, "maximum": 2})";
constexpr std::string_view kShare = R"({"type": "number", "minimum": 0, "maximum": 1})";
constexpr std::string_view kPenalty = R"({"type": "number", "minimum": -2, "maximum": 2})";
constexpr std::string_view kRepetition = R"({"type": "number", "minimum": 0.01, "maximum": 100})";
constexpr std::string_view kTopK = R"({"type": "integer", "minimum": 0, "maximum": 2147483647})";
constexpr std::string_view kTopLogprobs = R"({"type": "integer", "minimum": 0, "maximum": 20})";
constexpr std::string_view kBias =
    R"({"type": "object", "additionalProperties": {"type": "number", "minimum": -100, "maximum": 100}})";
constexpr std::string_view kStreamOptions =
    R"({"type": "object", "properties": {"include_usage": {"type": "boolean"},
      "include_obfuscation": {"type": "boolean"}}})";
constexpr std::string_view kEffort =
    R"({"enum": ["none", "minimal", "low", "medium", "high", "xhigh", "max"]})";
constexpr std::string_view kReasoning =
    R"({"type": "object", "properties": {"effort": {"enum": ["none", "minimal", "low", "medium",
      "high", "xhigh", "max"]}, "summary": {}, "generate_summary": {}}})";
constexpr std::string_view kKwargs =
    R"({"type": "object", "properties": {"enable_thinking": {"type": "boolean"}},
      "additionalProperties": false})";
constexpr std::string_view kToolChoice = R"({"enum": ["auto", "none"]})";
constexpr std::string_view kTextOnly =
    R"({"type": "object", "properties": {"type": {"const": "text"}}})";
constexpr std::string_view kIds =
    R"({"type": "array", "items": {"type": "integer", "minimum": 0}})";

constexpr std::string_view kNoteModel = "the served model's id or an alias";
constexpr std::string_view kNoteTopK = "0 is off";
constexpr std::string_view kNoteSeed = "the same seed and request give the same answer";
constexpr std::string_view kNoteStop =
    "at most 32 strings of at most 512 bytes; looked for in the answer's text, not in its "
    "reasoning or tool calls";
constexpr std::string_view kNoteBias = "by token id, inside the vocabulary";
constexpr std::string_view kNoteStore = "nothing is ever stored";
constexpr std::string_view kNoteEffort = "minimal counts as low, xhigh and max as high";
constexpr std::string_view kNoteKwargs = "enable_thinking alone; templates take nothing else";
constexpr std::string_view kNoteParallel = "false ends the answer with its first tool call";
constexpr std::string_view kNoteDefault = "absent: as the model's generation_config.json says";

// Of chat and text completions.
constexpr ApiParam kSampling[] = {
    {"stop", Use::read, kStop, kNoteStop},
    {"n", Use::read, kChoices, ""},
    {"seed", Use::read, kSeed, kNoteSeed},
    {"temperature", Use::read, kTemperature, kNoteDefault},
    {"top_p", Use::read, kShare, kNoteDefault},
    {"top_k", Use::read, kTopK, kNoteTopK},
    {"min_p", Use::read, kShare, kNoteDefault},
    {"presence_penalty", Use::read, kPenalty, ""},
    {"frequency_penalty", Use::read, kPenalty, ""},
    {"repetition_penalty", Use::read, kRepetition, kNoteDefault},
    {"logit_bias", Use::read, kBias, kNoteBias},
};

template <size_t... N>
constexpr auto joined(const ApiParam (&... parts)[N]) {
  std::array<ApiParam, (N + ...)> all{};
  size_t at = 0;
  (
      [&] {
        for (const ApiParam& param : parts) all[at++] = param;
      }(),
      ...);
  return all;
}

constexpr ApiParam kChatFirst[] = {
    {"model", Use::read, kString, kNoteModel},
    {"messages", Use::read, R"({"type": "array", "minItems": 1, "items": {"type": "object"}})",
     "roles system, developer, user, assistant, tool; content as text or text parts"},
    {"stream", Use::read, kBool, ""},
    {"stream_options", Use::read, kStreamOptions, ""},
    {"max_completion_tokens", Use::read, kCount, "reasoning counts; wins over max_tokens"},
    {"max_tokens", Use::read, kCount, "older name of max_completion_tokens"},
};
constexpr ApiParam kChatLast[] = {
    {"logprobs", Use::read, kBool, "of the tokens of the answer's text"},
    {"top_logprobs", Use::read, kTopLogprobs, "needs logprobs"},
    {"tools", Use::read, R"({"type": "array", "items": {"type": "object"}})", "functions"},
    {"tool_choice", Use::read, kToolChoice, "none hides the tools from the model"},
    {"parallel_tool_calls", Use::read, kBool, kNoteParallel},
    {"reasoning_effort", Use::read, kEffort, kNoteEffort},
    {"reasoning", Use::read, kReasoning, "its effort means reasoning_effort"},
    {"enable_thinking", Use::read, kBool, "true reads as medium effort, false as none"},
    {"chat_template_kwargs", Use::read, kKwargs, kNoteKwargs},
    {"response_format", Use::read, kTextOnly, "text alone"},
    {"modalities", Use::read, R"({"type": "array", "items": {"const": "text"}})", "text alone"},
    {"store", Use::read, kFalse, kNoteStore},
    {"user", Use::ignored, kAny, ""},
    {"metadata", Use::ignored, kAny, ""},
    {"service_tier", Use::ignored, kAny, ""},
    {"safety_identifier", Use::ignored, kAny, ""},
    {"prompt_cache_key", Use::ignored, kAny, "the longest cached beginning is always used"},
    {"prompt_cache_retention", Use::ignored, kAny, ""},
    {"prompt_cache_options", Use::ignored, kAny, ""},
    {"verbosity", Use::ignored, kAny, "no model here was trained to read it"},
    {"audio", Use::refused, kAny, "this server gives text only"},
    {"functions", Use::refused, kAny, "its successor is tools"},
    {"function_call", Use::refused, kAny, "its successor is tool_choice"},
    {"prediction", Use::refused, kAny, "predicted outputs are not used"},
    {"web_search_options", Use::refused, kAny, "there is no web search here"},
    {"moderation", Use::refused, kAny, "there is no moderation here"},
};
constexpr auto kChat = joined(kChatFirst, kSampling, kChatLast);

constexpr ApiParam kCompletionFirst[] = {
    {"model", Use::read, kString, kNoteModel},
    {"prompt", Use::read,
     R"({"oneOf": [{"type": "string"}, {"type": "array", "maxItems": 1,
       "items": {"type": "string"}}, {"type": "array", "items": {"type": "integer"}}]})",
     "one text or one list of token ids"},
    {"stream", Use::read, kBool, ""},
    {"stream_options", Use::read, kStreamOptions, ""},
    {"max_tokens", Use::read, kCount, "16 when absent"},
};
constexpr ApiParam kCompletionLast[] = {
    {"logprobs", Use::read, R"({"type": "integer", "minimum": 0, "maximum": 5})",
     "not together with echo"},
    {"echo", Use::read, kBool, "the prompt's text goes before the answer"},
    {"best_of", Use::read, R"({"const": 1})", "1 alone"},
    {"user", Use::ignored, kAny, ""},
    {"suffix", Use::refused, kAny, "no model here fills in the middle"},
};
constexpr auto kCompletion = joined(kCompletionFirst, kSampling, kCompletionLast);

constexpr ApiParam kResponses[] = {
    {"model", Use::read, kString, kNoteModel},
    {"input", Use::read,
     R"({"oneOf": [{"type": "string"}, {"type": "array", "minItems": 1, "items": {"type": "object"}}]})",
     "text, or items: message, function_call, function_call_output, reasoning"},
    {"instructions", Use::read, kString, "goes before the input, as a system message"},
    {"stream", Use::read, kBool, ""},
    {"stream_options", Use::read, kStreamOptions, "without effect: usage always comes"},
    {"max_output_tokens", Use::read, kCount, "reasoning counts"},
    {"temperature", Use::read, kTemperature, kNoteDefault},
    {"top_p", Use::read, kShare, kNoteDefault},
    {"top_logprobs", Use::read, kTopLogprobs, ""},
    {"tools", Use::read, R"({"type": "array", "items": {"type": "object"}})", "functions"},
    {"tool_choice", Use::read, kToolChoice, "none hides the tools from the model"},
    {"parallel_tool_calls", Use::read, kBool, kNoteParallel},
    {"reasoning", Use::read, kReasoning, kNoteEffort},
    {"text", Use::read,
     R"({"type": "object", "properties": {"format": {"type": "object",
       "properties": {"type": {"const": "text"}}}, "verbosity": {}}})",
     "format text alone"},
    {"include", Use::read, R"({"type": "array", "items": {"type": "string"}})",
     "message.output_text.logprobs and reasoning.encrypted_content; the latter, like store false, "
     "marks reasoning items as worth sending back"},
    {"truncation", Use::read, R"({"const": "disabled"})", ""},
    {"store", Use::read, kFalse, kNoteStore},
    {"background", Use::read, kFalse, "an answer lives as long as its request"},
    {"metadata", Use::read, kObject, "comes back in the response"},
    {"user", Use::ignored, kAny, ""},
    {"service_tier", Use::ignored, kAny, ""},
    {"safety_identifier", Use::ignored, kAny, ""},
    {"prompt_cache_key", Use::ignored, kAny, "the longest cached beginning is always used"},
    {"prompt_cache_retention", Use::ignored, kAny, ""},
    {"prompt_cache_options", Use::ignored, kAny, ""},
    {"previous_response_id", Use::refused, kAny,
     "no response is stored here; send the earlier items as input"},
    {"conversation", Use::refused, kAny,
     "no conversation is stored here; send the earlier items as input"},
    {"prompt", Use::refused, kAny, "no prompts are stored here"},
    {"max_tool_calls", Use::refused, kAny, "it limits built-in tools, of which there are none"},
    {"context_management", Use::refused, kAny, "no context is compacted here"},
    {"moderation", Use::refused, kAny, "there is no moderation here"},
};

constexpr ApiParam kTokenize[] = {
    {"model", Use::read, kString, kNoteModel},
    {"prompt", Use::read, kString, ""},
    {"parse_special", Use::read, kBool,
     "control tokens that the text spells become their ids; false when absent"},
};
constexpr ApiParam kInstall[] = {
    {"source", Use::read, kString,
     "a model of the hub, ORG/NAME, or the whole path of a checkpoint on the server's machine"},
    {"experts", Use::read,
     R"({"type": "string", "enum": ["auto", "mxfp4", "affine4", "affine8", "bf16"]})",
     "the format of the experts"},
    {"trunk", Use::read, R"({"type": "string", "enum": ["auto", "affine8", "bf16"]})",
     "the format of all else"},
};
constexpr ApiParam kDetokenize[] = {
    {"model", Use::read, kString, kNoteModel},
    {"tokens", Use::read, kIds, ""},
};

}  // namespace

std::span<const ApiParam> chat_params() {
  return kChat;
}
std::span<const ApiParam> completion_params() {
  return kCompletion;
}
std::span<const ApiParam> responses_params() {
  return kResponses;
}
std::span<const ApiParam> tokenize_params() {
  return kTokenize;
}
std::span<const ApiParam> detokenize_params() {
  return kDetokenize;
}
std::span<const ApiParam> install_params() {
  return kInstall;
}

void check_params(const Json& body, std::span<const ApiParam> params, FieldReader& fields) {
  if (!body.is_object()) return;  // the reader has said so
  for (const auto& [key, value] : body.items()) {
    const auto known = std::find_if(params.begin(), params.end(),
                                    [&key = key](const ApiParam& p) { return p.name == key; });
    if (known == params.end()) {
      const std::string shown = quote(key);
      fields.fail({400, fmt::format("Unrecognized request argument supplied: {}", shown),
                   shown.substr(1, shown.size() - 2), "unknown_parameter"});
      return;
    }
    if (known->use == Use::refused && !FieldReader::is_blank(value)) {
      fields.fail(unsupported_field(known->name, known->note));
      return;
    }
  }
}

}  // namespace wader
