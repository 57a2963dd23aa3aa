#include "server/responses_input.h"

#include <fmt/format.h>

#include <set>
#include <utility>

#include "tokenizer/quote.h"

namespace wader {
namespace {

class InputReader {
 public:
  explicit InputReader(FieldReader& fields) : fields_(fields) {}

  void add(std::string origin, std::string_view role, Json content) {
    flush();
    input_.messages.push_back({{"role", role}, {"content", std::move(content)}});
    input_.origin.push_back(std::move(origin));
  }

  void read_item(const Json& json, const std::string& at) {
    FieldReader item(json, at);
    std::string type = "message";
    item.read("type", type);
    if (item.ok()) {
      if (type == "message") {
        read_message(item, at);
      } else if (type == "function_call") {
        read_call(item, at);
      } else if (type == "function_call_output") {
        read_call_output(item, at);
      } else if (type == "reasoning") {
        read_reasoning_item(item, at);
      } else if (type == "item_reference") {
        item.fail(unsupported_field(item.path_of("type"), "'item_reference'",
                                    "nothing is stored here; send the item itself (in the AI "
                                    "SDK: providerOptions.openai.store false)"));
      } else {
        item.fail(unsupported_field(item.path_of("type"), quote(type),
                                    "message, function_call, function_call_output and reasoning "
                                    "are"));
      }
    }
    if (!item.ok()) fields_.fail(item.error());
  }

  InputMessages take() {
    flush();
    return std::move(input_);
  }

 private:
  // Text of a string or of a list of parts of the given types.
  std::string text_of(FieldReader& item, std::string_view key) {
    const Json* value = item.find(key);
    if (value == nullptr) {
      item.fail(key, "is missing");
      return {};
    }
    if (value->is_string()) return value->get<std::string>();
    if (!value->is_array()) {
      item.fail(key, "must be a string or a list of text parts");
      return {};
    }
    std::string text;
    for (size_t i = 0; i < value->size() && item.ok(); ++i) {
      FieldReader part((*value)[i], fmt::format("{}[{}]", item.path_of(key), i));
      std::string type, piece;
      if (!part.read("type", type)) part.fail("type", "is missing");
      if (part.ok() && type != "input_text" && type != "output_text" && type != "text") {
        part.fail(
            unsupported_field(part.path_of("type"), quote(type), "this model takes text only"));
      }
      if (!part.read("text", piece)) part.fail("text", "is missing");
      if (!part.ok()) item.fail(part.error());
      text += piece;
    }
    return text;
  }

  void read_message(FieldReader& item, const std::string& at) {
    std::string role;
    if (!item.read("role", role)) return item.fail("role", "is missing");
    std::string text = text_of(item, "content");
    if (!item.ok()) return;
    if (role == "assistant") {
      Json& turn = open_turn(at, /*takes_text=*/true);
      turn["content"] = std::move(text);
    } else if (role == "user" || role == "system" || role == "developer") {
      add(at, role, std::move(text));
    } else {
      item.fail("role",
                fmt::format("{} is not one of user, system, developer, assistant", quote(role)));
    }
  }

  void read_call(FieldReader& item, const std::string& at) {
    std::string id, name, arguments;
    if (!item.read("call_id", id) || id.empty()) item.fail("call_id", "is missing");
    if (!item.read("name", name) || name.empty()) item.fail("name", "is missing");
    if (!item.read("arguments", arguments)) item.fail("arguments", "is missing");
    if (!item.ok()) return;
    Json& turn = open_turn(at, /*takes_text=*/false);
    turn["tool_calls"].push_back({{"id", id},
                                  {"type", "function"},
                                  {"function", {{"name", name}, {"arguments", arguments}}}});
    calls_.insert(std::move(id));
  }

  void read_call_output(FieldReader& item, const std::string& at) {
    std::string id;
    if (!item.read("call_id", id)) item.fail("call_id", "is missing");
    if (item.ok() && !calls_.contains(id))
      item.fail("call_id", fmt::format("{} answers no earlier function_call", quote(id)));
    std::string output = text_of(item, "output");
    if (!item.ok()) return;
    add(at, "tool", std::move(output));
    input_.messages.back()["tool_call_id"] = id;
  }

  // The text is in `content` where a server shows what the model wrote, in `summary` where it
  // shows less, or shows it as a summary, as this one does.
  void read_reasoning_item(FieldReader& item, const std::string& at) {
    std::string text;
    for (const char* key : {"content", "summary"}) {
      const Json* parts = item.find(key);
      if (parts == nullptr || !text.empty()) continue;
      if (!parts->is_array()) return item.fail(key, "must be a list");
      for (size_t i = 0; i < parts->size(); ++i) {
        FieldReader part((*parts)[i], fmt::format("{}[{}]", item.path_of(key), i));
        std::string piece;
        if (!part.read("text", piece)) part.fail("text", "is missing");
        if (!part.ok()) return item.fail(part.error());
        if (i > 0) text += "\n\n";
        text += piece;
      }
    }
    if (text.empty()) return;
    if (turn_ && (turn_->contains("content") || turn_->contains("tool_calls"))) flush();
    Json& turn = open_turn(at, /*takes_text=*/false);
    if (turn.contains("reasoning_content")) {
      turn["reasoning_content"].get_ref<std::string&>() += "\n\n" + text;
    } else {
      turn["reasoning_content"] = std::move(text);
    }
  }

  // The assistant's message under way. Text comes before calls in one; a second text is another.
  Json& open_turn(const std::string& at, bool takes_text) {
    if (turn_ && takes_text && (turn_->contains("content") || turn_->contains("tool_calls")))
      flush();
    if (!turn_) {
      turn_ = Json{{"role", "assistant"}};
      turn_origin_ = at;
    }
    return *turn_;
  }

  void flush() {
    if (!turn_) return;
    // Reasoning that nothing followed was cut off: it says nothing to the model.
    if (turn_->contains("content") || turn_->contains("tool_calls")) {
      input_.messages.push_back(std::move(*turn_));
      input_.origin.push_back(std::move(turn_origin_));
    }
    turn_.reset();
  }

  FieldReader& fields_;
  InputMessages input_;
  std::optional<Json> turn_;
  std::string turn_origin_;
  std::set<std::string> calls_;
};

}  // namespace

InputMessages read_input(const Json& body, const std::string& instructions, FieldReader& fields) {
  InputReader reader(fields);
  if (!instructions.empty()) reader.add("instructions", "system", instructions);
  if (!json_has(body, "input")) {
    fields.fail("input", "is missing");
  } else if (const Json& input = body.at("input"); input.is_string()) {
    reader.add("input", "user", input);
  } else if (!input.is_array()) {
    fields.fail("input", "must be a string or a list of items");
  } else if (input.empty()) {
    fields.fail("input", "must not be empty");
  } else {
    for (size_t i = 0; i < input.size() && fields.ok(); ++i)
      reader.read_item(input[i], fmt::format("input[{}]", i));
  }
  return reader.take();
}

}  // namespace wader
