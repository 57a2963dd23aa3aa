// Design rule 2: decode allocates nothing. A counting operator new sees every allocation of the
// process.

#include <gtest/gtest.h>

#include <atomic>
#include <cstdlib>
#include <new>

#include "base/memory_watch.h"
#include "base/units.h"
#include "test_models.h"

namespace {
std::atomic<uint64_t> allocations = 0;
}

// g++ 12 does not see that both replacements belong together.
#pragma GCC diagnostic ignored "-Wmismatched-new-delete"

void* operator new(std::size_t bytes) {
  ++allocations;
  if (void* p = std::malloc(bytes)) return p;
  throw std::bad_alloc();
}
void operator delete(void* p) noexcept {
  std::free(p);
}
void operator delete(void* p, std::size_t) noexcept {
  std::free(p);
}

namespace wader {
namespace {

// `read_memory` empty: this machine's own readings.
void expect_no_allocation(std::function<MemoryReading()> read_memory, EngineStats& stats) {
  EngineOptions options;
  options.read_memory = std::move(read_memory);
  options.memory_bytes = 512u << 20;
  options.context = 256;
  options.slots = 8;  // of which 4 are a working set: every token reads experts
  options.chunk = 16;
  options.threads = 2;
  const auto engine = testing::open_engine(testing::tiny_container(), options);
  const auto session = testing::open_session(*engine);
  GenerateOptions generate;
  generate.sampling.temperature = 0.8;
  generate.sampling.top_p = 0.9;
  generate.sampling.top_k = 50;
  generate.max_tokens = 64;
  std::vector<uint64_t> at_token;
  at_token.reserve(64);
  generate.on_token = [&](TokenId) {
    at_token.push_back(allocations.load());
    return true;
  };
  const auto result = session->generate(testing::random_tokens(40, 1024, 1), generate);
  ASSERT_TRUE(result.ok());
  ASSERT_EQ(at_token.size(), 64u);
  EXPECT_EQ(at_token.back(), at_token.front());
  stats = engine->stats();
}

TEST(NoAllocation, BetweenTwoTokens) {
  EngineStats stats;
  expect_no_allocation({}, stats);
}

TEST(NoAllocation, WhileThePoolShrinksAndGrows) {
  MemoryReading reading;
  EngineStats stats;
  expect_no_allocation(
      [&] {
        reading.seconds += 60;
        reading.room_bytes = static_cast<int>(reading.seconds) % 7 == 0 ? 0 : 64 * kGiB;
        return reading;
      },
      stats);
  EXPECT_GT(stats.pool_shrinks, 2u);
  EXPECT_GT(stats.pool_growths, 2u);
}

TEST(NoAllocation, ReadingTheMachine) {
  MemoryWatch watch;
  const uint64_t before = allocations.load();
  const MemoryState state = watch.read();
  EXPECT_EQ(allocations.load(), before);
  EXPECT_TRUE(state.room_bytes.has_value());
}

}  // namespace
}  // namespace wader
