// Design rule 1: placement never changes output. Slots, chunk, threads, cold or warm cache, reads
// that land in any order, rewinds: the same bits.

#include <gtest/gtest.h>

#include <functional>
#include <map>
#include <optional>
#include <random>
#include <string>
#include <tuple>

#include "base/hash.h"
#include "kernels/ops.h"
#include "test_models.h"

namespace wader {
namespace {

using testing::open_engine;
using testing::open_session;
using testing::random_tokens;

class SameBits : public ::testing::TestWithParam<const char*> {
 protected:
  const std::filesystem::path& container() const { return testing::fixture_container(GetParam()); }
  const ArchitectureSpec spec = std::move(Container::open(container())).value().spec();
  const uint32_t working_set = spec.experts_per_token;
  const uint32_t all_slots = spec.layer_count() * spec.experts;
};
#if defined(__SANITIZE_THREAD__)
// Threads meet in the same places whatever the family: one of attention, one hybrid. All four take
// more than five minutes here.
constexpr const char* kFamilies[] = {"tiny-gpt-oss", "tiny-qwen3.5-moe"};
#else
constexpr auto& kFamilies = testing::kFixtures;
#endif
INSTANTIATE_TEST_SUITE_P(Families, SameBits, ::testing::ValuesIn(kFamilies),
                         [](const auto& fixture) { return testing::test_name(fixture.param); });

// Digest of the logits of some prefill positions, and the ids and logits of a greedy answer after
// them.
struct Output {
  uint64_t logits;
  std::vector<TokenId> ids;
  bool operator==(const Output&) const = default;
};

Output output_of(Session& session, const std::vector<TokenId>& prompt, uint32_t answer_tokens) {
  Output out;
  Xxh3Stream digest;
  // Positions around the sliding window's edge (128) and the last ones.
  const auto status = session.evaluate(
      prompt, 0,
      [&](uint32_t position, std::span<const float> logits) {
        if (position < 2 || (position >= 125 && position < 132) || position + 4 >= prompt.size())
          digest.update(std::as_bytes(logits));
      },
      nullptr);
  EXPECT_TRUE(status.ok()) << status.error().message;
  GenerateOptions options;
  options.sampling.temperature = 0;
  options.max_tokens = answer_tokens;
  const auto answer = session.generate(prompt, options);
  EXPECT_TRUE(answer.ok()) << answer.error().message;
  if (answer.ok()) out.ids = answer->ids;
  // The state behind the answer, through the logits of its last token.
  std::vector<TokenId> all = prompt;
  all.insert(all.end(), out.ids.begin(), out.ids.end());
  const auto last = session.evaluate(
      all, static_cast<uint32_t>(all.size()) - 1,
      [&](uint32_t, std::span<const float> logits) { digest.update(std::as_bytes(logits)); },
      nullptr);
  EXPECT_TRUE(last.ok());
  out.logits = digest.digest();
  return out;
}

EngineOptions options_with(uint32_t slots, uint32_t chunk, uint32_t threads) {
  EngineOptions options;
  options.memory_bytes = 512u << 20;
  options.kernels = "ref";
  options.context = 1024;
  options.slots = slots;
  options.chunk = chunk;
  options.threads = threads;
  return options;
}

// Longer than the fixtures' sliding window of 128 in every build.
const std::vector<TokenId>& prompt() {
  static const auto tokens = random_tokens(testing::kSanitized ? 160 : 300, 1024, 42);
  return tokens;
}

const Output& reference_output(const std::filesystem::path& container) {
  static std::map<std::string, Output> outputs;
  const auto known = outputs.find(container.string());
  if (known != outputs.end()) return known->second;
  const auto engine = open_engine(container, options_with(0, 1, 1));
  return outputs[container.string()] = output_of(*open_session(*engine), prompt(), 12);
}

TEST_P(SameBits, SlotsChunkAndThreads) {
  for (const uint32_t slots : {working_set, all_slots / 2, all_slots})
    for (const uint32_t chunk : {1u, 7u, 32u, 128u, 1024u})
      for (const uint32_t threads : {1u, 2u, 4u}) {
        if (testing::kSanitized && (threads != 4 || chunk != 32)) continue;
        // All but two on one family; on the others the corners. One row a pass from the smallest
        // pool is 12,000 reads: once is enough.
        const bool corner = slots != all_slots / 2 && threads != 1 && chunk != 128;
        if (std::string(GetParam()) != "tiny-gpt-oss" && !corner) continue;
        if (slots == working_set && chunk == 1 && threads != 4) continue;
        const auto engine = open_engine(container(), options_with(slots, chunk, threads));
        ASSERT_NE(engine, nullptr);
        EXPECT_EQ(engine->plan().slots, slots);
        const auto session = open_session(*engine);
        EXPECT_EQ(output_of(*session, prompt(), 12), reference_output(container()))
            << slots << " slots, chunk " << chunk << ", threads " << threads;
      }
}

// The same of the integer back ends, whose arithmetic is one: quantised weights in all formats, and
// one digest for whatever instruction set, slots, chunk and threads. Few tokens and many take
// different paths through each.
TEST_P(SameBits, IntegerBackEndsAreOne) {
  for (const DType experts : {DType::affine4, DType::affine8}) {
    const bool gpt_oss = std::string(GetParam()) == "tiny-gpt-oss";
    if (gpt_oss && experts == DType::affine4) continue;  // its experts are mxfp4 as they come
    if (testing::kSanitized && !gpt_oss && experts == DType::affine8) continue;  // the trunk's too
    testing::Formats formats{DType::affine8, experts};
    if (gpt_oss) formats.experts.reset();
    const auto& quantised = testing::fixture_container(GetParam(), formats);
    std::optional<Output> first;
    for (const Kernels* kernels : available_kernels()) {
      if (kernels->quantise_row == nullptr) continue;
      for (const auto& [slots, chunk, threads] :
           {std::tuple{all_slots, 1u, 2u}, {all_slots / 2, 7u, 1u}, {working_set, 128u, 4u}}) {
        if (testing::kSanitized && chunk != 128) continue;
        EngineOptions options = options_with(slots, chunk, threads);
        options.kernels = kernels->name;
        const auto engine = open_engine(quantised, options);
        ASSERT_NE(engine, nullptr);
        const Output output = output_of(*open_session(*engine), prompt(), 12);
        if (!first) first = output;
        EXPECT_EQ(output, *first) << kernels->name << ", chunk " << chunk;
      }
    }
    // Integer products they are: ref rounds otherwise.
    if (testing::kSanitized) continue;
    const auto engine = open_engine(quantised, options_with(all_slots, 128, 2));
    EXPECT_NE(output_of(*open_session(*engine), prompt(), 12).logits, first->logits);
  }
}

TEST_P(SameBits, ColdAndWarmCacheAndEveryPolicy) {
  for (const char* policy : {"blend", "lfu", "lru", "lfu-aged", "tinylfu", "layer-budget"}) {
    if (testing::kSanitized && policy != std::string("blend")) continue;
    EngineOptions options = options_with(all_slots / 2, 32, 2);
    options.cache_policy = policy;
    const auto engine = open_engine(container(), options);
    const auto session = open_session(*engine);
    for (int run = 0; run < 2; ++run) {
      session->reset();
      EXPECT_EQ(output_of(*session, prompt(), 12), reference_output(container())) << policy << run;
    }
    EXPECT_GT(engine->stats().experts.hits, 0u);
  }
}

TEST_P(SameBits, EveryWayToReadWithAndWithoutLookahead) {
  for (const char* io : {"uring", "threads"})
    for (const char* direct : {"auto", "off"})
      for (const char* lookahead : {"on", "off"}) {
        if (testing::kSanitized && (direct != std::string("auto") || lookahead[1] == 'f')) continue;
        EngineOptions options =
            options_with(lookahead[1] == 'n' ? all_slots / 4 : all_slots / 2, 32, 2);
        options.io = io;
        options.direct = direct;
        options.lookahead = lookahead;
        auto engine = Engine::open(container(), options);
        // A kernel or a sandbox may refuse io_uring; then threads are all there is to compare.
        if (!engine.ok() && io == std::string("uring")) {
          EXPECT_NE(engine.error().message.find("io_uring"), std::string::npos);
          continue;
        }
        ASSERT_TRUE(engine.ok()) << engine.error().message;
        const auto session = open_session(**engine);
        EXPECT_EQ(output_of(*session, prompt(), 12), reference_output(container()))
            << io << " " << direct << " " << lookahead;
        const ExpertCounters& experts = (*engine)->stats().experts;
        EXPECT_GT(experts.misses, 0u);
        EXPECT_EQ(experts.predicted > 0, lookahead[1] == 'n');
      }
}

TEST_P(SameBits, ReadsInAnyOrderWithFaultsThatHeal) {
  for (uint64_t seed = 1; seed <= (testing::kSanitized ? 1 : 4); ++seed) {
    EngineOptions options = options_with(seed % 2 ? working_set : all_slots / 2, 64, 2);
    options.lookahead = seed % 2 ? "on" : "auto";
    options.make_read_queue = [seed] {
      return make_fake_read_queue({.seed = seed, .short_read = 0.2, .interrupt = 0.1, .eio = 0.05},
                                  64);
    };
    const auto engine = open_engine(container(), options);
    EXPECT_EQ(output_of(*open_session(*engine), prompt(), 12), reference_output(container()))
        << seed;
  }
}

// A machine that is short of memory now and then, between any two passes. Time goes fast, so that
// the pool grows as often as it shrinks.
std::function<MemoryReading()> moody_machine(uint32_t seed, uint64_t slot_bytes) {
  return [random = std::mt19937(seed), reading = MemoryReading(), slot_bytes]() mutable {
    reading.seconds += 60;
    reading.room_bytes = random() % 16 == 0 ? 0 : 64 * kGiB;
    if (random() % 3 == 0) reading.swapped_bytes += random() % 24 * slot_bytes;
    return reading;
  };
}

TEST_P(SameBits, WhileThePoolShrinksAndGrows) {
  const uint64_t slot_bytes =
      std::move(Container::open(container())).value().manifest().experts.stride_bytes;
  for (const uint32_t slots : {all_slots / 2, all_slots})
    for (const auto& [chunk, threads] : {std::pair{7u, 2u}, {64u, 4u}}) {
      if (testing::kSanitized && chunk != 64) continue;
      EngineOptions options = options_with(slots, chunk, threads);
      options.read_memory = moody_machine(slots + chunk, slot_bytes);
      const auto engine = open_engine(container(), options);
      EXPECT_EQ(output_of(*open_session(*engine), prompt(), 12), reference_output(container()))
          << slots << " slots, chunk " << chunk;
      const EngineStats stats = engine->stats();
      EXPECT_GT(stats.pool_shrinks, 2u);
      EXPECT_GT(stats.pool_growths, 2u);
      EXPECT_LE(stats.usable_slots, slots);
      EXPECT_GE(stats.usable_slots, working_set);
    }
}

TEST_P(SameBits, BeforeAndAfterARewind) {
  for (const uint32_t chunk : {7u, 128u}) {
    if (testing::kSanitized && chunk != 128) continue;
    const auto engine = open_engine(container(), options_with(all_slots / 2, chunk, 2));
    const auto session = open_session(*engine);
    // Another continuation first: the prompt's tail and the answer are then computed on a rewound
    // state, several times and from several places.
    for (const uint32_t kept : {299u, 280u, 150u, 127u, 1u, 0u}) {
      if (testing::kSanitized && kept != 150) continue;
      std::vector<TokenId> other(prompt().begin(), prompt().begin() + kept);
      const auto tail = random_tokens(200, 1024, kept);
      other.insert(other.end(), tail.begin(), tail.end());
      ASSERT_TRUE(session
                      ->evaluate(
                          other, 0xffffffff, [](uint32_t, std::span<const float>) {}, nullptr)
                      .ok());
      EXPECT_EQ(output_of(*session, prompt(), 12), reference_output(container())) << kept;
    }
  }
}

// A rewind so far back that the sliding rings have forgotten: all is computed again, the bits are
// the same. 2,100 tokens: a minute under ThreadSanitizer, on paths that the others run too.
#if !defined(__SANITIZE_ADDRESS__) && !defined(__SANITIZE_THREAD__)
TEST_P(SameBits, ARewindBeyondTheRing) {
  EngineOptions options = options_with(all_slots, 64, 2);
  options.context = 4096;
  const auto engine = open_engine(container(), options);
  const auto session = open_session(*engine);
  std::vector<TokenId> longer = prompt();
  const auto tail = random_tokens(1500, 1024, 9);
  longer.insert(longer.end(), tail.begin(), tail.end());
  ASSERT_TRUE(session
                  ->evaluate(
                      longer, 0xffffffff, [](uint32_t, std::span<const float>) {}, nullptr)
                  .ok());
  EXPECT_EQ(output_of(*session, prompt(), 12), reference_output(container()));
}
#endif

TEST_P(SameBits, ReusedPrefixIsCountedAndExact) {
  const auto engine = open_engine(container(), options_with(all_slots, 32, 2));
  const auto session = open_session(*engine);
  GenerateOptions options;
  options.sampling.temperature = 0;
  options.max_tokens = 12;
  const auto first = session->generate(prompt(), options);
  ASSERT_TRUE(first.ok());
  EXPECT_EQ(first->reused_tokens, 0u);
  const auto again = session->generate(prompt(), options);
  ASSERT_TRUE(again.ok());
  EXPECT_EQ(again->reused_tokens, prompt().size() - 1);
  EXPECT_EQ(again->ids, first->ids);
  std::vector<TokenId> next = prompt();
  next.insert(next.end(), first->ids.begin(), first->ids.end());
  next.push_back(5);
  const auto turn = session->generate(next, options);
  ASSERT_TRUE(turn.ok());
  EXPECT_EQ(turn->reused_tokens, prompt().size() + 11);
  const auto fresh_engine = open_engine(container(), options_with(all_slots, 32, 2));
  EXPECT_EQ(open_session(*fresh_engine)->generate(next, options)->ids, turn->ids);
}

}  // namespace
}  // namespace wader
