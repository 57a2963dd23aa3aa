// The date that a conversation's prompts carry. Requests come whole and name no conversation, so
// one is known by how it begins: the messages up to the first of the user. Its date is that of its
// first request, for a day; so the cached prefix of a long chat survives midnight. From any
// thread.
#pragma once

#include <chrono>
#include <cstdint>
#include <list>
#include <mutex>
#include <string>
#include <unordered_map>

#include "chat/chat.h"

namespace wader {

class ConversationDates {
 public:
  // Keeps this many conversations, the least recently used one goes first.
  explicit ConversationDates(size_t capacity = 1024) : capacity_(capacity) {}

  std::string date_of(const ChatRequest& request, const std::string& today);

 private:
  struct Entry {
    uint64_t beginning;  // digest
    std::string date;
    std::chrono::steady_clock::time_point made;
  };
  size_t capacity_;
  std::mutex mutex_;
  std::list<Entry> entries_;  // the last used first
  std::unordered_map<uint64_t, std::list<Entry>::iterator> found_;
};

}  // namespace wader
