// <function=f>, <parameter=a> and values without any escaping. What looks like a closing tag may be
// part of a value (a file about XML, say): it counts only where the call goes on behind it as a
// call does.
#include <algorithm>
#include <initializer_list>
#include <iterator>

#include "chat/qwen_call.h"

namespace wader {
namespace {

constexpr std::string_view kParameter = "<parameter=", kEndParameter = "</parameter>";
constexpr std::string_view kEndFunction = "</function>";
constexpr std::string_view kCall = qwen_tag_text(QwenTag::call);
constexpr std::string_view kEndCall = qwen_tag_text(QwenTag::end_call);

// Longer than any real name; beyond it the model is writing something else.
constexpr size_t kMaxNameBytes = 256;

bool ends_turn(char c) {
  return is_mark(c) && static_cast<uint8_t>(c) >= static_cast<uint8_t>(QwenMark::end);
}

// Does one of `words`, or a mark that a call can be followed by, come after whitespace? Where the
// answer is cut short, the beginning of one will do.
Begins continues(std::string_view text, bool cut, std::initializer_list<std::string_view> words) {
  text.remove_prefix(layout_bytes(text));
  if (text.empty()) return cut ? Begins::yes : Begins::maybe;
  if (ends_turn(text.front()) || is_mark(text, QwenMark::end_call) || is_mark(text, QwenMark::call))
    return Begins::yes;
  Begins found = Begins::no;
  for (const std::string_view word : words) {
    const Begins begins = begins_with(text, word, /*cut=*/false);
    if (begins == Begins::yes) return begins;
    if (begins == Begins::maybe) found = cut ? Begins::yes : begins;
  }
  return found;
}

// The beginning of a tag at the end of an answer cut short.
bool is_half_tag(std::string_view text) {
  constexpr std::string_view kTags[] = {kParameter, kEndParameter, kEndFunction, kEndCall};
  return std::any_of(std::begin(kTags), std::end(kTags),
                     [&](std::string_view tag) { return tag != text && tag.starts_with(text); });
}

// A name or key as the model wrote it, without what may stand around it.
std::string_view bare(std::string_view name) {
  constexpr std::string_view kAround = " \t\r\"'";
  name.remove_prefix(std::min(name.find_first_not_of(kAround), name.size()));
  return name.substr(0, name.find_last_not_of(kAround) + 1);
}

size_t find_name_end(std::string_view text) {
  const auto ends = [](char c) { return c == '>' || c == '\n' || is_mark(c); };
  return static_cast<size_t>(std::find_if(text.begin(), text.end(), ends) - text.begin());
}

size_t find_tag(std::string_view text) {
  const auto begins = [](char c) { return c == '<' || is_mark(c); };
  return static_cast<size_t>(std::find_if(text.begin(), text.end(), begins) - text.begin());
}

// Inside of a JSON string.
std::string escaped(std::string_view text) {
  const std::string quoted = json_text(Json(std::string(text)));
  return quoted.substr(1, quoted.size() - 2);
}

}  // namespace

void QwenXmlCall::begin() {
  state_ = State::tag;
  done_ = closed_ = false;
}

size_t QwenXmlCall::read(std::string_view text, bool cut, QwenCallSink& sink) {
  size_t used = 0;
  while (!done_ && used < text.size()) {
    const Step next = step(text.substr(used), cut, sink);
    used += next.used;
    if (next.wait) break;
  }
  if (cut && !done_) cut_short(sink);
  return used;
}

QwenXmlCall::Step QwenXmlCall::step(std::string_view text, bool cut, QwenCallSink& sink) {
  switch (state_) {
    case State::tag:
      state_ = State::name;
      return {kQwenFunction.size()};
    case State::name:
      return read_name(text, cut, sink);
    case State::body:
      return read_body(text, cut, sink);
    case State::key:
      return read_key(text, cut, sink);
    case State::value:
      return read_value(text, cut, sink);
    case State::complete:
      return read_complete(text, cut);
  }
  UNREACHABLE("no such case");
}

QwenXmlCall::Step QwenXmlCall::read_name(std::string_view text, bool cut, QwenCallSink& sink) {
  const size_t end = find_name_end(text);
  if (end == text.size() && end <= kMaxNameBytes) {
    if (cut) return {text.size()};  // half a name makes no call and is no text
    return {0, true};
  }
  const std::string_view name = bare(text.substr(0, end));
  if (end > kMaxNameBytes || is_mark(text[end]) || name.empty()) {
    sink.add_loose(kQwenFunction);
    done_ = true;
    return {};
  }
  sink.begin_call(std::string(name));
  parameters_ = find_parameters(tools_, name);
  keys_.clear();
  state_ = State::body;
  return {end + 1};
}

QwenXmlCall::Step QwenXmlCall::read_body(std::string_view text, bool cut, QwenCallSink& sink) {
  if (const size_t layout = layout_bytes(text); layout > 0) {
    sink.add_loose(text.substr(0, layout));
    return {layout};
  }
  if (is_mark(text.front())) {
    if (is_mark(text, QwenMark::end_call) || is_mark(text, QwenMark::call) ||
        ends_turn(text.front())) {
      end_call(sink);
      done_ = true;
      closed_ = is_mark(text, QwenMark::end_call);
      return {closed_ ? 1u : 0u};
    }
    return {1};  // a stray tag is nothing
  }
  if (text.front() == '<') return read_body_tag(text, cut, sink);
  const size_t end = find_tag(text);
  sink.add_loose(text.substr(0, end));
  return {end};
}

QwenXmlCall::Step QwenXmlCall::read_body_tag(std::string_view text, bool cut, QwenCallSink& sink) {
  for (const std::string_view tag :
       {kParameter, kEndFunction, kEndCall, kQwenFunction, kEndParameter}) {
    const Begins begins = begins_with(text, tag, cut);
    if (begins == Begins::maybe) return {0, true};
    if (begins == Begins::no) continue;
    if (tag == kParameter) {
      state_ = State::key;
    } else if (tag == kEndFunction) {
      end_call(sink);
      state_ = State::complete;
    } else if (tag == kEndCall) {
      end_call(sink);
      done_ = closed_ = true;
    } else if (tag == kQwenFunction) {
      end_call(sink);
      state_ = State::name;
    }
    return {tag.size()};
  }
  if (cut && is_half_tag(text)) return {text.size()};
  sink.add_loose("<");
  return {1};
}

QwenXmlCall::Step QwenXmlCall::read_key(std::string_view text, bool cut, QwenCallSink& sink) {
  const size_t end = find_name_end(text);
  if (end == text.size() && end <= kMaxNameBytes) {
    if (cut) return {text.size()};
    return {0, true};
  }
  if (end > kMaxNameBytes || is_mark(text[end])) {
    sink.add_loose(kParameter);
    state_ = State::body;
    return {};
  }
  begin_value(bare(text.substr(0, end)), sink);
  state_ = State::value;
  // A key's own line ends in '>'; where it was forgotten, the line end is the value's first.
  return {text[end] == '>' ? end + 1 : end};
}

QwenXmlCall::Step QwenXmlCall::read_value(std::string_view text, bool cut, QwenCallSink& sink) {
  const size_t plain = find_tag(text);
  if (plain > 0) {
    add_value(text.substr(0, plain), sink);
    return {plain};
  }
  if (cut && is_half_tag(text)) return {text.size()};
  size_t used = 0;
  switch (ends_value(text, cut, &used)) {
    case Begins::yes:
      end_value(sink);
      state_ = State::body;
      return {used};
    case Begins::maybe:
      return {0, true};
    case Begins::no:
      // A tag within a value is part of what the model wants written; in loose text it is nothing.
      if (!is_mark(text.front()))
        add_value(text.substr(0, 1), sink);
      else if (into_ != Into::loose)
        add_value(mark_text(text.front()), sink);
      return {1};
  }
  UNREACHABLE("no such case");
}

Begins QwenXmlCall::ends_value(std::string_view text, bool cut, size_t* used) const {
  if (is_mark(text.front())) {
    if (is_mark(text, QwenMark::end_call) || ends_turn(text.front())) return Begins::yes;
    if (!is_mark(text, QwenMark::call)) return Begins::no;
    size_t skip = 0;
    return begins_call(text.substr(1), cut, &skip);
  }
  Begins found = Begins::no;
  const auto closes = [&](std::string_view tag, std::initializer_list<std::string_view> next) {
    Begins begins = begins_with(text, tag, cut);
    if (begins == Begins::yes) begins = continues(text.substr(tag.size()), cut, next);
    if (begins != Begins::no) found = begins;
    return begins == Begins::yes;
  };
  if (closes(kEndParameter, {kParameter, kEndFunction, kEndCall, kQwenFunction})) {
    *used = kEndParameter.size();
    return found;
  }
  if (closes(kEndFunction, {kEndCall, kQwenFunction})) return found;
  if (!at_line_start_) return found;
  if (closes(kEndCall, {kCall})) return found;
  const Begins parameter = begins_parameter(text, cut);
  return parameter != Begins::no ? parameter : found;
}

// The next parameter where </parameter> was forgotten: its key must be one that the function has.
Begins QwenXmlCall::begins_parameter(std::string_view text, bool cut) const {
  const Begins begins = begins_with(text, kParameter, cut);
  if (begins != Begins::yes) return begins;
  const std::string_view rest = text.substr(kParameter.size());
  const size_t end = find_name_end(rest);
  if (end > kMaxNameBytes) return Begins::no;
  if (end == rest.size()) return cut ? Begins::yes : Begins::maybe;
  const std::string_view key = bare(rest.substr(0, end));
  const bool plausible = rest[end] == '>' && !key.empty() &&
                         key.find_first_of("<> \t") == key.npos &&
                         may_be_property(parameters_, key) && !keys_.contains(key);
  return plausible ? Begins::yes : Begins::no;
}

QwenXmlCall::Step QwenXmlCall::read_complete(std::string_view text, bool cut) {
  if (const size_t layout = layout_bytes(text); layout > 0) return {layout};
  if (is_mark(text, QwenMark::end_call)) {
    done_ = closed_ = true;
    return {1};
  }
  const Begins closes = begins_with(text, kEndCall, cut);
  const Begins opens = begins_with(text, kQwenFunction, cut);
  if (closes == Begins::yes) {
    done_ = closed_ = true;
    return {kEndCall.size()};
  }
  if (opens == Begins::yes) {
    state_ = State::tag;
    return {};
  }
  if (closes == Begins::maybe || opens == Begins::maybe) return {0, true};
  done_ = true;
  return {};
}

// A key that came before has no second value: its text belongs to no argument.
void QwenXmlCall::begin_value(std::string_view key, QwenCallSink& sink) {
  at_start_ = at_line_start_ = true;
  newline_held_ = false;
  buffer_.clear();
  const bool first = keys_.empty();
  if (!keys_.insert(std::string(key)).second) {
    into_ = Into::loose;
    return;
  }
  kinds_ = property_kinds(parameters_, key);
  into_ = kinds_.only_string() ? Into::string : Into::buffer;
  sink.add_arguments(std::string(first ? "{" : ", ") + json_text(Json(std::string(key))) + ": " +
                     (into_ == Into::string ? "\"" : ""));
}

// The line ends behind <parameter=…> and in front of </parameter> are layout.
void QwenXmlCall::add_value(std::string_view text, QwenCallSink& sink) {
  if (at_start_ && text.starts_with('\n')) text.remove_prefix(1);
  at_start_ = false;
  if (text.empty()) return;
  std::string piece = newline_held_ ? "\n" : "";
  newline_held_ = at_line_start_ = text.ends_with('\n');
  piece += newline_held_ ? text.substr(0, text.size() - 1) : text;
  if (into_ == Into::string)
    sink.add_arguments(escaped(piece));
  else if (into_ == Into::buffer)
    buffer_ += piece;
  else
    sink.add_loose(piece);
}

void QwenXmlCall::end_value(QwenCallSink& sink) {
  if (into_ == Into::string) sink.add_arguments("\"");
  if (into_ == Into::buffer) sink.add_arguments(value_as_json(buffer_, kinds_));
}

void QwenXmlCall::end_call(QwenCallSink& sink) {
  sink.add_arguments(keys_.empty() ? "{}" : "}");
}

// The arguments stay as unfinished as they are, so that no client takes them for whole.
void QwenXmlCall::cut_short(QwenCallSink& sink) {
  if (state_ == State::value && into_ == Into::buffer) sink.add_arguments(buffer_);
  done_ = true;
}

}  // namespace wader
