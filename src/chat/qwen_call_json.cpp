// {"name": "f", "arguments": {…}}, read a byte at a time. Only the outer object's grammar counts:
// arguments pass as they are, so that a client sees what the model wrote.
#include <algorithm>
#include <utility>

#include "chat/qwen_call.h"

namespace wader {
namespace {

bool is_space(char c) {
  return c == ' ' || c == '\n' || c == '\t' || c == '\r';
}

}  // namespace

std::string_view mark_text(char mark) {
  const size_t index = static_cast<uint8_t>(mark) - static_cast<size_t>(QwenMark::think);
  return index < kQwenTags.size() ? kQwenTags[index] : std::string_view();
}

Begins begins_with(std::string_view text, std::string_view word, bool cut) {
  if (text.starts_with(word)) return Begins::yes;
  return !cut && word.starts_with(text) ? Begins::maybe : Begins::no;
}

size_t layout_bytes(std::string_view text) {
  size_t bytes = 0;
  while (bytes < text.size() && bytes < kMaxLayoutBytes && is_space(text[bytes])) ++bytes;
  return bytes;
}

Begins begins_call(std::string_view text, bool cut, size_t* skip) {
  const size_t layout = layout_bytes(text);
  const std::string_view rest = text.substr(layout);
  const bool too_long = rest.empty() && layout == kMaxLayoutBytes;
  Begins begins = begins_with(rest, kQwenFunction, /*cut=*/false);
  if (rest.starts_with('{')) begins = Begins::yes;
  if (too_long || (cut && begins == Begins::maybe)) {
    *skip = too_long ? 0 : text.size();
    return Begins::no;
  }
  *skip = begins == Begins::yes ? layout : 0;
  return begins;
}

void QwenJsonCall::begin() {
  *this = QwenJsonCall();
}

size_t QwenJsonCall::read(std::string_view text, bool cut, QwenCallSink& sink) {
  const std::string_view close = qwen_tag_text(QwenTag::end_call);
  size_t used = 0;
  while (!done_ && used < text.size()) {
    const char c = text[used];
    if (is_mark(c)) {
      used += read_mark(c, sink);
      continue;
    }
    if (c == '<' && !in_string()) {
      const Begins closes = begins_with(text.substr(used), close, cut);
      if (closes == Begins::maybe) break;
      if (closes == Begins::yes) {
        finish(false, sink);
        closed_ = true;
        used += close.size();
        continue;
      }
    }
    if (take(c, sink))
      ++used;
    else
      give_up(sink);
  }
  emit(sink);
  if (cut && !done_) finish(true, sink);
  return used;
}

// Returns how many bytes of the mark are used: one or none.
size_t QwenJsonCall::read_mark(char mark, QwenCallSink& sink) {
  const auto kind = static_cast<QwenMark>(mark);
  const bool ends = kind == QwenMark::end_call || kind == QwenMark::end || kind == QwenMark::turn;
  if (ends || (kind == QwenMark::call && !in_string())) {
    finish(false, sink);
    closed_ = kind == QwenMark::end_call;
    return closed_ ? 1 : 0;
  }
  if (!in_string() || !wants_arguments()) return 1;  // a stray tag is nothing
  // In an argument's string it is what the model wants written: a file about chat templates, say.
  // Should this turn out to be no call, it was a stray tag.
  const size_t raw_bytes = raw_.size();
  for (const char c : mark_text(mark)) take(c, sink);
  raw_.resize(std::min(raw_bytes, raw_.size()));
  return 1;
}

bool QwenJsonCall::in_string() const {
  return state_ == State::key || state_ == State::string ||
         (state_ == State::structure && in_string_);
}

// False where `c` cannot stand.
bool QwenJsonCall::take(char c, QwenCallSink& sink) {
  if (!opened_ && state_ != State::complete) raw_ += c;
  bool fits = true;
  switch (state_) {
    case State::between:  // in front of the object
      fits = c == '{';
      state_ = State::key_or_end;
      break;
    case State::key_or_end:
    case State::after_value:
      fits = take_key(c, sink);
      break;
    case State::key:
    case State::string:
      fits = take_string(c, sink);
      break;
    case State::colon:
      if (c == ':') state_ = State::value;
      fits = c == ':' || is_space(c);
      break;
    case State::value:
      fits = is_space(c) || take_value(c);
      if (state_ == State::structure) open(sink);
      break;
    case State::scalar:
      if (c == ',' || c == '}' || is_space(c)) {
        end_scalar(sink);
        fits = take_key(c, sink);
      } else {
        text_ += c;
      }
      break;
    case State::structure:
      fits = take_structure(c);
      break;
    case State::complete:
      if (c == '{') {
        begin();
        return take(c, sink);
      }
      fits = is_space(c) || c == '}';  // braces too many are a common slip
      break;
  }
  if (!fits && !opened_ && !raw_.empty()) raw_.pop_back();
  return fits;
}

bool QwenJsonCall::take_key(char c, QwenCallSink& sink) {
  if (is_space(c)) return true;
  if (c == '}') return end_object(sink);
  if (c == ',') {
    const bool fits = state_ == State::after_value;
    state_ = State::key_or_end;
    return fits;
  }
  if (c != '"' || state_ == State::after_value) return false;
  state_ = State::key;
  text_.clear();
  return true;
}

bool QwenJsonCall::take_value(char c) {
  text_.clear();
  if (c == '"') {
    state_ = State::string;
    return true;
  }
  if (key_ == "name" || c == ',' || c == '}' || c == ']') return false;
  if (c == '{' || c == '[') {
    state_ = State::structure;
    depth_ = 1;
    in_string_ = escaped_ = false;
    if (wants_arguments()) {
      has_arguments_ = true;
      arguments_ = c;
    }
    return true;
  }
  state_ = State::scalar;
  text_ = c;
  return true;
}

bool QwenJsonCall::take_string(char c, QwenCallSink& sink) {
  if (c == '"' && !escaped_) return end_string(sink);
  escaped_ = c == '\\' && !escaped_;
  text_ += c;
  return true;
}

bool QwenJsonCall::end_string(QwenCallSink& sink) {
  const auto decoded = parse_json('"' + text_ + '"', "string");
  if (state_ == State::key) {
    state_ = State::colon;
    if (!decoded) return false;
    key_ = decoded->get<std::string>();
    // Said twice, the first counts: it may be delivered already.
    if (key_ == "name" ? !name_.empty() : wants_arguments() && has_arguments_) key_.clear();
    return true;
  }
  state_ = State::after_value;
  if (key_ == "name") {
    if (!decoded || decoded->get_ref<const std::string&>().empty()) return false;
    name_ = decoded->get<std::string>();
    if (has_arguments_) open(sink);
  } else if (wants_arguments()) {
    // JSON in a string, as OpenAI's API writes arguments.
    const bool nested = decoded && [&] {
      const auto inner = parse_json(decoded->get_ref<const std::string&>(), "arguments");
      return inner && inner->is_object();
    }();
    arguments_ = nested ? decoded->get<std::string>() : '"' + text_ + '"';
    has_arguments_ = true;
    open(sink);
  }
  return true;
}

void QwenJsonCall::end_scalar(QwenCallSink& sink) {
  state_ = State::after_value;
  if (!wants_arguments()) return;
  arguments_ = text_ == "null" ? "{}" : text_;
  has_arguments_ = true;
  open(sink);
}

bool QwenJsonCall::take_structure(char c) {
  if (wants_arguments()) arguments_ += c;
  if (in_string_) {
    if (c == '"' && !escaped_) in_string_ = false;
    escaped_ = c == '\\' && !escaped_;
  } else if (c == '"') {
    in_string_ = true;
    escaped_ = false;
  } else if (c == '{' || c == '[') {
    ++depth_;
  } else if ((c == '}' || c == ']') && --depth_ == 0) {
    state_ = State::after_value;
  }
  return true;
}

bool QwenJsonCall::end_object(QwenCallSink& sink) {
  if (name_.empty()) return false;
  if (!has_arguments_) arguments_ = "{}";
  open(sink);
  emit(sink);  // before another object, maybe in the same token, starts anew
  state_ = State::complete;
  return true;
}

// The call is certain once its name and the beginning of its arguments are known.
void QwenJsonCall::open(QwenCallSink& sink) {
  if (opened_ || name_.empty()) return;
  opened_ = true;
  raw_.clear();
  sink.begin_call(name_);
  emit(sink);
}

void QwenJsonCall::emit(QwenCallSink& sink) {
  if (!opened_ || arguments_.empty()) return;
  sink.add_arguments(arguments_);
  arguments_.clear();
}

// It is no call, or none any more: what was held is text.
void QwenJsonCall::give_up(QwenCallSink& sink) {
  emit(sink);
  if (!opened_ && !raw_.empty()) sink.add_loose(raw_);
  done_ = true;
}

void QwenJsonCall::finish(bool cut, QwenCallSink& sink) {
  const bool whole_value = state_ == State::after_value || state_ == State::key_or_end;
  if (state_ == State::complete || opened_) {
    emit(sink);
    done_ = true;
  } else if (!cut && whole_value && !name_.empty()) {
    end_object(sink);  // only the brace is missing
    done_ = true;
  } else if (cut && !has_arguments_) {
    done_ = true;  // half a header may hold half a name: it makes no call and is no text
  } else {
    give_up(sink);
  }
}

}  // namespace wader
