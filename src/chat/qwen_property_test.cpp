// What holds for any answer of any variant: streams of tags, halves of tags, call pieces and words.
#include <gtest/gtest.h>

#include <random>
#include <string>

#include "chat/qwen_testing.h"
#include "tokenizer/utf8.h"

namespace wader {
namespace {

struct Variant {
  std::unique_ptr<ChatFormat> format;
  ChatRequest request;
};

const std::vector<Variant>& variants() {
  static const std::vector<Variant> all = [] {
    std::vector<Variant> made;
    const auto add = [&](std::string_view family, std::string_view chat_template) {
      for (const std::string_view fields :
           {R"("enable_thinking": true)", R"("enable_thinking": true, "tools": [{"type": "function",
             "function": {"name": "f", "parameters": {"properties": {"n": {"type": "integer"},
             "s": {"type": "string"}}}}}])"}) {
        made.push_back({qwen_format(family, chat_template),
                        qwen_request(R"({"messages": [{"role": "user", "content": "q"}], )" +
                                     std::string(fields) + "}")});
      }
    };
    add("qwen3_moe", "");
    add("qwen3_next", "");
    add("qwen3_next", kThinkingTemplate);
    add("qwen3_5_moe", "");
    add("qwen3_moe", kCoderTemplate);
    return made;
  }();
  return all;
}

// A piece of an answer: a token that is a tag, or text in ordinary tokens.
struct Piece {
  std::string text;
  bool is_tag = false;
};

class Answers {
 public:
  explicit Answers(uint32_t seed) : random_(seed) {}

  std::vector<Piece> make() {
    static const std::vector<std::string> texts = {"\n",
                                                   "\n\n",
                                                   " ",
                                                   "<think>",
                                                   "</think>",
                                                   "<tool_call>",
                                                   "</tool_call>",
                                                   "</function>",
                                                   "<function=f>\n",
                                                   "<parameter=n>\n",
                                                   "<parameter=s>\n",
                                                   "</parameter>\n",
                                                   "{\"name\": \"f\", \"arguments\": {\"k\": \"",
                                                   "\"}}",
                                                   "{\"arguments\": {\"k\": ",
                                                   "</",
                                                   "<",
                                                   "{",
                                                   "}",
                                                   "\"",
                                                   "🦩",
                                                   "\xC3",
                                                   "5",
                                                   "<tool",
                                                   "\n<"};
    std::vector<Piece> pieces;
    for (int i = below(14); i >= 0; --i) {
      const int kind = below(10);
      if (kind < 4)
        pieces.push_back({std::string(kQwenTags[static_cast<size_t>(below(6))]), true});
      else if (kind < 8)
        pieces.push_back({texts[static_cast<size_t>(below(static_cast<int>(texts.size())))]});
      else
        pieces.push_back({fmt::format("word{}", ++words_)});
    }
    return pieces;
  }
  int below(int n) { return static_cast<int>(random_() % static_cast<uint32_t>(n)); }

 private:
  std::mt19937 random_;
  int words_ = 0;
};

std::vector<TokenId> ids_of(const std::vector<Piece>& pieces, bool merged) {
  std::vector<TokenId> ids;
  std::string text;
  const auto flush = [&] {
    if (merged && replace_invalid_utf8(text) == text) {
      for (const TokenId id : plain_ids(text)) ids.push_back(id);
    } else {
      for (const char c : text) ids.push_back(static_cast<uint8_t>(c));
    }
    text.clear();
  };
  for (const Piece& piece : pieces) {
    if (!piece.is_tag) {
      text += piece.text;
      continue;
    }
    flush();
    ids.push_back(*qwen_tokenizer().added_token(piece.text));
  }
  flush();
  return ids;
}

std::string described(const std::vector<Piece>& pieces) {
  std::string out;
  for (const Piece& piece : pieces) out += piece.is_tag ? '[' + piece.text + ']' : piece.text;
  return out;
}

std::string all_text(const Message& message) {
  std::string out = message.reasoning + '\n' + message.content;
  for (const ToolCall& call : message.tool_calls) out += '\n' + call.name + '\n' + call.arguments;
  return out;
}

void expect_same_but_ids(const Message& a, Message b) {
  for (size_t i = 0; i < std::min(a.tool_calls.size(), b.tool_calls.size()); ++i)
    b.tool_calls[i].id = a.tool_calls[i].id;
  expect_same(a, b);
}

TEST(QwenProperty, AnyAnswer) {
  Answers answers(20261130);
  const TokenId end = *qwen_tokenizer().added_token("<|im_end|>");
  for (int round = 0; round < 3000; ++round) {
    const std::vector<Piece> pieces = answers.make();
    const Variant& variant = variants()[static_cast<size_t>(round) % variants().size()];
    std::vector<TokenId> ids = ids_of(pieces, /*merged=*/true);
    ids.push_back(end);
    // Adds up to the deltas, whole UTF-8.
    const Message message = parse_ids(*variant.format, ids, variant.request);
    const std::string out = all_text(message);
    EXPECT_EQ(valid_utf8_prefix(out), out.size());
    // The same text in other tokens is the same answer.
    std::vector<TokenId> bytes = ids_of(pieces, /*merged=*/false);
    bytes.push_back(end);
    expect_same_but_ids(parse_ids(*variant.format, bytes, variant.request), message);
    // Every word is somewhere.
    for (const Piece& piece : pieces) {
      if (piece.text.starts_with("word")) EXPECT_NE(out.find(piece.text), out.npos) << piece.text;
    }
    // A tag that came as a token is in no text, but what an argument spells.
    std::string spelled;
    for (const Piece& piece : pieces)
      if (!piece.is_tag) spelled += piece.text;
    for (const std::string_view tag : kQwenTags) {
      if (spelled.find(tag) != spelled.npos) continue;
      EXPECT_EQ((message.content + '\n' + message.reasoning).find(tag), out.npos) << tag;
    }
    if (HasFailure()) FAIL() << described(pieces) << "\nformat " << variant.format->name();
  }
}

// Without its end token, cut at any id.
TEST(QwenProperty, AnyCut) {
  Answers answers(7);
  for (int round = 0; round < 1000; ++round) {
    const std::vector<Piece> pieces = answers.make();
    const Variant& variant = variants()[static_cast<size_t>(round) % variants().size()];
    std::vector<TokenId> ids = ids_of(pieces, /*merged=*/true);
    ids.resize(static_cast<size_t>(answers.below(static_cast<int>(ids.size()) + 1)));
    const std::string out = all_text(parse_ids(*variant.format, ids, variant.request));
    EXPECT_EQ(valid_utf8_prefix(out), out.size());
    if (HasFailure()) FAIL() << described(pieces);
  }
}

}  // namespace
}  // namespace wader
