#include "cli/chat_view.h"

#include <fmt/format.h>

#include "cli/console.h"
#include "cli/text.h"

namespace wader {

Conversation::Listener ChatView::listener() {
  part_ = Part::nothing;
  line_open_ = false;
  Conversation::Listener listener;
  listener.on_prefill = [](uint32_t done, uint32_t total) {
    if (total > 1) show_status(fmt::format("reading the prompt: {} of {} tokens", done, total));
  };
  listener.on_delta = [this](const ChatDelta& delta) { return show(delta); };
  return listener;
}

bool ChatView::show(const ChatDelta& delta) {
  if (!delta.reasoning.empty() && show_reasoning_) write(Part::reasoning, delta.reasoning);
  if (!delta.reasoning.empty() && !show_reasoning_ && part_ == Part::nothing) {
    show_status("thinking");
    part_ = Part::reasoning;
  }
  if (!delta.content.empty()) write(Part::content, delta.content);
  for (const ChatDelta::ToolCallDelta& call : delta.tool_calls) {
    if (!call.name.empty()) {
      part_ = Part::nothing;
      write(Part::call, fmt::format("[calls {}] ", call.name));
    }
    write(Part::call, call.arguments);
  }
  flush_output();
  return output_status().ok();
}

void ChatView::write(Part part, std::string_view text) {
  if (text.empty()) return;
  if (part_ != part && line_open_) print("\n");
  if (part_ == Part::reasoning && part == Part::content && show_reasoning_) print("\n");
  part_ = part;
  const std::string safe = terminal_safe(text);
  print(part == Part::content ? safe : dim(safe));
  line_open_ = !text.ends_with('\n');
}

void ChatView::finish(const ConversationAnswer& answer, uint32_t context, uint32_t max_tokens) {
  show_status("");
  if (line_open_) print("\n");
  line_open_ = false;
  flush_output();
  switch (answer.reason) {
    case FinishReason::stop:
      return;
    case FinishReason::length:
      return print_note(fmt::format("stopped after {} tokens (--max-tokens)", max_tokens));
    case FinishReason::context_full:
      return print_note(
          fmt::format("the context of {} tokens is full: start over with /reset, or start with a "
                      "larger --context",
                      context));
    case FinishReason::cancelled:
      return print_note(answer.kept ? "stopped" : "stopped; the question was taken back");
  }
}

}  // namespace wader
