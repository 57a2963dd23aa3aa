#include "experts/lookahead.h"

#include <gtest/gtest.h>

namespace wader {
namespace {

LookaheadPass pass(double hidden, double delay, double predict = 0.001, double wait = 0.5) {
  return {.pass_seconds = 1,
          .wait_seconds = wait,
          .predict_seconds = predict,
          .hidden_seconds = hidden,
          .delay_seconds = delay};
}

// Of `passes` passes, how many looked ahead, when each that does gives `result`.
int active_passes(LookaheadGate& gate, int passes, const LookaheadPass& result) {
  int active = 0;
  for (int i = 0; i < passes; ++i) {
    active += gate.active();
    gate.end_pass(gate.active() ? result : pass(0, 0, 0, result.wait_seconds));
  }
  return active;
}

TEST(LookaheadGate, OnAndOffStayAsAsked) {
  LookaheadGate on(LookaheadMode::on), off(LookaheadMode::off);
  EXPECT_EQ(active_passes(on, 1000, pass(0, 0.9)), 1000);
  EXPECT_EQ(active_passes(off, 1000, pass(0.9, 0)), 0);
  EXPECT_EQ(on.description(), "on");
  EXPECT_EQ(off.description(), "off");
}

TEST(LookaheadGate, StaysOnWhileItPays) {
  LookaheadGate gate(LookaheadMode::automatic);
  EXPECT_EQ(active_passes(gate, 5000, pass(0.1, 0.02)), 5000);
  EXPECT_EQ(gate.description(), "auto: on");
}

TEST(LookaheadGate, TriesEverMoreSeldomWhereItDoesNotPay) {
  LookaheadGate gate(LookaheadMode::automatic);
  const int active = active_passes(gate, 20'000, pass(0.01, 0.06));
  EXPECT_LT(active, 100);
  EXPECT_GE(active, 32 + 2 * 8);
  EXPECT_FALSE(gate.active());
  EXPECT_NE(gate.description().find("did not pay"), std::string::npos);
  // When it comes to pay it is found out, and stays.
  active_passes(gate, 6000, pass(0.2, 0.01));
  EXPECT_TRUE(gate.active());
}

TEST(LookaheadGate, WhereNothingWaitsThereIsNoTrial) {
  LookaheadGate gate(LookaheadMode::automatic);
  EXPECT_EQ(active_passes(gate, 20'000, pass(0, 0, 0.001, 0)), 32);
}

}  // namespace
}  // namespace wader
