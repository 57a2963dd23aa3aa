// The interactive chat: reads lines, knows the slash commands, streams answers until the user
// leaves.
#pragma once

#include <string>

#include "base/result.h"
#include "cli/conversation.h"
#include "engine/engine.h"

namespace wader {

struct ChatLoop {
  const Engine& engine;
  Conversation& conversation;
  std::string model;  // as the user named it
  bool show_reasoning;
  bool stats;  // a line of figures after every answer
};

// Needs a terminal on standard input and output, and watch_interrupts().
Result<int> chat_loop(const ChatLoop& chat);

}  // namespace wader
