// Reads what stands in <tool_call> … </tool_call>, as it is generated, in either form:
//   {"name": "f", "arguments": {"a": 1}}
//   <function=f>\n<parameter=a>\n1\n</parameter>\n</function>
// Text is whole UTF-8 in which a tag that came as a token is one QwenMark byte. One thread.
#pragma once

#include <cstdint>
#include <set>
#include <string>
#include <string_view>

#include "base/json.h"
#include "chat/qwen.h"
#include "chat/qwen_schema.h"

namespace wader {

// Bytes that UTF-8 never has. 0xF8 + QwenTag for the tags; a spelled tag is no mark.
enum class QwenMark : uint8_t {
  think = 0xF8,
  end_think,
  call,
  end_call,
  response,
  end_response,
  end,   // <|im_end|>, <|endoftext|>
  turn,  // <|im_start|>
};
constexpr QwenMark mark_of_tag(QwenTag tag) {
  return static_cast<QwenMark>(static_cast<size_t>(QwenMark::think) + static_cast<size_t>(tag));
}
inline bool is_mark(char c) {
  return static_cast<uint8_t>(c) >= 0xF8;
}
inline bool is_mark(std::string_view text, QwenMark mark) {
  return !text.empty() && static_cast<uint8_t>(text.front()) == static_cast<uint8_t>(mark);
}
constexpr char mark_byte(QwenMark mark) {
  return static_cast<char>(mark);
}
// What a tag's mark spells; "" for end and turn.
std::string_view mark_text(char mark);

constexpr std::string_view kQwenFunction = "<function=";

// Does `text` begin with `word`? `maybe` while it is too short to tell and more may come.
enum class Begins : uint8_t { no, maybe, yes };
Begins begins_with(std::string_view text, std::string_view word, bool cut);
// Does a call, in either form, begin in `text`, after whitespace? Then *skip is that whitespace's
// size. What is not even a whole beginning at the end of an answer cut short is no call, but also
// no text: *skip is all of it then, and 0 for everything else that is no call.
Begins begins_call(std::string_view text, bool cut, size_t* skip);
// Leading whitespace (space, \t, \n, \r), at most kMaxLayoutBytes of it counted.
size_t layout_bytes(std::string_view text);
// Whitespace beyond this is no layout between tags: bounds what is held back.
constexpr size_t kMaxLayoutBytes = 256;

class QwenCallSink {
 public:
  virtual ~QwenCallSink() = default;
  virtual void begin_call(std::string name) = 0;          // name is not empty
  virtual void add_arguments(std::string_view text) = 0;  // of the call begun last
  virtual void add_loose(std::string_view text) = 0;      // belongs to no call
};

// The common contract of both forms. read() takes text from the front and returns how much it used;
// the rest waits for more, or is not the call's when done(). With `cut`, nothing more will come.
// A call that the model ended gets well-formed arguments (JSON form: as the model wrote them); one
// cut short gets what there was.
class QwenJsonCall {
 public:
  void begin();
  size_t read(std::string_view text, bool cut, QwenCallSink& sink);
  bool done() const { return done_; }
  bool closed() const { return closed_; }  // by </tool_call>, which was used

 private:
  enum class State : uint8_t {
    between,
    key_or_end,
    key,
    colon,
    value,
    string,
    scalar,
    structure,
    after_value,
    complete
  };
  size_t read_mark(char mark, QwenCallSink& sink);
  bool take(char c, QwenCallSink& sink);
  bool take_key(char c, QwenCallSink& sink);
  bool take_value(char c);
  bool take_string(char c, QwenCallSink& sink);
  bool take_structure(char c);
  bool end_string(QwenCallSink& sink);
  void end_scalar(QwenCallSink& sink);
  bool end_object(QwenCallSink& sink);
  void open(QwenCallSink& sink);
  void emit(QwenCallSink& sink);
  void give_up(QwenCallSink& sink);
  void finish(bool cut, QwenCallSink& sink);
  bool in_string() const;
  bool wants_arguments() const { return key_ == "arguments"; }

  State state_ = State::between;
  bool done_ = false, closed_ = false;
  std::string raw_;  // the object so far, while it is not clear that it is a call
  std::string key_, text_, name_;
  std::string arguments_;  // not delivered yet
  bool opened_ = false, has_arguments_ = false, in_string_ = false, escaped_ = false;
  uint32_t depth_ = 0;
};

class QwenXmlCall {
 public:
  // `tools` must outlive it; any JSON.
  explicit QwenXmlCall(const Json& tools) : tools_(tools) {}
  void begin();  // read() then begins at "<function="
  size_t read(std::string_view text, bool cut, QwenCallSink& sink);
  bool done() const { return done_; }
  bool closed() const { return closed_; }

 private:
  enum class State : uint8_t { tag, name, body, key, value, complete };
  struct Step {
    size_t used = 0;
    bool wait = false;
  };
  Step step(std::string_view text, bool cut, QwenCallSink& sink);
  Step read_name(std::string_view text, bool cut, QwenCallSink& sink);
  Step read_body(std::string_view text, bool cut, QwenCallSink& sink);
  Step read_body_tag(std::string_view text, bool cut, QwenCallSink& sink);
  Step read_key(std::string_view text, bool cut, QwenCallSink& sink);
  Step read_value(std::string_view text, bool cut, QwenCallSink& sink);
  Step read_complete(std::string_view text, bool cut);
  // Does the value end in front of `text`, which begins with '<' or a mark? *used: of what only
  // ends the value.
  Begins ends_value(std::string_view text, bool cut, size_t* used) const;
  Begins begins_parameter(std::string_view text, bool cut) const;
  void begin_value(std::string_view key, QwenCallSink& sink);
  void add_value(std::string_view text, QwenCallSink& sink);
  void end_value(QwenCallSink& sink);
  void end_call(QwenCallSink& sink);
  void cut_short(QwenCallSink& sink);

  const Json& tools_;
  State state_ = State::tag;
  bool done_ = false, closed_ = false;
  const Json* parameters_ = nullptr;  // schema of the function being called
  std::set<std::string, std::less<>> keys_;
  enum class Into : uint8_t { string, buffer, loose };  // where a value's text goes
  Into into_ = Into::string;
  JsonKinds kinds_;
  std::string buffer_;
  bool at_start_ = false, at_line_start_ = false, newline_held_ = false;  // within a value
};

}  // namespace wader
