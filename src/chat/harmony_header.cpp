// Headers as models really write them. The recipient may stand before or after the channel, the
// content type with or without <|constrain|>, channel names get glued to something or lost, and
// sometimes the message token never comes. A word counts as a header field only where such a field
// may stand; all other words are text.
#include <algorithm>
#include <array>

#include "chat/harmony.h"

namespace wader {
namespace {

constexpr std::array<std::string_view, 3> kChannels = {"analysis", "commentary", "final"};
constexpr std::array<std::string_view, 6> kTypes = {"json",     "code",      "text",
                                                    "markdown", "plaintext", "python"};
constexpr std::string_view kAssistant = "assistant";
constexpr std::string_view kSpace = " \t\r\n\v\f";

bool is_lower(char c) {
  return c >= 'a' && c <= 'z';
}
bool is_letter(char c) {
  return is_lower(c) || (c >= 'A' && c <= 'Z');
}

template <typename List>
bool contains(const List& list, std::string_view word) {
  return std::find(list.begin(), list.end(), word) != list.end();
}

std::string_view trim_left(std::string_view text) {
  text.remove_prefix(std::min(text.find_first_not_of(kSpace), text.size()));
  return text;
}

// Words of one header section, front to back.
class Words {
 public:
  explicit Words(std::string_view text) : rest_(trim_left(text)) {}

  std::string_view peek() const { return rest_.substr(0, rest_.find_first_of(kSpace)); }
  std::string_view peek_second() const {
    const std::string_view after = trim_left(rest_.substr(peek().size()));
    return after.substr(0, after.find_first_of(kSpace));
  }
  // Drops the first `bytes` of the next word, and the space after it where that was the whole word.
  void take(size_t bytes) { rest_ = trim_left(rest_.substr(bytes)); }
  std::string_view rest() const { return rest_; }
  bool empty() const { return rest_.empty(); }

 private:
  std::string_view rest_;
};

bool looks_like_recipient(std::string_view word) {
  return is_harmony_builtin(word) || (word.starts_with("functions.") && word.size() > 10);
}

// Bytes of `word` that are a channel name: "final", also "--final", "finalThe" and "analysisfinal"
// (the last name counts), but nothing of "finally". `channel` is set when there are any.
size_t channel_bytes(std::string_view word, std::string_view* channel) {
  size_t used = std::min(word.find_first_not_of("-_.:*"), word.size());
  std::string_view found;
  for (bool again = true; again;) {
    again = false;
    for (const std::string_view name : kChannels) {
      if (!word.substr(used).starts_with(name)) continue;
      found = name;
      used += name.size();
      again = true;
      break;
    }
  }
  const std::string_view after = word.substr(used);
  const bool ends = after.empty() || !is_lower(after.front()) || after.starts_with("to=");
  if (found.empty() || !ends) return 0;
  *channel = found;
  return used;
}

class Reader {
 public:
  Reader(const HarmonyHeaderText& text, HarmonyHeaderEnd end)
      : text_(text),
        complete_(end == HarmonyHeaderEnd::message),
        cut_(end == HarmonyHeaderEnd::cut) {}

  HarmonyHeader read() {
    Words role(text_.role);
    read_role(role);
    if (!text_.channel && complete_ && contains(kChannels, role.peek()))
      read_channel(role);  // <|start|>assistant final<|message|>
    read_fields(role, /*last=*/!text_.channel && !text_.type);
    keep(role, Section::role);
    if (text_.channel) {
      Words words(*text_.channel);
      read_channel(words);
      read_fields(words, /*last=*/!text_.type);
      keep(words, Section::channel);
    }
    if (text_.type) {
      Words words(*text_.type);
      read_type(words);
      read_fields(words, /*last=*/true);
      keep(words, Section::type);
    }
    return result();
  }

 private:
  enum class Section : uint8_t { role, channel, type };

  void read_role(Words& words) {
    constexpr std::array<std::string_view, 4> kOthers = {"user", "system", "developer", "tool"};
    const std::string_view word = words.peek();
    if (word == kAssistant || word == "Assistant") {
      words.take(word.size());
    } else if (word.starts_with(kAssistant) && read_glued(words, kAssistant.size())) {
      return;
    } else if (text_.role_known || contains(kChannels, word)) {
      return;
    } else if (contains(kOthers, word) || looks_like_recipient(word)) {
      from_other_ = true;  // the model plays the user or a tool
      words.take(word.size());
    } else if (complete_ && !word.empty() && !word.starts_with("to=") &&
               (words.peek_second().empty() || words.peek_second().starts_with("to="))) {
      from_other_ = words.peek_second() == "to=assistant";
      words.take(word.size());  // an unknown role
    }
  }

  // "assistantfinal", "assistantto=functions.f".
  bool read_glued(Words& words, size_t role_bytes) {
    const std::string_view after = words.peek().substr(role_bytes);
    std::string_view channel;
    if (after.starts_with("to=")) {
      words.take(role_bytes);
      return true;
    }
    if (channel_bytes(after, &channel) != after.size()) return false;
    words.take(words.peek().size());
    channel_ = channel;
    return true;
  }

  void read_channel(Words& words) {
    const std::string_view word = words.peek();
    if (const size_t bytes = channel_bytes(word, &channel_); bytes > 0) {
      words.take(bytes);
      return;
    }
    // A name that we don't know, standing where a name stands.
    const bool name_like = std::all_of(word.begin(), word.end(),
                                       [](char c) { return is_letter(c) || c == '-' || c == '_'; });
    const std::string_view next = words.peek_second();
    if (complete_ && name_like && !looks_like_recipient(word) &&
        (next.empty() || next.starts_with("to=") || contains(kTypes, next))) {
      words.take(word.size());
    }
  }

  // to=RECIPIENT and bare content types, in any order. last: no section follows.
  void read_fields(Words& words, bool last) {
    while (!words.empty()) {
      const std::string_view word = words.peek();
      if (word.starts_with("to=")) {
        read_recipient(words, last);
      } else if (contains(kTypes, word) && (complete_ || !recipient_.empty())) {
        words.take(word.size());
      } else if (complete_ && recipient_.empty() && looks_like_recipient(word) &&
                 words.peek_second().empty()) {
        recipient_ = word;  // "commentary functions.f"
        words.take(word.size());
      } else {
        return;
      }
    }
  }

  void read_recipient(Words& words, bool last) {
    words.take(3);
    const std::string_view word = words.peek();
    // Arguments may follow at once when the message token was forgotten: to=functions.f{"a":1}
    const size_t bytes = std::min(word.find_first_of("{[\"<"), word.size());
    recipient_ = word.substr(0, bytes);
    words.take(bytes);
    recipient_open_ = cut_ && words.empty() && last;
  }

  // After <|constrain|>: any word is the type where the header is whole.
  void read_type(Words& words) {
    const std::string_view word = words.peek();
    const auto end = std::find_if(word.begin(), word.end(), [](char c) {
      return !is_letter(c) && !(c >= '0' && c <= '9') && c != '_' && c != '-' && c != '/' &&
             c != '.';
    });
    const std::string_view type = word.substr(0, static_cast<size_t>(end - word.begin()));
    if (word.starts_with("to=")) return;
    if (complete_ || contains(kTypes, type)) words.take(type.size());
  }

  void keep(const Words& words, Section section) {
    if (words.empty() || (cut_ && may_be_half_a_field(words.rest(), section))) return;
    if (!out_.text.empty()) out_.text += ' ';
    out_.text += words.rest();
  }

  // True for the start of a word that the section may hold: "anal", "to", "js".
  bool may_be_half_a_field(std::string_view rest, Section section) const {
    const auto begins_one = [&](const auto& words) {
      return std::any_of(words.begin(), words.end(),
                         [&](std::string_view word) { return word.starts_with(rest); });
    };
    if (std::string_view("to=").starts_with(rest)) return true;
    switch (section) {
      case Section::role:
        return !text_.role_known && kAssistant.starts_with(rest);
      case Section::channel:
        return begins_one(kChannels) || begins_one(kTypes);
      case Section::type:
        return begins_one(kTypes);
    }
    return false;
  }

  HarmonyHeader result() {
    constexpr std::array<std::string_view, 4> kNobody = {"", "all", "user", "assistant"};
    const bool to_tool = !recipient_open_ && !contains(kNobody, recipient_) &&
                         !harmony_tool_name(recipient_).empty();
    if (from_other_) {
      out_.field = HarmonyHeader::Field::reasoning;
    } else if (to_tool) {
      out_.field = HarmonyHeader::Field::call;
      out_.tool = recipient_;
    } else if (channel_ == "analysis") {
      out_.field = HarmonyHeader::Field::reasoning;
    }
    return std::move(out_);
  }

  const HarmonyHeaderText& text_;
  const bool complete_, cut_;
  bool from_other_ = false;
  bool recipient_open_ = false;  // cut in the middle of the name, for all we know
  std::string_view channel_, recipient_;
  HarmonyHeader out_;
};

}  // namespace

HarmonyHeader read_harmony_header(const HarmonyHeaderText& text, HarmonyHeaderEnd end) {
  return Reader(text, end).read();
}

}  // namespace wader
