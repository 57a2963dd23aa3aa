// How an answer appears while it streams: content as it is, reasoning dimmed or as a sign of life,
// tool calls named. Everything a model wrote passes terminal_safe().
#pragma once

#include <string>
#include <string_view>

#include "chat/chat.h"
#include "cli/conversation.h"

namespace wader {

class ChatView {
 public:
  explicit ChatView(bool show_reasoning) : show_reasoning_(show_reasoning) {}

  // Prints the deltas of one answer; ends it when the output cannot be written.
  Conversation::Listener listener();
  // Ends the answer's last line and says why it stopped, if not by itself.
  void finish(const ConversationAnswer& answer, uint32_t context, uint32_t max_tokens);

 private:
  enum class Part : uint8_t { nothing, reasoning, content, call };
  bool show(const ChatDelta& delta);
  void write(Part part, std::string_view text);

  bool show_reasoning_;
  Part part_ = Part::nothing;
  bool line_open_ = false;  // the last thing printed was no newline
};

}  // namespace wader
