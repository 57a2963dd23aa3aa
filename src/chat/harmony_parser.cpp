#include <utility>

#include "chat/call_id.h"
#include "chat/harmony.h"
#include "tokenizer/utf8.h"

namespace wader {
namespace {

// The longest real header ("… to=functions.NAME <|constrain|>json", names up to 64 bytes by
// OpenAI's rules, longer with MCP prefixes) is far shorter. Beyond it the model is writing its
// answer without a header.
constexpr size_t kMaxHeaderBytes = 512;

class HarmonyParser final : public ChatParser {
 public:
  HarmonyParser(const Tokenizer& tokenizer, const HarmonyTokens& tokens)
      : tokenizer_(tokenizer), tokens_(tokens) {
    message_.role = Message::Role::assistant;
    header_.role_known = true;
  }

  ChatDelta push(TokenId id) override {
    if (id == tokens_.start) {
      end_header(HarmonyHeaderEnd::cut);
      end_body();
    } else if (id == tokens_.end || id == tokens_.return_ || id == tokens_.call ||
               id == tokens_.end_of_text) {
      end_header(HarmonyHeaderEnd::broken);
      end_body();
    } else if (id == tokens_.message) {
      if (in_header_) begin_message();
    } else if (id == tokens_.channel) {
      begin_channel();
    } else if (id == tokens_.constrain) {
      if (in_header_) begin_type();
    } else if (!tokenizer_.is_special(id)) {
      text(tokenizer_.bytes_of(id));
    }
    return std::exchange(delta_, {});
  }

  ChatDelta finish() override {
    end_header(HarmonyHeaderEnd::cut);
    end_body();
    return std::exchange(delta_, {});
  }

  const Message& message() const override { return message_; }

 private:
  using Field = HarmonyHeader::Field;

  void text(std::string_view bytes) {
    if (!in_header_) {
      append(utf8_.push(bytes));
      return;
    }
    (header_.type ? *header_.type : header_.channel ? *header_.channel : header_.role) += bytes;
    if (header_.bytes() > kMaxHeaderBytes) end_header(HarmonyHeaderEnd::broken);
  }

  // <|channel|> in a body means that <|end|><|start|>assistant was forgotten.
  void begin_channel() {
    if (!in_header_) {
      end_body();
      header_.role_known = true;
    } else if (header_.channel || header_.type) {
      deliver_unfinished_sections();
    }
    header_.channel = "";
    header_.type.reset();
  }

  // <|channel|> again, or after <|constrain|>: what stood there and is no field is text; role and
  // recipient stay.
  void deliver_unfinished_sections() {
    HarmonyHeaderText first = header_;
    first.role.clear();
    const HarmonyHeader header = read_harmony_header(first, HarmonyHeaderEnd::broken);
    deliver_loose_text(header);
    if (header.field == Field::call) header_.role += " to=" + header.tool;
  }

  // Words of a header that are no field of it, as a message of their own.
  void deliver_loose_text(const HarmonyHeader& header) {
    if (header.text.empty()) return;
    begin_body(header.field == Field::call ? Field::reasoning : header.field, "");
    append(replace_invalid_utf8(header.text));
    close_body();
  }

  // A second <|constrain|> only separates words.
  void begin_type() {
    if (header_.type)
      *header_.type += ' ';
    else
      header_.type = "";
    if (header_.bytes() > kMaxHeaderBytes) end_header(HarmonyHeaderEnd::broken);
  }

  void begin_message() {
    const HarmonyHeader header =
        read_harmony_header(std::exchange(header_, {}), HarmonyHeaderEnd::message);
    deliver_loose_text(header);
    begin_body(header.field, header.tool);
    in_header_ = false;
  }

  // The message token never came: what is no header field is the body, which may go on (a header
  // that grew too long). A header cut short may hold half a function name, so it makes no call.
  void end_header(HarmonyHeaderEnd end) {
    if (!in_header_) return;
    const HarmonyHeader header = read_harmony_header(std::exchange(header_, {}), end);
    in_header_ = false;
    const bool call = header.field == Field::call && end != HarmonyHeaderEnd::cut;
    if (header.text.empty() && !call) return;
    begin_body(header.field, header.tool);
    append(utf8_.push(header.text));
  }

  void begin_body(Field field, std::string_view recipient) {
    field_ = field;
    first_text_ = true;
    if (field != Field::call) return;
    ToolCall call{new_call_id(), replace_invalid_utf8(harmony_tool_name(recipient)), ""};
    const auto index = static_cast<uint32_t>(message_.tool_calls.size());
    delta_.tool_calls.push_back({index, call.id, call.name, ""});
    message_.tool_calls.push_back(std::move(call));
  }

  void append(std::string_view piece) {
    if (piece.empty()) return;
    if (field_ == Field::call) {
      append_arguments(piece);
      return;
    }
    const bool content = field_ == Field::content;
    std::string& whole = content ? message_.content : message_.reasoning;
    std::string& delta = content ? delta_.content : delta_.reasoning;
    // Several messages may share a field (a preamble, then the answer), a blank line apart.
    if (std::exchange(first_text_, false) && !whole.empty()) {
      whole += "\n\n";
      delta += "\n\n";
    }
    whole += piece;
    delta += piece;
  }

  void append_arguments(std::string_view piece) {
    const auto index = static_cast<uint32_t>(message_.tool_calls.size() - 1);
    message_.tool_calls.back().arguments += piece;
    if (delta_.tool_calls.empty() || delta_.tool_calls.back().index != index)
      delta_.tool_calls.push_back({index, "", "", ""});
    delta_.tool_calls.back().arguments += piece;
  }

  // Held-back bytes come out; the next text begins a body of its own.
  void close_body() {
    append(utf8_.finish());
    field_ = Field::content;
    first_text_ = true;
  }

  // Between two messages every text is a header's.
  void end_body() {
    close_body();
    in_header_ = true;
    header_ = {};
  }

  const Tokenizer& tokenizer_;
  const HarmonyTokens tokens_;
  Message message_{};
  ChatDelta delta_;
  bool in_header_ = true;
  HarmonyHeaderText header_;
  Field field_ = Field::content;  // of the body being read
  bool first_text_ = true;        // no text of this body was delivered yet
  Utf8Stream utf8_;
};

}  // namespace

std::unique_ptr<ChatParser> make_harmony_parser(const Tokenizer& tokenizer,
                                                const HarmonyTokens& tokens) {
  return std::make_unique<HarmonyParser>(tokenizer, tokens);
}

}  // namespace wader
