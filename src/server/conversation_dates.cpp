#include "server/conversation_dates.h"

#include <span>

#include "base/hash.h"

namespace wader {
namespace {

// Chats that begin alike (a fixed system prompt and "hi") must not keep one date for ever.
constexpr std::chrono::hours kKept{24};

uint64_t beginning_of(const ChatRequest& request) {
  std::string text;
  const auto add = [&](std::string_view part) {
    text += std::to_string(part.size());
    text += ':';
    text += part;
  };
  for (const Message& message : request.messages) {
    add(std::to_string(static_cast<int>(message.role)));
    add(message.content);
    if (message.role == Message::Role::user) break;
  }
  add(json_text(request.tools));
  return xxh3_64(std::as_bytes(std::span(text)));
}

}  // namespace

std::string ConversationDates::date_of(const ChatRequest& request, const std::string& today) {
  const uint64_t beginning = beginning_of(request);
  const auto now = std::chrono::steady_clock::now();
  const std::lock_guard lock(mutex_);
  if (const auto found = found_.find(beginning); found != found_.end()) {
    entries_.splice(entries_.begin(), entries_, found->second);
    Entry& entry = entries_.front();
    if (now - entry.made > kKept) entry.date = today, entry.made = now;
    return entry.date;
  }
  if (entries_.size() == capacity_) {
    found_.erase(entries_.back().beginning);
    entries_.pop_back();
  }
  entries_.push_front({beginning, today, now});
  found_[beginning] = entries_.begin();
  return entries_.front().date;
}

}  // namespace wader
