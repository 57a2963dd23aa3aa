// The parser of Qwen's chat formats on any stream of token ids: nothing crashes, everything that
// comes out is whole UTF-8, no control token's text comes out unless ordinary tokens spelled it
// (or, in arguments, a tag stands in a value), deltas add up to message(), which does not depend on
// how text is cut into tokens, and where no call can be read no text is lost. What was parsed
// renders again.
#include <algorithm>
#include <array>
#include <cstddef>
#include <cstdint>
#include <memory>
#include <string>
#include <string_view>
#include <vector>

#include "base/check.h"
#include "chat/chat.h"
#include "chat/qwen.h"
#include "chat_fuzz.h"
#include "tokenizer/test_files.h"
#include "tokenizer/tokenizer.h"
#include "tokenizer/utf8.h"

namespace {

using wader::Json;
using wader::TokenId;
using wader::fuzz::add;
using wader::fuzz::check_sum;

constexpr std::array<std::string_view, 4> kControls = {"<|im_start|>", "<|im_end|>",
                                                       "<|endoftext|>", "<|vision_start|>"};
// What answers are made of, so that the fuzzer need not find it out byte by byte.
constexpr std::array<std::string_view, 32> kWords = {"<think>",
                                                     "</think>",
                                                     "<tool_call>",
                                                     "</tool_call>",
                                                     "<tool_response>",
                                                     "</tool_response>",
                                                     "<function=f>",
                                                     "<function=",
                                                     "</function>",
                                                     "<parameter=s>",
                                                     "<parameter=n>",
                                                     "<parameter=",
                                                     "</parameter>",
                                                     "\n",
                                                     "\n\n",
                                                     " ",
                                                     "{\"name\": \"f\"",
                                                     ", \"arguments\": {",
                                                     "{\"arguments\": ",
                                                     "\"name\": \"",
                                                     "}",
                                                     "{",
                                                     "\"",
                                                     "\\",
                                                     "5",
                                                     "true",
                                                     "null",
                                                     "word",
                                                     "🦩",
                                                     "user\n",
                                                     "assistant\n",
                                                     "</"};

// Tokens of several bytes, in which an object, a tag or a value ends and the next one begins: as
// their merges say, left to right ("Ċ" is a newline).
const std::vector<std::pair<std::string, std::string>>& merges() {
  static const std::vector<std::pair<std::string, std::string>> all = {
      {"}", "}"},   {"}}", "{"}, {"}}{", "{"}, {"\"", "}"}, {"\"}", "}"}, {"{", "\""}, {"<", "/"},
      {">", "Ċ"},   {">Ċ", "<"}, {"Ċ", "<"},   {"Ċ", "</"}, {">", "</"},  {">", "<"},  {"}", "</"},
      {"}}", "</"}, {"}", "Ċ"},  {"=", "s"},   {"=s", ">"}, {"\"", ","}};
  return all;
}
const auto kFirstControl = static_cast<TokenId>(256 + merges().size());

const wader::Tokenizer& tokenizer() {
  static const wader::Tokenizer made = [] {
    Json file = wader::test_file(merges());
    int64_t id = kFirstControl;
    for (const std::string_view text : kControls)
      file["added_tokens"].push_back(wader::added_token(text, id++, true));
    for (const std::string_view text : wader::kQwenTags)
      file["added_tokens"].push_back(wader::added_token(text, id++, false));
    return wader::Tokenizer::parse(file.dump()).value();
  }();
  return made;
}

struct Variant {
  std::unique_ptr<wader::ChatFormat> format;
  wader::ChatRequest request;
};

const std::vector<Variant>& variants() {
  static const std::vector<Variant> all = [] {
    std::vector<Variant> made;
    constexpr std::string_view kThinking =
        "{{- '</think>' }}{%- if add_generation_prompt %}{{- '<|im_start|>assistant\\n<think>\\n' "
        "}}";
    constexpr std::string_view kCoder =
        "{{- '<|im_start|>' }}{{- '<name>' }}{{- '<function=example_function_name>' }}";
    const std::string messages = R"("messages": [{"role": "user", "content": "q"}])";
    const std::string tools =
        R"("tools": [{"type": "function", "function": {"name": "f", "parameters": {"properties":
           {"s": {"type": "string"}, "n": {"type": ["integer", "null"]}}}}}])";
    for (const auto& [family, text] :
         std::vector<std::pair<std::string_view, std::string_view>>{{"qwen3_moe", ""},
                                                                    {"qwen3_next", ""},
                                                                    {"qwen3_next", kThinking},
                                                                    {"qwen3_5_moe", ""},
                                                                    {"qwen3_moe", kCoder}}) {
      for (const std::string& fields : {messages, messages + ", " + tools}) {
        const Json json = wader::parse_json('{' + fields + '}', "request").value();
        made.push_back({wader::make_chat_format(family, text, tokenizer()).value(),
                        wader::chat_request_from_json(json).value()});
      }
    }
    return made;
  }();
  return all;
}

// A byte is a control token or a tag, a word, a token of several bytes, or a byte of text (by the
// byte after it, any).
std::vector<TokenId> ids_from(const uint8_t* data, size_t size) {
  std::vector<TokenId> ids;
  for (size_t i = 0; i < size; ++i) {
    const uint8_t byte = data[i];
    if (byte >= 0xE0) {
      ids.push_back(kFirstControl + byte % 12);  // two of them are no ids at all
    } else if (byte >= 0x80) {
      for (const char c : kWords[byte % kWords.size()]) ids.push_back(static_cast<uint8_t>(c));
    } else if (byte >= 0x0B && byte < 0x0B + merges().size()) {
      ids.push_back(static_cast<TokenId>(256 + byte - 0x0B));
    } else if (byte == 0 && i + 1 < size) {
      ids.push_back(data[++i]);
    } else {
      ids.push_back(byte);
    }
  }
  return ids;
}

void check_markers(std::string_view out, std::string_view spelled, bool tags) {
  const auto check = [&](std::string_view marker) {
    if (out.find(marker) != std::string_view::npos)
      CHECK(spelled.find(marker) != std::string_view::npos);
  };
  for (const std::string_view control : kControls) check(control);
  for (const std::string_view tag : wader::kQwenTags)
    if (tags) check(tag);
}

// The same bytes as tokens of one byte each.
std::vector<TokenId> in_single_bytes(const std::vector<TokenId>& ids) {
  std::vector<TokenId> single;
  for (const TokenId id : ids) {
    if (id >= kFirstControl) {
      single.push_back(id);
      continue;
    }
    for (const char c : tokenizer().bytes_of(id)) single.push_back(static_cast<uint8_t>(c));
  }
  return single;
}

// All but the ids of calls, which are made up.
void check_same(const wader::Message& a, const wader::Message& b) {
  CHECK(a.content == b.content && a.reasoning == b.reasoning);
  CHECK(a.tool_calls.size() == b.tool_calls.size());
  for (size_t i = 0; i < a.tool_calls.size(); ++i)
    CHECK(a.tool_calls[i].name == b.tool_calls[i].name &&
          a.tool_calls[i].arguments == b.tool_calls[i].arguments);
}

size_t letters(std::string_view text) {
  return static_cast<size_t>(std::count_if(text.begin(), text.end(), [](char c) {
    return (c >= 'a' && c <= 'z') || (c >= '0' && c <= '9');
  }));
}

}  // namespace

extern "C" int LLVMFuzzerTestOneInput(const uint8_t* data, size_t size) {
  if (size == 0) return 0;
  const Variant& variant = variants()[data[0] % variants().size()];
  const auto parser = variant.format->parser(variant.request);
  wader::Message sum{};
  std::string spelled;
  bool turns = false;
  const std::vector<TokenId> ids = ids_from(data + 1, size - 1);
  for (const TokenId id : ids) {
    turns |= id == kFirstControl;
    if (id < kFirstControl) spelled += tokenizer().bytes_of(id);
    add(parser->push(id), sum);
  }
  add(parser->finish(), sum);
  CHECK(parser->finish().empty());

  const wader::Message& message = parser->message();
  check_sum(sum, message);
  const auto bytewise = variant.format->parser(variant.request);
  for (const TokenId id : in_single_bytes(ids)) bytewise->push(id);
  bytewise->finish();
  check_same(message, bytewise->message());
  check_markers(message.content, spelled, true);
  check_markers(message.reasoning, spelled, true);
  for (const wader::ToolCall& call : message.tool_calls) {
    check_markers(call.name, spelled, true);
    check_markers(call.arguments, spelled, false);
  }
  // Without '<', '{' and roles there is neither a call nor a spelled tag.
  if (!turns && spelled.find_first_of("<{") == spelled.npos)
    CHECK(letters(message.content) + letters(message.reasoning) == letters(spelled));

  wader::ChatRequest next = variant.request;
  next.messages.push_back(message);
  CHECK(variant.format->render(next).ok());
  return 0;
}
