#include "server/answer_request.h"

#include <fmt/format.h>

#include <algorithm>

#include "base/ascii.h"
#include "tokenizer/quote.h"

namespace wader {
namespace {

bool in_path(char c) {
  return is_ascii_alnum(c) || c == '_' || c == '.' || c == '[' || c == ']';
}

void read_stop(FieldReader& fields, std::vector<std::string>& stops) {
  const Json* value = fields.find("stop");
  if (value == nullptr) return;
  const auto add = [&](const Json& stop, const std::string& path) {
    if (!stop.is_string()) return fields.fail(bad_field(path, "must be a string"));
    const std::string& text = stop.get_ref<const std::string&>();
    if (text.empty())
      return fields.fail(bad_field(path, "must not be empty: an empty text is found everywhere"));
    if (text.size() > kMaxStopBytes)
      return fields.fail(bad_field(path, fmt::format("must be at most {} bytes", kMaxStopBytes)));
    stops.push_back(text);
  };
  if (!value->is_array()) {
    if (!value->is_string()) return fields.fail("stop", "must be a string or a list of strings");
    return add(*value, "stop");
  }
  if (value->size() > kMaxStops)
    return fields.fail("stop", fmt::format("must be at most {} strings", kMaxStops));
  for (size_t i = 0; i < value->size(); ++i) add((*value)[i], fmt::format("stop[{}]", i));
}

// A token id as JSON keys spell it: digits without a leading zero, so that none has two spellings.
std::optional<int32_t> read_token_id(const std::string& text, uint32_t vocab_rows) {
  if (text.empty() || text.size() > 10 || (text.size() > 1 && text[0] == '0')) return std::nullopt;
  uint64_t id = 0;
  for (const char c : text) {
    if (c < '0' || c > '9') return std::nullopt;
    id = id * 10 + static_cast<uint64_t>(c - '0');
  }
  if (id >= vocab_rows) return std::nullopt;
  return static_cast<int32_t>(id);
}

void read_logit_bias(FieldReader& fields, uint32_t vocab_rows, AnswerRequest& request) {
  const Json* value = fields.find("logit_bias");
  if (value == nullptr) return;
  if (!value->is_object()) return fields.fail("logit_bias", "must be an object");
  for (const auto& [key, bias] : value->items()) {
    const auto id = read_token_id(key, vocab_rows);
    if (!id) {
      return fields.fail("logit_bias", fmt::format("has key {}, which is no token id below {}",
                                                   quote(key), vocab_rows));
    }
    const double number = bias.is_number() ? bias.get<double>() : 1e9;
    if (!(number >= -100 && number <= 100)) {
      return fields.fail(
          bad_field(fmt::format("logit_bias.{}", *id), "must be a number from -100 to 100"));
    }
    request.sampling.logit_bias.emplace_back(*id, static_cast<float>(number));
  }
}

}  // namespace

// Errors of chat/ begin with the path of what they are about: "messages[2].role is missing".
ApiError render_error(const Error& error, const std::vector<std::string>& origin) {
  constexpr std::string_view kFields[] = {"messages", "tools", "reasoning_effort",
                                          "enable_thinking", "chat_template_kwargs"};
  std::string message = error.message;
  size_t bytes = 0;
  while (bytes < message.size() && in_path(message[bytes])) ++bytes;
  while (bytes > 0 && message[bytes - 1] == '.') --bytes;
  std::string param = message.substr(0, bytes);
  const std::string_view field = std::string_view(param).substr(0, param.find_first_of(".["));
  if (std::find(std::begin(kFields), std::end(kFields), field) == std::end(kFields)) param.clear();
  for (size_t i = 0; i < origin.size(); ++i) {
    const std::string prefix = fmt::format("messages[{}]", i);
    if (!param.starts_with(prefix)) continue;
    param.replace(0, prefix.size(), origin[i]);
    message.replace(0, prefix.size(), origin[i]);
    break;
  }
  return {400, std::move(message), std::move(param), "invalid_value"};
}

std::optional<ApiError> check_prompt_length(size_t prompt_tokens, std::string_view param,
                                            const ModelFacts& facts) {
  if (prompt_tokens == 0)
    return bad_field(param, "makes an empty prompt: the model has nothing to begin with");
  if (prompt_tokens < facts.context) return std::nullopt;
  return ApiError{400,
                  fmt::format("This model's maximum context length is {} tokens. However, your "
                              "{} resulted in {} tokens. Please reduce the length of the {}.",
                              facts.context, param, prompt_tokens, param),
                  std::string(param), "context_length_exceeded"};
}

void read_model(FieldReader& fields, const ModelFacts& facts) {
  std::string model;
  if (!fields.read("model", model) || model == facts.id) return;
  if (std::find(facts.aliases.begin(), facts.aliases.end(), model) != facts.aliases.end()) return;
  fields.fail(
      {404,
       fmt::format("The model {} does not exist: this server has '{}'", quote(model), facts.id),
       "model", "model_not_found"});
}

void read_stream(const Json& body, FieldReader& fields, AnswerRequest& request) {
  fields.read("stream", request.stream);
  if (!json_has(body, "stream_options")) return;
  FieldReader options(body.at("stream_options"), "stream_options");
  options.read("include_usage", request.include_usage);
  // Random padding against guessing texts by their lengths on the wire; there is no wire here.
  bool include_obfuscation = false;
  options.read("include_obfuscation", include_obfuscation);
  if (!options.ok()) fields.fail(options.error());
}

bool read_max_tokens(std::string_view key, FieldReader& fields, const ModelFacts& facts,
                     AnswerRequest& request) {
  uint32_t count = 0;
  if (!fields.read_count(key, 1, kMaxCount, count)) return false;
  request.max_tokens = std::min(count, std::max(facts.context, 1u));
  return true;
}

void read_temperature(FieldReader& fields, const ModelFacts& facts, AnswerRequest& request) {
  request.sampling = facts.defaults;
  fields.read("temperature", 0, 2, request.sampling.temperature);
  fields.read("top_p", 0, 1, request.sampling.top_p);
}

void read_sampling(FieldReader& fields, const ModelFacts& facts, AnswerRequest& request) {
  SamplingParams& sampling = request.sampling;
  fields.read_count("top_k", 0, kMaxCount, sampling.top_k);
  fields.read("min_p", 0, 1, sampling.min_p);
  fields.read("presence_penalty", -2, 2, sampling.presence_penalty);
  fields.read("frequency_penalty", -2, 2, sampling.frequency_penalty);
  fields.read("repetition_penalty", 0.01, 100, sampling.repetition_penalty);
  request.has_seed = fields.read_seed("seed", sampling.seed);
  read_logit_bias(fields, facts.vocab_rows, request);
  read_stop(fields, request.stop);
  fields.read_count("n", 1, kMaxChoices, request.n);
}

void read_tool_use(FieldReader& fields, ChatRequest& chat, bool& parallel_tool_calls) {
  fields.read("parallel_tool_calls", parallel_tool_calls);
  const Json* choice = fields.find("tool_choice");
  if (choice == nullptr || *choice == "auto") return;
  if (*choice == "none") {
    chat.tools = Json::array();
  } else if (*choice == "required" || choice->is_object()) {
    fields.fail(unsupported_field("tool_choice", choice->is_object() ? "of one tool" : "'required'",
                                  "nothing can make the model call yet; 'auto' lets it"));
  } else {
    fields.fail("tool_choice", "must be 'auto' or 'none'");
  }
}

std::optional<ReasoningEffort> read_effort(const Json& value, const std::string& path,
                                           FieldReader& fields) {
  constexpr std::pair<std::string_view, ReasoningEffort> kEfforts[] = {
      {"none", ReasoningEffort::off},  {"minimal", ReasoningEffort::low},
      {"low", ReasoningEffort::low},   {"medium", ReasoningEffort::medium},
      {"high", ReasoningEffort::high}, {"xhigh", ReasoningEffort::high},
      {"max", ReasoningEffort::high},
  };
  if (value.is_string()) {
    for (const auto& [name, effort] : kEfforts)
      if (value.get_ref<const std::string&>() == name) return effort;
  }
  fields.fail(bad_field(path, "must be one of none, minimal, low, medium, high, xhigh, max"));
  return std::nullopt;
}

std::optional<ReasoningEffort> read_reasoning(const Json& body, FieldReader& fields) {
  if (!json_has(body, "reasoning")) return std::nullopt;
  const Json& value = body.at("reasoning");
  if (!value.is_object()) {
    fields.fail("reasoning", "must be an object");
    return std::nullopt;
  }
  for (const auto& [key, entry] : value.items()) {
    // How much of the reasoning is shown: here it is all that the model wrote.
    if (key == "effort" || key == "summary" || key == "generate_summary" || entry.is_null())
      continue;
    fields.fail({400, fmt::format("reasoning: key {} is not supported", quote(key)), "reasoning",
                 "unsupported_parameter"});
    return std::nullopt;
  }
  if (!json_has(value, "effort")) return std::nullopt;
  return read_effort(value.at("effort"), "reasoning.effort", fields);
}

void check_text_format(const Json& format, const std::string& path, FieldReader& fields) {
  FieldReader reader(format, path);
  std::string type = "text";
  reader.read("type", type);
  if (!reader.ok()) return fields.fail(reader.error());
  if (type != "text") {
    fields.fail(unsupported_field(path, fmt::format("of type {}", quote(type)),
                                  "nothing can bind the answer to a format yet"));
  }
}

void check_store(FieldReader& fields) {
  bool store = false;
  if (fields.read("store", store) && store)
    fields.fail(unsupported_field("store", "true", "nothing is stored here"));
}

}  // namespace wader
