#include "server/conversation_dates.h"

#include <gtest/gtest.h>

namespace wader {
namespace {

ChatRequest request_of(std::initializer_list<std::pair<Message::Role, const char*>> messages) {
  ChatRequest request;
  for (const auto& [role, content] : messages) {
    Message message = {};
    message.role = role;
    message.content = content;
    request.messages.push_back(message);
  }
  return request;
}

constexpr auto kSystem = Message::Role::system, kUser = Message::Role::user,
               kAssistant = Message::Role::assistant;

TEST(ConversationDates, AConversationKeepsItsDateAndANewOneGetsToday) {
  ConversationDates dates;
  const ChatRequest first = request_of({{kSystem, "s"}, {kUser, "hello"}});
  EXPECT_EQ(dates.date_of(first, "2026-01-01"), "2026-01-01");
  const ChatRequest second =
      request_of({{kSystem, "s"}, {kUser, "hello"}, {kAssistant, "hi"}, {kUser, "more"}});
  EXPECT_EQ(dates.date_of(second, "2026-01-02"), "2026-01-01");
  EXPECT_EQ(dates.date_of(request_of({{kSystem, "s"}, {kUser, "other"}}), "2026-01-02"),
            "2026-01-02");
  EXPECT_EQ(dates.date_of(request_of({{kSystem, "sh"}, {kUser, "ello"}}), "2026-01-03"),
            "2026-01-03");
}

TEST(ConversationDates, TheLeastRecentlyUsedIsForgotten) {
  ConversationDates dates(2);
  const ChatRequest a = request_of({{kUser, "a"}}), b = request_of({{kUser, "b"}}),
                    c = request_of({{kUser, "c"}});
  dates.date_of(a, "1");
  dates.date_of(b, "1");
  dates.date_of(a, "2");
  dates.date_of(c, "2");
  EXPECT_EQ(dates.date_of(a, "3"), "1");
  EXPECT_EQ(dates.date_of(b, "3"), "3");
}

}  // namespace
}  // namespace wader
