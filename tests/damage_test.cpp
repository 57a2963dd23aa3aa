// Design rule 3: no wrong answer in silence. Damage of the container and of the disk below it
// becomes an error that names the thing, or heals; never a wrong token.

#include <gtest/gtest.h>

#include <atomic>
#include <fstream>

#include "container/container_testing.h"
#include "test_models.h"

namespace wader {
namespace {

using testing::copy_of;
using testing::flip_bit;
using testing::open_engine;
using testing::open_session;
using testing::random_tokens;
using testing::tiny_container;

EngineOptions small_options(uint32_t slots) {
  EngineOptions options;
  options.memory_bytes = 512u << 20;
  options.kernels = "ref";
  options.context = 256;
  options.slots = slots;
  options.chunk = 32;
  options.threads = 2;
  return options;
}

Result<Generation> answer(Session& session, uint32_t tokens = 8) {
  GenerateOptions options;
  options.sampling.temperature = 0;
  options.max_tokens = tokens;
  return session.generate(random_tokens(100, 1024, 1),
                          options);  // 100 tokens touch all 16 experts of each layer
}

std::vector<TokenId> right_answer() {
  const auto engine = open_engine(tiny_container(), small_options(64));
  return answer(*open_session(*engine))->ids;
}

TEST(Damage, AFlippedBitInAnyExpertRecordIsNamed) {
  const auto container = copy_of(tiny_container(), "flipped");
  const uint64_t stride = Container::open(container)->manifest().experts.stride_bytes;
  for (uint32_t layer = 0; layer < 4; layer += testing::kSanitized ? 3 : 1)
    for (uint32_t expert = 0; expert < 16; expert += testing::kSanitized ? 15 : 3) {
      const auto file = container / expert_file_name(layer);
      const uint64_t byte = expert * stride + (expert * 7919 + layer * 104729) % stride;
      flip_bit(file, byte);
      const auto engine = open_engine(container, small_options(8));
      const auto session = open_session(*engine);
      const auto result = answer(*session);
      ASSERT_FALSE(result.ok());
      EXPECT_EQ(result.error().code, ErrorCode::corrupt);
      EXPECT_NE(result.error().message.find("layer " + std::to_string(layer) + " expert " +
                                            std::to_string(expert)),
                std::string::npos)
          << result.error().message;
      EXPECT_NE(result.error().message.find(file.string()), std::string::npos);
      // The file is mended: the same session goes on and is right, nothing of the failed pass is
      // left.
      flip_bit(file, byte);
      const auto healed = answer(*session);
      ASSERT_TRUE(healed.ok()) << healed.error().message;
      EXPECT_EQ(healed->ids, right_answer());
    }
}

TEST(Damage, AFlippedBitInTheTrunkIsNamed) {
  const auto container = copy_of(tiny_container(), "trunk");
  const auto tensors = Container::open(container)->manifest().trunk;
  for (const size_t i : {size_t{0}, tensors.size() / 2, tensors.size() - 1}) {
    const uint64_t byte = tensors[i].offset_bytes + tensors[i].bytes / 2;
    flip_bit(container / "trunk.bin", byte);
    const auto engine = Engine::open(container, small_options(8));
    ASSERT_FALSE(engine.ok());
    EXPECT_EQ(engine.error().code, ErrorCode::corrupt);
    EXPECT_NE(engine.error().message.find(tensors[i].name), std::string::npos)
        << engine.error().message;
    flip_bit(container / "trunk.bin", byte);
  }
  EXPECT_TRUE(Engine::open(container, small_options(8)).ok());
}

TEST(Damage, ARecordCutShortIsRefusedAtOpenOrNamedWhenItHappensLater) {
  const auto container = copy_of(tiny_container(), "short");
  const auto file = container / expert_file_name(2);
  const uint64_t bytes = std::filesystem::file_size(file);
  const auto engine = open_engine(container, small_options(8));
  const auto session = open_session(*engine);
  std::filesystem::resize_file(file, bytes - 100);
  const auto result = answer(*session);
  ASSERT_FALSE(result.ok());
  EXPECT_EQ(result.error().code, ErrorCode::corrupt);
  EXPECT_NE(result.error().message.find("layer 2 expert 15"), std::string::npos)
      << result.error().message;
  const auto reopened = Engine::open(container, small_options(8));
  ASSERT_FALSE(reopened.ok());
  EXPECT_NE(reopened.error().message.find("layer-002.bin"), std::string::npos)
      << reopened.error().message;
}

TEST(Damage, EioOnceHealsEioAlwaysIsReportedAndTheSessionSurvives) {
  EngineOptions once = small_options(8);
  once.make_read_queue = [] { return make_fake_read_queue({.seed = 5, .eio = 0.3}, 64); };
  const auto healed_engine = open_engine(tiny_container(), once);
  const auto healed = answer(*open_session(*healed_engine));
  ASSERT_TRUE(healed.ok()) << healed.error().message;
  EXPECT_EQ(healed->ids, right_answer());

  EngineOptions always = small_options(8);
  always.make_read_queue = [] {
    return make_fake_read_queue({.seed = 5, .eio_always = true, .eio_offset = 5 * 40960}, 64);
  };
  const auto engine = open_engine(tiny_container(), always);
  const auto session = open_session(*engine);
  for (int attempt = 0; attempt < 2; ++attempt) {
    const auto result = answer(*session);
    ASSERT_FALSE(result.ok());
    EXPECT_EQ(result.error().code, ErrorCode::io);
    EXPECT_NE(result.error().message.find("Input/output error"), std::string::npos);
    EXPECT_NE(result.error().message.find("layer-000.bin"), std::string::npos)
        << result.error().message;
    EXPECT_TRUE(session->tokens().empty());
  }
}

TEST(Damage, WhatCannotWorkIsRefusedByName) {
  const auto engine = open_engine(tiny_container(), small_options(8));
  const auto session = open_session(*engine);
  GenerateOptions options;
  options.max_tokens = 1;
  for (const TokenId bad : {-1, 1024, 2147483647}) {
    const auto result = session->generate(std::vector<TokenId>{1, bad}, options);
    ASSERT_FALSE(result.ok());
    EXPECT_NE(result.error().message.find(std::to_string(bad)), std::string::npos);
  }
  EXPECT_FALSE(session->generate({}, options).ok());
  const auto beyond = session->generate(random_tokens(257, 1024, 3), options);
  ASSERT_FALSE(beyond.ok());
  EXPECT_NE(beyond.error().message.find("256"), std::string::npos);
  options.sampling.top_p = 2;
  EXPECT_FALSE(session->generate(random_tokens(3, 1024, 3), options).ok());
  EXPECT_FALSE(engine->new_session().ok());
}

TEST(Damage, ContextFullAndCancelEndTheAnswerInOrder) {
  const auto engine = open_engine(tiny_container(), small_options(64));
  const auto session = open_session(*engine);
  GenerateOptions options;
  options.sampling.temperature = 0;
  auto full = session->generate(random_tokens(250, 1024, 3), options);
  ASSERT_TRUE(full.ok());
  EXPECT_EQ(full->reason, FinishReason::context_full);
  EXPECT_EQ(full->ids.size(), 7u);  // six more positions, and the token that the last of them gives

  std::atomic<bool> cancel = false;
  options.cancel = &cancel;
  options.on_prefill = [&](uint32_t, uint32_t) { cancel = true; };
  const auto cancelled = session->generate(random_tokens(200, 1024, 4), options);
  ASSERT_TRUE(cancelled.ok());
  EXPECT_EQ(cancelled->reason, FinishReason::cancelled);
  EXPECT_EQ(session->tokens().size(), 32u);  // one chunk, kept

  cancel = false;
  options.on_prefill = {};
  uint32_t seen = 0;
  options.on_token = [&](TokenId) { return ++seen < 3; };
  const auto stopped = session->generate(random_tokens(200, 1024, 4), options);
  ASSERT_TRUE(stopped.ok());
  EXPECT_EQ(stopped->reason, FinishReason::cancelled);
  EXPECT_EQ(stopped->ids.size(), 3u);
  EXPECT_EQ(stopped->reused_tokens, 32u);
}

}  // namespace
}  // namespace wader
