#include "server/session_choice.h"

#include <gtest/gtest.h>

#include <vector>

namespace wader {
namespace {

SessionChoice chosen(const std::vector<SessionView>& sessions) {
  const auto choice = choose_session(sessions);
  EXPECT_TRUE(choice.has_value());
  return choice.value_or(SessionChoice{99, {}});
}

TEST(SessionChoice, AConversationGoesOnWhereItIs) {
  const SessionChoice choice = chosen({{.last_used = 1, .tokens = 500, .reusable = 20},
                                       {.last_used = 2, .tokens = 900, .reusable = 880},
                                       {.last_used = 0}});
  EXPECT_EQ(choice.session, 1u);
  EXPECT_FALSE(choice.copy_from);
}

TEST(SessionChoice, AConversationWhoseReasoningIsDroppedGoesOnWhereItIs) {
  const SessionChoice choice =
      chosen({{.last_used = 2, .tokens = 2100, .turn_start = 90, .reusable = 90},
              {.last_used = 1, .tokens = 500, .turn_start = 400}});
  EXPECT_EQ(choice.session, 0u);
  EXPECT_FALSE(choice.copy_from);
}

TEST(SessionChoice, WhatSharesASystemPromptTakesACopy) {
  const SessionChoice choice =
      chosen({{.last_used = 3, .tokens = 4000, .reusable = 300}, {.last_used = 1, .tokens = 50}});
  EXPECT_EQ(choice.session, 1u);
  EXPECT_EQ(choice.copy_from, 0u);
}

TEST(SessionChoice, TheLeastRecentlyUsedGivesWay) {
  const SessionChoice choice = chosen({{.last_used = 3}, {.last_used = 1}, {.last_used = 2}});
  EXPECT_EQ(choice.session, 1u);
  EXPECT_FALSE(choice.copy_from);
}

TEST(SessionChoice, ABusyOneIsCopiedFromAndNeverTaken) {
  const SessionChoice choice =
      chosen({{.busy = true, .last_used = 9, .tokens = 100, .reusable = 90},
              {.last_used = 4, .tokens = 80, .reusable = 10}});
  EXPECT_EQ(choice.session, 1u);
  EXPECT_EQ(choice.copy_from, 0u);
  EXPECT_FALSE(choose_session(std::vector<SessionView>{{.busy = true, .reusable = 5}}));
}

TEST(SessionChoice, OfTwoAlikeTheIdleOneGoesOn) {
  const SessionChoice choice =
      chosen({{.busy = true, .last_used = 9, .tokens = 100, .reusable = 90},
              {.last_used = 4, .tokens = 100, .reusable = 90},
              {.last_used = 1}});
  EXPECT_EQ(choice.session, 1u);
  EXPECT_FALSE(choice.copy_from);
}

TEST(SessionChoice, TheOnlyOneIsTakenWhateverItLoses) {
  const SessionChoice choice = chosen({{.last_used = 3, .tokens = 4000, .reusable = 3}});
  EXPECT_EQ(choice.session, 0u);
  EXPECT_FALSE(choice.copy_from);
}

TEST(SessionChoice, NothingIsCopiedThatIsThereAlready) {
  const SessionChoice choice = chosen({{.last_used = 3, .tokens = 4000, .reusable = 300},
                                       {.last_used = 1, .tokens = 2000, .reusable = 300}});
  EXPECT_EQ(choice.session, 1u);
  EXPECT_FALSE(choice.copy_from);
}

}  // namespace
}  // namespace wader
