// The harmony parser on any stream of token ids: nothing crashes, everything that comes out is
// whole UTF-8, no control token's text comes out unless ordinary tokens spelled it, deltas add up
// to message().
#include <algorithm>
#include <array>
#include <cstddef>
#include <cstdint>
#include <string>
#include <string_view>
#include <vector>

#include "base/check.h"
#include "chat/chat.h"
#include "chat_fuzz.h"
#include "tokenizer/tokenizer.h"
#include "tokenizer/utf8.h"

namespace {

using wader::TokenId;
using wader::fuzz::add;
using wader::fuzz::check_sum;

constexpr std::array<std::string_view, 9> kControls = {
    "<|start|>",  "<|end|>",  "<|message|>",     "<|channel|>",  "<|constrain|>",
    "<|return|>", "<|call|>", "<|startoftext|>", "<|endoftext|>"};
// What headers are made of, so that the fuzzer need not find it out token by token.
constexpr std::array<std::string_view, 24> kWords = {
    "assistant", "analysis", "final",  "commentary", " to=", "to=",    "functions.",
    "f",         " json",    "json",   " code",      "user", "python", "browser.search",
    "{\"a\": 1", "}",        " ",      "\n",         "--",   "tool",   "all",
    "<|end|>",   "🦩",     "finally"};

const wader::Tokenizer& tokenizer() {
  static const wader::Tokenizer loaded =
      wader::Tokenizer::load(WADER_SOURCE_DIR "/models/demo/tokenizer.json").value();
  return loaded;
}

// A byte is a control token, a word, or with the byte after it an id (some outside the vocabulary).
std::vector<TokenId> ids_from(const uint8_t* data, size_t size) {
  std::vector<TokenId> ids;
  for (size_t i = 0; i < size; ++i) {
    const uint8_t byte = data[i];
    if (byte >= 0xE0) {
      ids.push_back(*tokenizer().added_token(kControls[byte % kControls.size()]));
    } else if (byte >= 0xA0) {
      CHECK(tokenizer()
                .encode(kWords[byte % kWords.size()], wader::Tokenizer::Markup::off, ids)
                .ok());
    } else {
      const int low = i + 1 < size ? data[++i] : 0;
      ids.push_back(byte * 256 + low - 8);
    }
  }
  return ids;
}

void check_markers(std::string_view out, std::string_view spelled) {
  for (const std::string_view control : kControls) {
    if (out.find(control) != std::string_view::npos)
      CHECK(spelled.find(control) != std::string_view::npos);
  }
}

// Text between <|message|> and the next control token is delivered in one piece. (Only ASCII is
// looked for: a character may begin before and end after such a run.)
void check_delivered(const std::vector<std::string>& runs, const wader::Message& message) {
  for (const std::string& run : runs) {
    if (std::any_of(run.begin(), run.end(), [](char c) { return (c & 0x80) != 0; })) continue;
    const auto holds = [&](const std::string& field) {
      return field.find(run) != std::string::npos;
    };
    CHECK(holds(message.content) || holds(message.reasoning) ||
          std::any_of(message.tool_calls.begin(), message.tool_calls.end(),
                      [&](const wader::ToolCall& call) { return holds(call.arguments); }));
  }
}

}  // namespace

extern "C" int LLVMFuzzerTestOneInput(const uint8_t* data, size_t size) {
  static const auto format = wader::make_chat_format("gpt_oss", "", tokenizer()).value();
  const auto parser = format->parser({});
  wader::Message sum{};
  std::string spelled;
  std::vector<std::string> bodies;
  bool in_body = false;
  for (const TokenId id : ids_from(data, size)) {
    if (tokenizer().is_special(id)) {
      in_body = id == *tokenizer().added_token("<|message|>");
      if (in_body) bodies.emplace_back();
    } else {
      spelled += tokenizer().bytes_of(id);
      if (in_body) bodies.back() += tokenizer().bytes_of(id);
    }
    add(parser->push(id), sum);
  }
  add(parser->finish(), sum);

  const wader::Message& message = parser->message();
  check_sum(sum, message);
  check_delivered(bodies, message);
  check_markers(message.content, spelled);
  check_markers(message.reasoning, spelled);
  for (const wader::ToolCall& call : message.tool_calls) {
    check_markers(call.name, spelled);
    check_markers(call.arguments, spelled);
  }
  return 0;
}
