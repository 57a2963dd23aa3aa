// What every chat format's parser must keep, for the fuzz targets: text is whole UTF-8, and what
// came in pieces is the message.
#pragma once

#include <string_view>

#include "base/check.h"
#include "chat/chat.h"
#include "tokenizer/utf8.h"

namespace wader::fuzz {

inline void check_utf8(std::string_view text) {
  CHECK(wader::valid_utf8_prefix(text) == text.size());
}

// Adds a delta to what came before it.
inline void add(const ChatDelta& delta, Message& sum) {
  check_utf8(delta.content);
  check_utf8(delta.reasoning);
  sum.content += delta.content;
  sum.reasoning += delta.reasoning;
  for (const auto& call : delta.tool_calls) {
    check_utf8(call.name);
    check_utf8(call.arguments);
    CHECK(call.index <= sum.tool_calls.size());
    if (call.index == sum.tool_calls.size()) {
      CHECK(!call.id.empty() && !call.name.empty());
      sum.tool_calls.push_back({call.id, call.name, ""});
    } else {
      CHECK(call.id.empty() && call.name.empty());
    }
    sum.tool_calls[call.index].arguments += call.arguments;
  }
}

inline void check_sum(const Message& sum, const Message& message) {
  CHECK(sum.content == message.content);
  CHECK(sum.reasoning == message.reasoning);
  CHECK(sum.tool_calls.size() == message.tool_calls.size());
  for (size_t i = 0; i < sum.tool_calls.size(); ++i) {
    CHECK(sum.tool_calls[i].id == message.tool_calls[i].id);
    CHECK(sum.tool_calls[i].name == message.tool_calls[i].name);
    CHECK(sum.tool_calls[i].arguments == message.tool_calls[i].arguments);
  }
}

}  // namespace wader::fuzz
