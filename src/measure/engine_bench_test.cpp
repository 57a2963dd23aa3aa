#include "measure/engine_bench.h"

#include <gtest/gtest.h>

namespace wader {
namespace {

EngineRound round_of(double mixer, double expert_compute, double wait, uint64_t bytes) {
  EngineRound round;
  round.engine.pass_seconds.mixer = mixer;
  round.engine.pass_seconds.experts = expert_compute + wait;
  round.engine.experts.wait_seconds = wait;
  round.engine.experts.bytes_read = bytes;
  round.seconds = mixer + expert_compute + wait;
  return round;
}

TEST(StreamingFloor, IsReadingAndWhatCannotOverlapIt) {
  EngineRound round = round_of(1, 2, 4, 5'000'000'000);
  EXPECT_FALSE(streaming_floor_seconds(round, EngineWork::decode, 4).has_value());
  round.read_rate_limit = 1e9;
  EXPECT_DOUBLE_EQ(*streaming_floor_seconds(round, EngineWork::decode, 4), 5 + 1 + 0.5);
  EXPECT_DOUBLE_EQ(*streaming_floor_seconds(round, EngineWork::prefill, 4), 5);
  round.read_rate_limit = 5e9;  // then computing is what a prompt takes
  EXPECT_DOUBLE_EQ(*streaming_floor_seconds(round, EngineWork::prefill, 4), 3);
}

TEST(ContextNeeded, HoldsARound) {
  EngineBenchOptions options;
  options.work = EngineWork::decode;
  options.count = 8;
  options.prompt_tokens = 3;
  EXPECT_EQ(context_needed(options), 11u);
  options.work = EngineWork::prefill;
  EXPECT_EQ(context_needed(options), 8u);
}

}  // namespace
}  // namespace wader
