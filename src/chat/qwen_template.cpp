// Which of Qwen's chat formats a release uses, by what its template says.
#include <algorithm>

#include "base/error.h"
#include "chat/jinja_literals.h"
#include "chat/python_text.h"
#include "chat/qwen.h"
#include "tokenizer/quote.h"

namespace wader {
namespace {

using Kept = QwenTemplate::Kept;
using Shape = QwenTemplate::Shape;
using Thinking = QwenTemplate::Thinking;

constexpr std::string_view kEnd = "<|im_end|>";
constexpr std::string_view kTools = "<tools>", kEndTools = "</tools>";
constexpr std::string_view kSystem = "<|im_start|>system\n";

// What the releases say around the list of tools, for a template that does not.
constexpr std::string_view kQwen3Head =
    "# Tools\n\nYou may call one or more functions to assist with the user query.\n\nYou are "
    "provided with function signatures within <tools></tools> XML tags:\n<tools>";
constexpr std::string_view kQwen3Tail =
    "\n</tools>\n\nFor each function call, return a json object with function name and arguments "
    "within <tool_call></tool_call> XML tags:\n<tool_call>\n{\"name\": <function-name>, "
    "\"arguments\": <args-json-object>}\n</tool_call>";
constexpr std::string_view kXmlHead =
    "# Tools\n\nYou have access to the following functions:\n\n<tools>";
constexpr std::string_view kXmlTail =
    "\n</tools>\n\nIf you choose to call a function ONLY reply in the following format with NO "
    "suffix:\n\n<tool_call>\n<function=example_function_name>\n<parameter=example_parameter_1>\n"
    "value_1\n</parameter>\n<parameter=example_parameter_2>\nThis is the value for the second "
    "parameter\nthat can span\nmultiple lines\n</parameter>\n</function>\n</tool_call>\n\n"
    "<IMPORTANT>\nReminder:\n- Function calls MUST follow the specified format: an inner "
    "<function=...></function> block must be nested within <tool_call></tool_call> XML tags\n- "
    "Required parameters MUST be specified\n- You may provide optional reasoning for your function "
    "call in natural language BEFORE the function call, but NOT after\n- If there is no function "
    "call available, answer the question like normal with your current knowledge and do not tell "
    "the user about function calls\n</IMPORTANT>";

bool has(std::string_view text, std::string_view part) {
  return text.find(part) != text.npos;
}

class Reader {
 public:
  explicit Reader(std::string_view source)
      : source_(source),
        literals_(jinja_literals(source)),
        prompt_at_(std::min(source.rfind("add_generation_prompt"), source.size())) {}

  QwenTemplate read() const {
    QwenTemplate format;
    format.shape = shape();
    read_thinking(format);
    format.kept = kept();
    format.json_scalars = has(source_, "args_value is string else");
    read_wording(format);
    return format;
  }

 private:
  const std::string* literal_with(std::string_view part) const {
    const auto found = std::find_if(literals_.begin(), literals_.end(),
                                    [&](const auto& literal) { return has(literal.text, part); });
    return found == literals_.end() ? nullptr : &found->text;
  }

  Shape shape() const {
    if (literal_with("<function=") == nullptr) return Shape::qwen3;
    return literal_with("<name>") != nullptr ? Shape::coder : Shape::qwen3_5;
  }

  bool knows_thinking() const { return literal_with("think>") != nullptr; }

  void read_thinking(QwenTemplate& format) const {
    const std::string_view prompt = source_.substr(prompt_at_);
    format.thinking = !knows_thinking()                 ? Thinking::never
                      : has(source_, "enable_thinking") ? Thinking::switched
                                                        : Thinking::always;
    format.thinks_by_default =
        !has(prompt, "enable_thinking is true") || has(prompt, "enable_thinking is false");
    format.opens_thinking =
        std::any_of(literals_.begin(), literals_.end(), [&](const JinjaLiteral& literal) {
          return literal.offset > prompt_at_ && has(literal.text, "<think>") &&
                 !has(literal.text, "</think>");
        });
  }

  Kept kept() const {
    if (!knows_thinking()) return Kept::untouched;
    if (has(source_, "preserve_thinking is undefined")) return Kept::all;
    if (!has(source_, "last_query_index")) return Kept::none;
    return has(source_, "loop.last or (not loop.last and") ? Kept::late_filled : Kept::late;
  }

  // Literals are cut differently between releases; here the head runs up to <tools> and the tail
  // from </tools> on.
  void read_wording(QwenTemplate& format) const {
    if (const std::string* head = literal_with("# Tools")) {
      format.tools_head = strip_newlines_left(head->substr(head->find("# Tools")));
      if (!format.tools_head.ends_with(kTools)) format.tools_head += kTools;
    }
    const std::string* tail = literal_with(
        format.shape == Shape::qwen3 ? "<args-json-object>" : "<function=example_function_name>");
    if (tail != nullptr) {
      std::string_view text = strip_newlines(*tail);
      if (text.starts_with(kEndTools)) text = strip_newlines_left(text.substr(kEndTools.size()));
      if (text.ends_with(kEnd)) text.remove_suffix(kEnd.size());
      format.tools_tail = fmt::format("\n{}\n\n{}", kEndTools, text);
    }
    for (const JinjaLiteral& literal : literals_) {
      if (literal.text.starts_with(kSystem) && literal.text.size() > kSystem.size())
        format.default_system = literal.text.substr(kSystem.size());
    }
  }

  const std::string_view source_;
  const std::vector<JinjaLiteral> literals_;
  const size_t prompt_at_;  // where the template turns to the generation prompt
};

// The variant of a family whose release came without a template.
QwenTemplate usual_template(std::string_view family) {
  QwenTemplate format;
  if (family == "qwen3_next") {
    format.thinking = Thinking::never;
    format.kept = Kept::untouched;
  } else if (family == "qwen3_5_moe") {
    format.shape = Shape::qwen3_5;
    format.opens_thinking = true;
    format.kept = Kept::late;
  }
  return format;
}

}  // namespace

bool QwenTemplate::thinks(const ChatRequest& request) const {
  if (thinking != Thinking::switched) return thinking == Thinking::always;
  return request.reasoning ? *request.reasoning != ReasoningEffort::off : thinks_by_default;
}

Result<QwenTemplate> read_qwen_template(std::string_view family, std::string_view text) {
  QwenTemplate format = usual_template(family);
  if (!text.empty()) {
    if (!has(text, "<|im_start|>")) {
      return unsupported_error(
          "the model's chat template writes no <|im_start|>: it is not of the formats known for "
          "model family {} (docs/qwen.md); wader generate takes prompts as ids",
          quote(family));
    }
    format = Reader(text).read();
  }
  const bool json = format.shape == Shape::qwen3;
  if (format.tools_head.empty()) format.tools_head = json ? kQwen3Head : kXmlHead;
  if (format.tools_tail.empty()) format.tools_tail = json ? kQwen3Tail : kXmlTail;
  return format;
}

}  // namespace wader
