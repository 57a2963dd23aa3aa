// Conversation: messages so far on one session, and how the next answer comes about. One thread;
// only the cancel flag may be set from elsewhere (a signal).
#pragma once

#include <atomic>
#include <filesystem>
#include <functional>
#include <string>
#include <vector>

#include "base/result.h"
#include "chat/chat.h"
#include "cli/report.h"
#include "engine/engine.h"

namespace wader {

struct ConversationOptions {
  ChatRequest start;  // system message if any, reasoning effort, date
  SamplingParams
      sampling;  // answer n is drawn with seed + n, so a whole conversation can be repeated
  uint32_t max_tokens = 0;          // an answer; 0 = no limit
  uint64_t max_text_bytes = ~0ull;  // of all messages: chat_prompt()
  std::vector<TokenId> stop_ids;
};

struct ConversationAnswer {
  Message message;  // assistant
  FinishReason reason = FinishReason::stop;
  RunFigures figures;
  bool kept = true;  // false: cancelled before any text came, the question was taken back
};

class Conversation {
 public:
  struct Listener {
    std::function<void(uint32_t done, uint32_t total)> on_prefill = {};
    std::function<bool(const ChatDelta&)> on_delta =
        {};  // false stops the answer, as the cancel flag does
  };

  // All three must outlive it. `stats` gives the engine's counters.
  Conversation(Session& session, const ChatFormat& format, std::function<EngineStats()> stats,
               ConversationOptions options);

  // Answers `question`. After an error the conversation is what it was before.
  Result<ConversationAnswer> ask(std::string question, const Listener& listener,
                                 const std::atomic<bool>& cancel);
  void reset();

  const std::vector<Message>& messages() const { return request_.messages; }
  const ConversationOptions& options() const { return options_; }
  uint32_t answers() const { return answers_; }
  // In the form that `wader render --messages` reads.
  Json to_json() const;

  // Messages and the session's state in one file (engine.h), so that the next start goes on at
  // once. load() needs a conversation without questions; after an error it is that again.
  Status save(const std::filesystem::path& file);
  Status load(const std::filesystem::path& file);

 private:
  Result<ConversationAnswer> answer(const Listener& listener, const std::atomic<bool>& cancel);

  Session& session_;
  const ChatFormat& format_;
  std::function<EngineStats()> stats_;
  ConversationOptions options_;
  ChatRequest request_;
  uint32_t answers_ = 0;
};

}  // namespace wader
