// Answers of the Qwen models: reasoning in <think> … </think>, calls in <tool_call> … </tool_call>,
// everything else is content. A tag that came as its token is always markup. One that is spelled
// out in ordinary text is markup only where the format has it, so that answers may speak of tags.
#include <algorithm>
#include <iterator>
#include <optional>
#include <utility>

#include "chat/call_id.h"
#include "chat/python_text.h"
#include "chat/qwen_call.h"
#include "tokenizer/utf8.h"

namespace wader {
namespace {

constexpr std::string_view kSpace = " \t\r\n";
constexpr std::string_view kAssistant = "assistant";
constexpr std::string_view kRoles[] = {kAssistant, "user", "system", "tool"};
constexpr size_t kMaxRoleBytes = 16;

// Calls read inside of the reasoning, not delivered yet.
class CallList final : public QwenCallSink {
 public:
  void begin_call(std::string name) override { calls.push_back({"", std::move(name), ""}); }
  void add_arguments(std::string_view text) override { calls.back().arguments += text; }
  void add_loose(std::string_view text) override { loose += text; }

  std::vector<ToolCall> calls;
  std::string loose;
};

class QwenParser final : public ChatParser, private QwenCallSink {
 public:
  QwenParser(const Tokenizer& tokenizer, const QwenTokens& tokens, const QwenTemplate& format,
             const ChatRequest& request)
      : tokenizer_(tokenizer),
        tokens_(tokens),
        xml_(format.shape != QwenTemplate::Shape::qwen3),
        tools_(request.tools),
        xml_call_(tools_) {
    message_.role = Message::Role::assistant;
    const bool opened =
        request.add_generation_prompt && format.opens_thinking && format.thinks(request);
    const bool block = request.add_generation_prompt && !format.thinks(request) &&
                       format.thinking == QwenTemplate::Thinking::switched;
    if (opened) state_ = State::reasoning;
    after_block_ = opened || block;
  }

  ChatDelta push(TokenId id) override {
    if (const std::optional<QwenMark> mark = mark_of(id)) {
      buffer_ += utf8_.finish();
      buffer_ += mark_byte(*mark);
    } else if (!tokenizer_.is_special(id)) {
      buffer_ += utf8_.push(tokenizer_.bytes_of(id));
    }
    run(/*cut=*/false);
    return std::exchange(delta_, {});
  }

  ChatDelta finish() override {
    buffer_ += utf8_.finish();
    run(/*cut=*/true);
    end_answer();
    return std::exchange(delta_, {});
  }

  const Message& message() const override { return message_; }

 private:
  enum class State : uint8_t {
    content,
    reasoning,
    call,
    after_rehearsal,  // behind a call inside of the reasoning: was it meant?
    turn,             // behind <|im_start|>: a role
  };

  std::optional<QwenMark> mark_of(TokenId id) const {
    if (id < 0) return {};  // as are the ids that the tokenizer lacks
    if (id == tokens_.im_end || id == tokens_.end_of_text) return QwenMark::end;
    if (id == tokens_.im_start) return QwenMark::turn;
    for (size_t i = 0; i < tokens_.tags.size(); ++i) {
      if (id == tokens_.tags[i]) return mark_of_tag(static_cast<QwenTag>(i));
    }
    return {};
  }

  // Takes what can be decided from the front of the buffer; with `cut`, that is all of it.
  void run(bool cut) {
    size_t used = 0;
    while (used < buffer_.size()) {
      const State before = state_;
      const size_t taken = step(std::string_view(buffer_).substr(used), cut);
      used += taken;
      if (taken == 0 && state_ == before) break;
    }
    buffer_.erase(0, used);
    if (cut && state_ == State::call) {
      read_call("", cut);
      if (state_ == State::after_rehearsal) disown_calls();
    }
    if (cut && state_ == State::after_rehearsal) own_calls();
  }

  // Returns how many bytes of `rest`, which is not empty, it used. None, and the same state: more
  // is needed.
  size_t step(std::string_view rest, bool cut) {
    switch (state_) {
      case State::content:
      case State::reasoning:
        return read_text(rest, cut);
      case State::call:
        return read_call(rest, cut);
      case State::after_rehearsal:
        return read_after_rehearsal(rest, cut);
      case State::turn:
        return read_turn(rest, cut);
    }
    UNREACHABLE("no such case");
  }

  size_t read_text(std::string_view rest, bool cut) {
    if (is_mark(rest.front())) return read_mark(rest, cut);
    if (rest.front() == '<') return read_spelled(rest, cut);
    size_t end = rest.find_first_not_of(kSpace);
    if (end > 0) {
      end = std::min(end, rest.size());
      held_ += rest.substr(0, end);
      return end;
    }
    while (end < rest.size() && rest[end] != '<' && !is_mark(rest[end]) &&
           kSpace.find(rest[end]) == kSpace.npos)
      ++end;
    add_text(rest.substr(0, end));
    return end;
  }

  size_t read_mark(std::string_view rest, bool cut) {
    switch (static_cast<QwenMark>(rest.front())) {
      case QwenMark::think:
        if (state_ != State::reasoning) begin_text(State::reasoning);
        return 1;
      case QwenMark::end_think:
        begin_text(State::content);
        return 1;
      case QwenMark::call: {
        size_t skip = 0;
        const Begins call = begins_call(rest.substr(1), cut, &skip);
        if (call == Begins::maybe) return 0;
        in_block_ = true;
        if (call == Begins::no) return 1 + skip;
        begin_calls(rest[1 + skip] != '{');
        return 1 + skip;
      }
      case QwenMark::end_call:
        in_block_ = false;
        return 1;
      case QwenMark::end:
        end_answer();
        return 1;
      case QwenMark::turn:
        begin_text(State::content);
        state_ = State::turn;
        return 1;
      case QwenMark::response:
      case QwenMark::end_response:
        return 1;
    }
    UNREACHABLE("no such case");
  }

  bool lacks(QwenTag tag) const { return tokens_.of(tag) < 0; }
  bool at_line_start() const { return !has_text_ || held_.find('\n') != held_.npos; }
  bool nothing_yet() const {
    return !has_text_ && message_.content.empty() && message_.reasoning.empty() &&
           message_.tool_calls.empty();
  }

  // May a spelled tag be markup here? See docs/qwen.md for the reasons.
  bool may_stand(QwenTag tag) const {
    const bool reasoning = state_ == State::reasoning;
    switch (tag) {
      case QwenTag::think:
        return lacks(tag) || (reasoning ? !has_text_ : nothing_yet());
      case QwenTag::end_think:
        return lacks(tag) || reasoning;
      case QwenTag::call:
        return !tools_.empty() && (lacks(tag) || at_line_start());
      case QwenTag::end_call:
        return in_block_;
      case QwenTag::response:
      case QwenTag::end_response:
        return false;
    }
    UNREACHABLE("no such case");
  }

  size_t read_spelled(std::string_view rest, bool cut) {
    bool undecided = false;
    for (size_t i = 0; i < kQwenTags.size(); ++i) {
      const auto tag = static_cast<QwenTag>(i);
      if (!may_stand(tag)) continue;
      const Begins begins = begins_with(rest, kQwenTags[i], cut);
      if (begins == Begins::maybe) undecided = true;
      if (begins != Begins::yes) continue;
      if (tag == QwenTag::call) return read_spelled_call(rest, kQwenTags[i].size(), cut);
      read_mark(std::string(1, mark_byte(mark_of_tag(tag))), cut);
      return kQwenTags[i].size();
    }
    // Models leave <tool_call> out now and then.
    if (xml_ && !tools_.empty() && at_line_start()) {
      const Begins begins = begins_with(rest, kQwenFunction, cut);
      if (begins == Begins::yes) begin_calls(/*xml=*/true);
      if (begins == Begins::yes || begins == Begins::maybe) return 0;
    }
    if (undecided) return 0;
    add_text("<");
    return 1;
  }

  size_t read_spelled_call(std::string_view rest, size_t tag_bytes, bool cut) {
    size_t skip = 0;
    const Begins call = begins_call(rest.substr(tag_bytes), cut, &skip);
    if (call == Begins::maybe) return 0;
    if (call == Begins::no) {
      if (skip > 0) return tag_bytes + skip;
      add_text("<");
      return 1;
    }
    in_block_ = true;
    begin_calls(rest[tag_bytes + skip] != '{');
    return tag_bytes + skip;
  }

  // --- Calls ---

  void begin_calls(bool xml) {
    // A model may rehearse a call while it reasons, or forget to end its reasoning before it calls.
    // Which it was, the text behind the call tells.
    if (state_ == State::reasoning && !rehearsing_) {
      rehearsing_ = true;
      rehearsed_text_.clear();
      rehearsed_ = {};
    } else if (!rehearsing_) {
      begin_text(State::content);
    }
    reading_xml_ = xml;
    if (xml)
      xml_call_.begin();
    else
      json_call_.begin();
    state_ = State::call;
  }

  size_t read_call(std::string_view rest, bool cut) {
    QwenCallSink& sink = rehearsing_ ? static_cast<QwenCallSink&>(rehearsed_) : *this;
    const size_t used =
        reading_xml_ ? xml_call_.read(rest, cut, sink) : json_call_.read(rest, cut, sink);
    if (rehearsing_) rehearse(rest.substr(0, used));
    if (!(reading_xml_ ? xml_call_.done() : json_call_.done())) return used;
    const bool closed = reading_xml_ ? xml_call_.closed() : json_call_.closed();
    if (closed) in_block_ = false;
    if (!rehearsing_) {
      if (closed) begin_text(State::content);
      state_ = State::content;
      return used;
    }
    state_ = State::after_rehearsal;
    if (rehearsed_.calls.empty()) disown_calls();
    return used;
  }

  void rehearse(std::string_view text) {
    std::copy_if(text.begin(), text.end(), std::back_inserter(rehearsed_text_),
                 [](char c) { return !is_mark(c); });
    const std::string_view close = qwen_tag_text(QwenTag::end_call);
    if (rehearsed_text_.ends_with(close))
      rehearsed_text_.resize(rehearsed_text_.size() - close.size());
  }

  // The calls were meant if only closing tags follow them.
  size_t read_after_rehearsal(std::string_view rest, bool cut) {
    const size_t space = std::min(rest.find_first_not_of(kSpace), rest.size());
    if (space > 0) {
      rehearsed_text_ += rest.substr(0, space);
      return space;
    }
    if (is_mark(rest, QwenMark::end) || is_mark(rest, QwenMark::turn)) {
      own_calls();
      return 0;
    }
    if (is_mark(rest, QwenMark::end_call)) {
      in_block_ = false;
      return 1;
    }
    const Begins closes = begins_with(rest, qwen_tag_text(QwenTag::end_think), cut);
    if (closes == Begins::maybe) return 0;
    if (!thinking_ended_ && (closes == Begins::yes || is_mark(rest, QwenMark::end_think))) {
      thinking_ended_ = true;
      return is_mark(rest.front()) ? 1 : qwen_tag_text(QwenTag::end_think).size();
    }
    const std::string_view tag = qwen_tag_text(QwenTag::call);
    const bool mark = is_mark(rest, QwenMark::call);
    const size_t tag_bytes = mark ? 1 : tag.size();
    size_t skip = 0;
    Begins call = mark ? Begins::yes : tools_.empty() ? Begins::no : begins_with(rest, tag, cut);
    if (call == Begins::yes) call = begins_call(rest.substr(tag_bytes), cut, &skip);
    if (call == Begins::maybe) return 0;
    if (call == Begins::yes && !thinking_ended_) {
      in_block_ = true;
      begin_calls(rest[tag_bytes + skip] != '{');
      return tag_bytes + skip;
    }
    disown_calls();
    return 0;
  }

  void own_calls() {
    rehearsing_ = thinking_ended_ = false;
    state_ = State::reasoning;
    add_loose(rehearsed_.loose);
    begin_text(State::content);
    for (ToolCall& call : rehearsed_.calls) {
      begin_call(std::move(call.name));
      add_arguments(call.arguments);
    }
    state_ = State::content;
  }

  void disown_calls() {
    state_ = State::reasoning;
    rehearsing_ = false;
    const std::string_view text = strip_newlines_right(rehearsed_text_);
    if (!text.empty()) add_text(text);
    held_ = rehearsed_text_.substr(text.size());
    if (std::exchange(thinking_ended_, false)) begin_text(State::content);
  }

  void begin_call(std::string name) override {
    ToolCall call{new_call_id(), std::move(name), ""};
    const auto index = static_cast<uint32_t>(message_.tool_calls.size());
    delta_.tool_calls.push_back({index, call.id, call.name, ""});
    message_.tool_calls.push_back(std::move(call));
    begin_text(State::call);
  }

  void add_arguments(std::string_view text) override {
    if (text.empty()) return;
    const auto index = static_cast<uint32_t>(message_.tool_calls.size() - 1);
    message_.tool_calls.back().arguments += text;
    if (delta_.tool_calls.empty() || delta_.tool_calls.back().index != index)
      delta_.tool_calls.push_back({index, "", "", ""});
    delta_.tool_calls.back().arguments += text;
  }

  void add_loose(std::string_view text) override {
    const size_t first = std::min(text.find_first_not_of(kSpace), text.size());
    held_ += text.substr(0, first);
    text.remove_prefix(first);
    if (text.empty()) return;
    const size_t end = text.find_last_not_of(kSpace) + 1;
    add_text(text.substr(0, end));
    held_ = text.substr(end);
  }

  // --- Text ---

  size_t read_turn(std::string_view rest, bool cut) {
    size_t end = 0;
    while (end < rest.size() && end <= kMaxRoleBytes && rest[end] != '\n' && !is_mark(rest[end]))
      ++end;
    const std::string_view word = rest.substr(0, end);
    if (end == rest.size() && end <= kMaxRoleBytes) {
      if (!cut) return 0;
      const auto unfinished = [&](std::string_view role) { return role.starts_with(word); };
      if (std::any_of(std::begin(kRoles), std::end(kRoles), unfinished)) return end;
    }
    const bool role = end < rest.size() && rest[end] == '\n' &&
                      std::find(std::begin(kRoles), std::end(kRoles), word) != std::end(kRoles);
    // Where the model plays the user or a tool, it is not its answer.
    state_ = role && word != kAssistant ? State::reasoning : State::content;
    return role ? end + 1 : 0;
  }

  // Whitespace waits in held_ for the text behind it, as it may turn out to be layout around a tag.
  void add_text(std::string_view text) {
    const bool content = state_ != State::reasoning;
    std::string& whole = content ? message_.content : message_.reasoning;
    std::string piece = std::exchange(held_, {});
    if (!std::exchange(has_text_, true) && (after_block_ || !whole.empty())) {
      piece = strip_newlines_left(piece);
      if (!whole.empty()) piece.insert(0, "\n\n");
    }
    piece += text;
    (content ? delta_.content : delta_.reasoning) += piece;
    whole += piece;
  }

  // Ends the text being read: line ends around a tag are layout. The next text stands apart.
  void begin_text(State next) {
    const std::string rest(strip_newlines_right(held_));
    held_.clear();
    if (has_text_ && !rest.empty()) add_text(rest);
    has_text_ = false;
    after_block_ = true;
    state_ = next;
  }

  // The end of an answer takes nothing from its content.
  void end_answer() {
    const bool all = state_ == State::content && (has_text_ || !after_block_);
    if (all && !held_.empty()) add_text("");
    begin_text(State::content);
  }

  const Tokenizer& tokenizer_;
  const QwenTokens tokens_;
  const bool xml_;
  const Json tools_;
  Message message_{};
  ChatDelta delta_;
  Utf8Stream utf8_;
  std::string buffer_;  // whole UTF-8 and marks, not yet decided

  State state_ = State::content;
  std::string held_;          // whitespace behind the text so far
  bool has_text_ = false;     // the text being read has delivered something
  bool after_block_ = false;  // it stands behind a tag, whose line ends are not its own

  bool in_block_ = false;  // <tool_call> is open
  bool reading_xml_ = false;
  QwenJsonCall json_call_;
  QwenXmlCall xml_call_;
  bool rehearsing_ = false;      // calls go to rehearsed_
  bool thinking_ended_ = false;  // behind them, too
  std::string rehearsed_text_;
  CallList rehearsed_;
};

}  // namespace

std::unique_ptr<ChatParser> make_qwen_parser(const Tokenizer& tokenizer, const QwenTokens& tokens,
                                             const QwenTemplate& format,
                                             const ChatRequest& request) {
  return std::make_unique<QwenParser>(tokenizer, tokens, format, request);
}

}  // namespace wader
