// Chat templates of releases, as a text of their own and inside of tokenizer_config.json: any text
// is read or refused, and what is read renders a prompt in which no word of the template became a
// control token or a tag.
#include <algorithm>
#include <array>
#include <cstddef>
#include <cstdint>
#include <string_view>
#include <vector>

#include "base/check.h"
#include "chat/chat.h"
#include "chat/jinja_literals.h"
#include "chat/qwen.h"
#include "tokenizer/test_files.h"
#include "tokenizer/tokenizer.h"

namespace wader {
namespace {

constexpr TokenId kStart = 256, kEnd = 257;

const Tokenizer& tokenizer() {
  static const Tokenizer made = [] {
    Json file = test_file();
    int64_t id = kStart;
    for (const std::string_view text : {"<|im_start|>", "<|im_end|>", "<|endoftext|>"})
      file["added_tokens"].push_back(added_token(text, id++, true));
    for (const std::string_view text : kQwenTags)
      file["added_tokens"].push_back(added_token(text, id++, false));
    return Tokenizer::parse(file.dump()).value();
  }();
  return made;
}

const ChatRequest& request() {
  static const ChatRequest made = [] {
    const Json json = parse_json(R"({"messages": [{"role": "user", "content": "q"}], "tools": [
        {"type": "function", "function": {"name": "f", "parameters": {"properties":
          {"s": {"type": "string"}}}}}]})",
                                 "request")
                          .value();
    return chat_request_from_json(json).value();
  }();
  return made;
}

void check_literals(std::string_view source) {
  size_t from = 0;
  for (const JinjaLiteral& literal : jinja_literals(source)) {
    CHECK(literal.offset >= from && literal.offset < source.size());
    CHECK(source[literal.offset] == '\'' || source[literal.offset] == '"');
    CHECK(literal.text.size() < source.size() - literal.offset);
    from = literal.offset + 1 + literal.text.size();
  }
}

void check_template(std::string_view family, std::string_view text) {
  const auto format = read_qwen_template(family, text);
  if (!format.ok()) return;
  CHECK(format->tools_head.ends_with("<tools>"));
  CHECK(format->tools_tail.starts_with("\n</tools>"));
  const auto ids =
      render_qwen(request(), tokenizer(), find_qwen_tokens(tokenizer()).value(), *format);
  if (!ids.ok()) return;
  // The system's turn with the tools, the user's and the answer's beginning.
  CHECK(std::count(ids->begin(), ids->end(), kStart) == 3);
  CHECK(std::count(ids->begin(), ids->end(), kEnd) == 2);
}

}  // namespace
}  // namespace wader

extern "C" int LLVMFuzzerTestOneInput(const uint8_t* data, size_t size) {
  using namespace wader;
  const std::string_view text(reinterpret_cast<const char*>(data), size);
  check_literals(text);
  for (const std::string_view family : {"qwen3_moe", "qwen3_next", "qwen3_5_moe"})
    check_template(family, text);
  if (const auto inner = chat_template_of_config(text); inner.ok())
    check_template("qwen3_moe", *inner);
  return 0;
}
