#include "cli/conversation.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include "engine/engine_testing.h"

namespace wader {
namespace {

// Every message becomes one id, 1000 + role; an answer's ids are its letters.
class LetterFormat final : public ChatFormat {
 public:
  std::string_view name() const override { return "letters"; }
  Result<std::vector<TokenId>> render(const ChatRequest& request) const override {
    std::vector<TokenId> ids;
    for (const Message& message : request.messages)
      ids.push_back(1000 + static_cast<TokenId>(message.role));
    if (request.add_generation_prompt) ids.insert(ids.end(), header.begin(), header.end());
    return ids;
  }
  std::vector<TokenId> header;
  std::unique_ptr<ChatParser> parser(const ChatRequest&) const override {
    class Parser final : public ChatParser {
     public:
      ChatDelta push(TokenId id) override {
        ChatDelta delta;
        if (id < 128) delta.content = std::string(1, static_cast<char>(id));
        message_.content += delta.content;
        return delta;
      }
      ChatDelta finish() override { return {}; }
      const Message& message() const override { return message_; }

     private:
      Message message_ = {Message::Role::assistant, "", "", {}, "", ""};
    };
    return std::make_unique<Parser>();
  }
  std::vector<TokenId> stop_ids() const override { return {2000}; }
};

class ScriptedSession final : public IdleSession {
 public:
  std::string answer = "hi";
  FinishReason reason = FinishReason::stop;
  std::optional<Error> error;
  std::vector<TokenId> last_prompt;
  uint64_t last_seed = 0;
  int resets = 0;

  const std::vector<TokenId>& tokens() const override { return last_prompt; }
  Result<Generation> generate(std::span<const TokenId> prompt,
                              const GenerateOptions& options) override {
    last_prompt.assign(prompt.begin(), prompt.end());
    last_seed = options.sampling.seed;
    last_turn_start = options.turn_start;
    if (error) return *error;
    Generation out;
    out.reason = reason;
    for (const char c : answer) {
      out.ids.push_back(c);
      if (options.on_token(c) && !options.cancel->load()) continue;
      out.reason = FinishReason::cancelled;
      return out;
    }
    if (reason == FinishReason::stop) out.ids.push_back(2000);
    return out;
  }
  void reset() override { ++resets; }
  Status save(const std::filesystem::path&, std::string_view note) override {
    saved = note;
    return {};
  }
  Result<std::string> load(const std::filesystem::path&, uint64_t) override { return saved; }
  std::string saved;
  uint32_t last_turn_start = 0;
};

class ConversationTest : public testing::Test {
 protected:
  ConversationTest() {
    ConversationOptions options;
    options.start.messages.push_back({Message::Role::system, "be brief", "", {}, "", ""});
    options.start.date = "2024-01-01";
    options.sampling.seed = 40;
    conversation_.emplace(
        session_, format_, [] { return EngineStats(); }, options);
  }
  Result<ConversationAnswer> ask(const std::string& text,
                                 const Conversation::Listener& listener = {}) {
    return conversation_->ask(text, listener, cancel_);
  }

  ScriptedSession session_;
  LetterFormat format_;
  std::atomic<bool> cancel_{false};
  std::optional<Conversation> conversation_;
};

TEST_F(ConversationTest, AnswersAreKeptAndSeedsAdvance) {
  std::string streamed;
  Conversation::Listener listener;
  listener.on_delta = [&](const ChatDelta& delta) {
    streamed += delta.content;
    return true;
  };
  const auto first = ask("one", listener);
  ASSERT_TRUE(first.ok());
  EXPECT_EQ(first->message.content, "hi");
  EXPECT_EQ(streamed, "hi");
  EXPECT_EQ(first->figures.seed, 40u);
  EXPECT_EQ(first->figures.new_tokens, 3u);  // the stop id is counted
  ASSERT_TRUE(ask("two").ok());
  EXPECT_EQ(session_.last_seed, 41u);
  EXPECT_EQ(session_.last_prompt.size(), 4u);  // system, user, assistant, user
  EXPECT_EQ(conversation_->messages().size(), 5u);
  EXPECT_EQ(conversation_->answers(), 2u);
}

TEST_F(ConversationTest, AnErrorLeavesTheConversation) {
  ASSERT_TRUE(ask("one").ok());
  session_.error = io_error("disk gone");
  EXPECT_FALSE(ask("two").ok());
  EXPECT_EQ(conversation_->messages().size(), 3u);
  session_.error.reset();
  EXPECT_TRUE(ask("two again").ok());
  EXPECT_EQ(conversation_->messages().size(), 5u);
}

TEST_F(ConversationTest, CancelKeepsWhatCameOrTakesTheQuestionBack) {
  Conversation::Listener listener;
  listener.on_delta = [](const ChatDelta&) { return false; };
  const auto partial = ask("one", listener);
  ASSERT_TRUE(partial.ok());
  EXPECT_EQ(partial->reason, FinishReason::cancelled);
  EXPECT_TRUE(partial->kept);
  EXPECT_EQ(conversation_->messages().back().content, "h");
  session_.answer = "";
  session_.reason = FinishReason::cancelled;
  const auto nothing = ask("two");
  ASSERT_TRUE(nothing.ok());
  EXPECT_FALSE(nothing->kept);
  EXPECT_EQ(conversation_->messages().size(), 3u);
}

TEST_F(ConversationTest, ResetKeepsTheSystemMessage) {
  ASSERT_TRUE(ask("one").ok());
  conversation_->reset();
  EXPECT_EQ(session_.resets, 1);
  ASSERT_EQ(conversation_->messages().size(), 1u);
  ASSERT_TRUE(ask("one").ok());
  EXPECT_EQ(session_.last_seed, 40u);  // the same conversation again
}

TEST_F(ConversationTest, ASavedConversationGoesOn) {
  ASSERT_TRUE(ask("one").ok());
  ASSERT_TRUE(conversation_->save("file").ok());
  ConversationOptions options;
  options.sampling.seed = 40;
  Conversation other(
      session_, format_, [] { return EngineStats(); }, options);
  ASSERT_TRUE(other.load("file").ok());
  EXPECT_EQ(other.answers(), 1u);
  ASSERT_EQ(other.messages().size(), 3u);
  EXPECT_EQ(other.messages()[2].content, "hi");
  ASSERT_TRUE(other.ask("two", {}, cancel_).ok());
  EXPECT_EQ(session_.last_seed, 41u);
  EXPECT_EQ(session_.last_prompt.size(), 4u);

  for (const char* damaged : {"", "{", "{}", "{\"messages\": 3}"}) {
    session_.saved = damaged;
    Conversation fresh(
        session_, format_, [] { return EngineStats(); }, options);
    EXPECT_FALSE(fresh.load("file").ok()) << damaged;
    EXPECT_TRUE(fresh.messages().empty());
  }
}

TEST_F(ConversationTest, TellsWhereTheAnswerBegins) {
  format_.header = {7, 8};
  ASSERT_TRUE(ask("one").ok());
  EXPECT_EQ(session_.last_prompt.size(), 4u);
  EXPECT_EQ(session_.last_turn_start, 2u);
}

TEST_F(ConversationTest, JsonReadsBackAsARequest) {
  ASSERT_TRUE(ask("one \"quoted\"\n").ok());
  const auto request = chat_request_from_json(conversation_->to_json());
  ASSERT_TRUE(request.ok()) << request.error().message;
  EXPECT_EQ(request->messages.size(), 3u);
  EXPECT_EQ(request->messages[1].content, "one \"quoted\"\n");
  EXPECT_EQ(request->date, "2024-01-01");
}

}  // namespace
}  // namespace wader
