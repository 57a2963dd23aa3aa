// Routing traces, the usage file and the replay: what is written is read, damage is named, and
// Belady's count is what trying everything finds.
#include <gtest/gtest.h>
#include <unistd.h>

#include <algorithm>
#include <bit>
#include <cstring>
#include <filesystem>
#include <limits>
#include <map>
#include <random>

#include "base/hash.h"
#include "experts/routing_trace.h"
#include "experts/simulate.h"
#include "experts/usage_file.h"

namespace wader {
namespace {

namespace fs = std::filesystem;

class TraceFile : public ::testing::Test {
 protected:
  void SetUp() override {
    folder_ = fs::temp_directory_path() / ("wader_trace_" + std::to_string(::getpid()));
    fs::create_directories(folder_);
  }
  void TearDown() override { fs::remove_all(folder_); }
  fs::path folder_;
};

RoutingTrace random_trace(const TraceShape& shape, uint32_t passes, uint32_t seed) {
  RoutingTrace trace;
  trace.shape = shape;
  std::mt19937 random(seed);
  std::vector<uint16_t> all(shape.experts), ids;
  for (uint32_t e = 0; e < shape.experts; ++e) all[e] = static_cast<uint16_t>(e);
  for (uint32_t p = 0; p < passes; ++p) {
    const uint32_t rows = p % 5 == 0 ? 1 + random() % 7 : 1;
    ids.clear();
    for (uint32_t r = 0; r < rows * shape.layers; ++r) {
      std::shuffle(all.begin(), all.end(), random);
      ids.insert(ids.end(), all.begin(), all.begin() + shape.experts_per_token);
    }
    trace.append(rows, p % 10 == 0, ids);
  }
  return trace;
}

std::string write(const fs::path& path, const RoutingTrace& trace) {
  auto writer = RoutingTraceWriter::create(path, trace.shape).value();
  for (size_t p = 0; p < trace.passes.size(); ++p) {
    const TracePass& pass = trace.passes[p];
    const size_t count = size_t{pass.rows} * trace.shape.layers * trace.shape.experts_per_token;
    EXPECT_TRUE(writer
                    .append(pass.rows, pass.begins_prompt,
                            std::span(trace.ids).subspan(pass.first_id, count))
                    .ok());
  }
  EXPECT_TRUE(writer.finish().ok());
  return read_text_file(path, kMaxTraceBytes).value();
}

Result<RoutingTrace> parse(std::string_view bytes) {
  return parse_routing_trace(std::as_bytes(std::span(bytes)), "t");
}

TEST_F(TraceFile, IsReadAsItWasWritten) {
  for (const uint32_t experts : {8u, 256u, 512u}) {
    const RoutingTrace trace = random_trace({3, experts, 4, 4096, 77}, 40, experts);
    write(folder_ / "a.trace", trace);
    const auto read = read_routing_trace(folder_ / "a.trace");
    ASSERT_TRUE(read.ok()) << read.error().message;
    EXPECT_EQ(read->shape, trace.shape);
    EXPECT_EQ(read->ids, trace.ids);
    EXPECT_EQ(read->tokens(), trace.tokens());
    ASSERT_EQ(read->passes.size(), trace.passes.size());
    for (size_t p = 0; p < trace.passes.size(); ++p)
      EXPECT_EQ(read->passes[p].begins_prompt, trace.passes[p].begins_prompt);
    EXPECT_FALSE(read->cut);
  }
}

TEST_F(TraceFile, EveryBeginningOfItIsReadable) {
  const RoutingTrace trace = random_trace({2, 16, 2, 4096, 1}, 12, 1);
  const std::string bytes = write(folder_ / "a.trace", trace);
  size_t passes = 0;
  for (size_t n = 48; n <= bytes.size(); ++n) {
    const auto read = parse(bytes.substr(0, n));
    ASSERT_TRUE(read.ok()) << n << ": " << read.error().message;
    EXPECT_GE(read->passes.size(), passes);
    passes = read->passes.size();
    const size_t ids = read->tokens() * 2 * 2;
    ASSERT_EQ(read->ids.size(), ids);
    EXPECT_TRUE(std::equal(read->ids.begin(), read->ids.end(), trace.ids.begin()));
  }
  EXPECT_EQ(passes, trace.passes.size());
}

TEST_F(TraceFile, DamageIsNamed) {
  const RoutingTrace trace = random_trace({2, 16, 2, 4096, 1}, 6, 2);
  const std::string bytes = write(folder_ / "a.trace", trace);
  for (size_t at = 0; at < bytes.size(); ++at) {
    std::string bad = bytes;
    bad[at] = static_cast<char>(bad[at] ^ 0x41);
    const auto read = parse(bad);
    // A length that says more than there is makes the rest a cut pass; all else is an error.
    if (read.ok()) {
      EXPECT_TRUE(read->cut) << at;
      EXPECT_LT(read->passes.size(), trace.passes.size());
    } else {
      EXPECT_EQ(read.error().message.rfind("t: ", 0), 0u) << read.error().message;
    }
  }
  EXPECT_FALSE(parse("").ok());
  std::string newer = bytes;
  newer[7] = '2';
  EXPECT_EQ(parse(newer).error().code, ErrorCode::unsupported);
}

// Bytes with right checksums can still be no routing.
TEST_F(TraceFile, IdsThatNoRouterGivesAreRefused) {
  const TraceShape shape{1, 4, 2, 4096, 1};
  RoutingTrace twice, beyond, none;
  twice.shape = none.shape = shape;
  twice.append(1, true, std::vector<uint16_t>{2, 2});
  EXPECT_NE(parse(write(folder_ / "a", twice)).error().message.find("twice"), std::string::npos);
  EXPECT_FALSE(check_trace_shape({0, 4, 2, 1, 1}).ok());
  EXPECT_FALSE(check_trace_shape({1, 4, 5, 1, 1}).ok());
  EXPECT_FALSE(check_trace_shape({1, 70000, 2, 1, 1}).ok());
  EXPECT_FALSE(RoutingTraceWriter::create(folder_ / "b", {1, 4, 0, 1, 1}).ok());
  // An id beyond the experts: a valid pass of a model with more, under this one's header.
  beyond.shape = {1, 8, 2, 4096, 1};
  beyond.append(1, true, std::vector<uint16_t>{7, 1});
  const std::string head = write(folder_ / "c", none);
  const std::string body = write(folder_ / "d", beyond).substr(48);
  EXPECT_NE(parse(head + body).error().message.find("expert 7 of 4"), std::string::npos);
}

// The least misses from a set of resident keys on, by trying every victim.
uint64_t least_misses(const RoutingTrace& trace, size_t step, uint32_t resident, uint32_t slots,
                      std::map<std::pair<size_t, uint32_t>, uint64_t>& known) {
  const uint32_t layers = trace.shape.layers, experts = trace.shape.experts;
  if (step == trace.passes.size() * layers) return 0;
  if (const auto found = known.find({step, resident}); found != known.end()) return found->second;
  const auto layer = static_cast<uint32_t>(step % layers);
  uint32_t wanted = 0;
  for (const uint16_t id : trace.ids_of(trace.passes[step / layers], layer))
    wanted |= 1u << (layer * experts + id);
  const auto missing = static_cast<uint32_t>(std::popcount(wanted & ~resident));
  uint64_t best = std::numeric_limits<uint64_t>::max();
  // What stays of the others: any set that leaves room for what is wanted.
  const uint32_t others = resident & ~wanted;
  const auto room = slots - static_cast<uint32_t>(std::popcount(wanted));
  for (uint32_t kept = others;; kept = (kept - 1) & others) {
    if (static_cast<uint32_t>(std::popcount(kept)) <= room)
      best = std::min(best, least_misses(trace, step + 1, kept | wanted, slots, known));
    if (kept == 0) break;
  }
  return known[{step, resident}] = best + missing;
}

SimulateOptions with_slots(uint32_t slots, uint64_t uncounted_tokens = 0) {
  SimulateOptions options;
  options.slots = slots;
  options.uncounted_tokens = uncounted_tokens;
  return options;
}

TEST(Simulate, BeladyIsTheLeastOfAllPossible) {
  for (uint32_t seed = 1; seed <= 3; ++seed)
    for (const uint32_t slots : {3u, 4u, 5u, 6u}) {
      RoutingTrace trace;
      trace.shape = {2, 5, 2, 1, 0};
      const RoutingTrace drawn = random_trace(trace.shape, 30, seed);
      for (const TracePass& pass : drawn.passes)  // one row each: at most slots are wanted
        trace.append(1, false, std::span(drawn.ids).subspan(pass.first_id, 4));
      std::map<std::pair<size_t, uint32_t>, uint64_t> known;
      const auto least = least_misses(trace, 0, 0, slots, known);
      EXPECT_EQ(simulate_belady(trace, with_slots(slots)).missed, least);
      for (const EvictionRuleName& rule : eviction_rules())
        EXPECT_GE(simulate(trace, rule.rule, with_slots(slots)).missed, least) << rule.name;
    }
}

TEST(Simulate, CountsByHand) {
  RoutingTrace trace;
  trace.shape = {1, 8, 2, 1, 0};
  trace.append(2, true, std::vector<uint16_t>{0, 1, 1, 2});  // 3 distinct, all missed
  trace.append(1, false, std::vector<uint16_t>{0, 1});
  trace.append(1, false, std::vector<uint16_t>{3, 4});
  trace.append(1, false, std::vector<uint16_t>{0, 1});
  const auto lru = simulate(trace, EvictionRule::lru, with_slots(3));
  EXPECT_EQ(lru.wanted, 9u);
  EXPECT_EQ(lru.missed, 3u + 0 + 2 + 1);  // of 0 and 1 the older one went
  EXPECT_EQ(lru.decode_wanted, 6u);
  EXPECT_EQ(lru.decode_missed, 3u);
  EXPECT_EQ(simulate(trace, EvictionRule::lru, with_slots(3, 3)).missed, 3u);
  EXPECT_EQ(simulate(trace, EvictionRule::lru, with_slots(8)).missed, 5u);
  EXPECT_EQ(simulate_belady(trace, with_slots(8)).missed, 5u);
  EXPECT_EQ(lru.after_prompt_wanted, 0u);  // the prompt is short
}

TEST(Simulate, PassesWithMoreExpertsThanSlotsRunThrough) {
  const RoutingTrace trace = random_trace({3, 16, 4, 1, 0}, 60, 5);
  for (const EvictionRuleName& rule : eviction_rules()) {
    const auto reads = simulate(trace, rule.rule, with_slots(4));
    EXPECT_GE(reads.missed, simulate_belady(trace, with_slots(48)).missed);
    EXPECT_LE(reads.missed, reads.wanted);
  }
  EXPECT_LE(simulate_belady(trace, with_slots(4)).missed,
            simulate(trace, EvictionRule::lru, with_slots(4)).missed);
}

TEST(Simulate, ALearntHistoryHelpsTheSameWorkAgain) {
  RoutingTrace trace;
  trace.shape = {1, 32, 2, 1, 0};
  std::mt19937 random(9);
  for (int t = 0; t < 300; ++t) {  // 0 to 3 are used often, the rest seldom
    const auto often = static_cast<uint16_t>(random() % 4),
               seldom = static_cast<uint16_t>(4 + random() % 28);
    trace.append(1, t == 0, std::vector<uint16_t>{often, seldom});
  }
  const auto history = learn_history(trace);
  SimulateOptions begun = with_slots(6);
  begun.history = history;
  RoutingTrace first = trace;
  first.passes.resize(60);
  EXPECT_LE(simulate(first, EvictionRule::blend, begun).missed,
            simulate(first, EvictionRule::blend, with_slots(6)).missed);
}

constexpr UsageIdentity kModel{42, 3, 8};

TEST_F(TraceFile, UsageIsReadAsItWasWritten) {
  std::vector<float> shares(24);
  for (size_t i = 0; i < shares.size(); ++i) shares[i] = static_cast<float>(i) / 24;
  ASSERT_TRUE(write_usage_file(folder_ / "usage", kModel, shares).ok());
  EXPECT_EQ(read_usage_file(folder_ / "usage", kModel).value(), shares);
  EXPECT_FALSE(read_usage_file(folder_ / "usage", {43, 3, 8}).ok());  // another model
  EXPECT_FALSE(read_usage_file(folder_ / "usage", {42, 8, 3}).ok());
  EXPECT_FALSE(read_usage_file(folder_ / "none", kModel).ok());
  const std::string bytes = read_text_file(folder_ / "usage", 1 << 20).value();
  for (size_t at = 0; at < bytes.size(); ++at) {
    std::string bad = bytes;
    bad[at] = static_cast<char>(bad[at] ^ 1);
    EXPECT_FALSE(parse_usage(bad, kModel, "u").ok()) << at;
    EXPECT_FALSE(parse_usage(bytes.substr(0, at), kModel, "u").ok()) << at;
  }
  EXPECT_FALSE(parse_usage(bytes + "x", kModel, "u").ok());
}

TEST_F(TraceFile, UsageThatIsNoShareIsRefusedWithARightChecksumToo) {
  for (const float bad : {std::numeric_limits<float>::quiet_NaN(), -0.5f, 2.0f,
                          std::numeric_limits<float>::infinity()}) {
    std::vector<float> shares(24, 0.1f);
    shares[7] = bad;
    ASSERT_TRUE(write_usage_file(folder_ / "usage", kModel, shares).ok());
    EXPECT_FALSE(read_usage_file(folder_ / "usage", kModel).ok());
  }
  EXPECT_FALSE(write_usage_file(folder_ / "no" / "usage", kModel, std::vector<float>(24)).ok());
}

}  // namespace
}  // namespace wader
