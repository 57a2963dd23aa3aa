#include "sampler/sampler.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <algorithm>
#include <array>
#include <chrono>
#include <cmath>
#include <cstdlib>
#include <limits>
#include <map>
#include <new>
#include <random>
#include <set>

// Every allocation of this program is counted, so that a test can prove there was none.
static thread_local long allocations = 0;
[[gnu::noinline]] void* operator new(size_t bytes) {
  ++allocations;
  if (void* memory = std::malloc(bytes)) return memory;
  throw std::bad_alloc();
}
[[gnu::noinline]] void operator delete(void* memory) noexcept {
  std::free(memory);
}
[[gnu::noinline]] void operator delete(void* memory, size_t) noexcept {
  std::free(memory);
}

namespace wader {
namespace {

constexpr float kInfinity = std::numeric_limits<float>::infinity();
constexpr float kNan = std::numeric_limits<float>::quiet_NaN();

// The slow oracle: the whole distribution in doubles, by full sorts. Ids that may be drawn, with
// probability.
std::map<int32_t, double> oracle(std::vector<float> logits, const SamplingParams& p) {
  std::vector<std::pair<double, int32_t>> order;  // (−logit, id): sorts best first, ties by id
  for (size_t i = 0; i < logits.size(); ++i) {
    order.emplace_back(-double{logits[i]}, static_cast<int32_t>(i));
  }
  std::sort(order.begin(), order.end());
  if (p.top_k > 0 && p.top_k < order.size()) order.resize(p.top_k);
  const auto weight = [&](size_t rank) {
    return std::exp((order[0].first - order[rank].first) / p.temperature);
  };
  double total = 0;
  for (size_t i = 0; i < order.size(); ++i) total += weight(i);
  size_t keep = order.size();
  double sum = 0;
  for (size_t i = 0; p.top_p < 1 && i < order.size(); ++i) {
    sum += weight(i);
    if (sum >= p.top_p * total) {
      keep = i + 1;
      break;
    }
  }
  double mass = 0;
  for (size_t i = 0; i < keep; ++i) {
    if (weight(i) >= p.min_p) mass += weight(i);
  }
  std::map<int32_t, double> out;
  for (size_t i = 0; i < keep; ++i) {
    if (weight(i) >= p.min_p) out[order[i].second] = weight(i) / mass;
  }
  return out;
}

std::vector<float> random_logits(uint32_t count, uint64_t seed, float scale = 3) {
  std::mt19937_64 random(seed);
  std::normal_distribution<float> normal(0, scale);
  std::vector<float> logits(count);
  for (float& x : logits) x = normal(random);
  return logits;
}

// Draws often and compares with the oracle: nothing outside its support, frequencies within 5
// sigma.
void expect_distribution(const std::vector<float>& logits, const SamplingParams& params) {
  const auto want = oracle(logits, params);
  Sampler sampler(params, static_cast<uint32_t>(logits.size()));
  constexpr int kDraws = 20'000;
  std::map<int32_t, int> counts;
  for (int i = 0; i < kDraws; ++i) ++counts[sampler.sample(logits).value()];
  for (const auto& [id, count] : counts) ASSERT_TRUE(want.contains(id)) << "token " << id;
  for (const auto& [id, p] : want) {
    const double sigma = std::sqrt(kDraws * p * (1 - p)) + 1;
    EXPECT_NEAR(counts[id], kDraws * p, 5 * sigma) << "token " << id << " p " << p;
  }
}

TEST(Sampler, GreedyTakesTheLowestIdOfEquals) {
  SamplingParams params;
  params.temperature = 0;
  for (const uint64_t seed : {0u, 1u, 99u}) {
    params.seed = seed;
    Sampler sampler(params, 5);
    EXPECT_EQ(*sampler.sample(std::vector<float>{1, 3, 3, -kInfinity, 3}), 1);
  }
}

TEST(Sampler, RefusesNanAndNothingFinite) {
  for (const double temperature : {0.0, 1.0}) {
    SamplingParams params;
    params.temperature = temperature;
    Sampler sampler(params, 3);
    EXPECT_EQ(sampler.sample(std::vector<float>{1, 2, kNan}).error().code, ErrorCode::corrupt);
    EXPECT_THAT(sampler.sample(std::vector<float>{1, kInfinity, 0}).error().message,
                testing::HasSubstr("token 1 is inf"));
    EXPECT_FALSE(sampler.sample(std::vector<float>(3, -kInfinity)).ok());
    EXPECT_EQ(*sampler.sample(std::vector<float>{-kInfinity, -2, -kInfinity}), 1);
  }
}

TEST(Sampler, EveryFilterAgreesWithTheOracle) {
  const auto logits = random_logits(50, 1);
  const auto with = [](double temperature, uint32_t top_k, double top_p, double min_p) {
    SamplingParams p;
    p.temperature = temperature, p.top_k = top_k, p.top_p = top_p, p.min_p = min_p, p.seed = 7;
    return p;
  };
  expect_distribution(logits, with(1, 0, 1, 0));
  expect_distribution(logits, with(0.7, 0, 1, 0));
  expect_distribution(logits, with(2.5, 0, 1, 0));
  expect_distribution(logits, with(1, 3, 1, 0));
  expect_distribution(logits, with(1, 1'000'000'000, 1, 0));
  expect_distribution(logits, with(1.5, 0, 0.8, 0));
  expect_distribution(logits, with(1.5, 0, 1, 0.1));
  expect_distribution(logits, with(1.5, 20, 0.9, 0.05));
}

// The kept set alone, over many shapes: every id of the oracle's and no other can come out.
TEST(Sampler, KeptSetsAgreeWithTheOracleOnRandomLogits) {
  std::mt19937_64 random(5);
  for (int round = 0; round < 200; ++round) {
    const auto count = static_cast<uint32_t>(1 + random() % 300);
    auto logits = random_logits(count, random(), 0.5f);
    for (float& x : logits) x = std::round(x * 4) / 4;  // many ties
    SamplingParams params;
    params.top_k = static_cast<uint32_t>(random() % (count + 2));
    params.top_p = static_cast<double>(random() % 101) / 100;
    params.min_p = random() % 2 ? 0 : 0.3;
    params.seed = random();
    const auto want = oracle(logits, params);
    Sampler sampler(params, count);
    std::map<int32_t, int> seen;
    for (int i = 0; i < 300; ++i) ++seen[sampler.sample(logits).value()];
    for (const auto& [id, n] : seen) ASSERT_TRUE(want.contains(id)) << "round " << round;
    for (const auto& [id, p] : want) {
      EXPECT_TRUE(p < 0.1 || seen.contains(id)) << "round " << round << " token " << id;
    }
  }
}

// Logits that are hard to select among: ties, all equal, one far from the rest, some −infinite.
std::vector<float> hard_logits(std::mt19937_64& random) {
  auto logits = random_logits(static_cast<uint32_t>(300 + random() % 2000), random());
  switch (random() % 5) {
    case 0:
      break;
    case 1:
      for (float& x : logits) x = std::round(x * 4) / 4;
      break;
    case 2:
      std::fill(logits.begin(), logits.end(), 2.5f);
      break;
    case 3:
      logits[random() % logits.size()] = random() % 2 ? 1e30f : 12.0f;
      break;
    default:
      for (float& x : logits) x = random() % 50 ? -kInfinity : x;
  }
  return logits;
}

// Large vocabularies, where blocks are skipped and selection takes rounds.
TEST(Sampler, KeptSetsAgreeWithTheOracleOnHardLogits) {
  std::mt19937_64 random(6);
  const auto one_of = [&](auto... values) {
    return std::array{values...}[random() % sizeof...(values)];
  };
  for (int round = 0; round < 120; ++round) {
    const auto logits = hard_logits(random);
    const auto count = static_cast<uint32_t>(logits.size());
    SamplingParams params;
    params.temperature = one_of(1e-3, 0.5, 1.0, 1.0, 40.0, 1e30, 1e308);
    params.top_k = one_of(0u, 0u, 1u, 20u, 200u, count / 2, count - 1);
    params.top_p = one_of(1.0, 0.999, 0.95, 0.5, 0.01, 0.0);
    params.min_p = one_of(0.0, 0.0, 0.05, 0.9);
    params.seed = random();
    SCOPED_TRACE(testing::Message() << "round " << round << " of " << count << ": temperature "
                                    << params.temperature << " top-k " << params.top_k << " top-p "
                                    << params.top_p << " min-p " << params.min_p);
    const auto want = oracle(logits, params);
    Sampler sampler(params, count);
    constexpr int kDraws = 100;
    std::map<int32_t, int> seen;
    for (int i = 0; i < kDraws; ++i) ++seen[sampler.sample(logits).value()];
    for (const auto& [id, n] : seen) ASSERT_TRUE(want.contains(id)) << "token " << id;
    for (const auto& [id, p] : want) {
      ASSERT_TRUE(p * kDraws < 25 || seen.contains(id)) << "token " << id;  // by chance e^-25
    }
  }
}

// Weights so even that every token kept is seen: the sets are compared, not samples of them.
TEST(Sampler, CutsAtTheVeryTokenOfTheOracle) {
  for (const float step : {0.0f, 0.25f, 1e-3f}) {  // 0: as drawn
    auto logits = random_logits(2000, 8);
    for (float& x : logits) x = step > 0 ? std::round(x / step) * step : x;
    for (const auto& [top_k, top_p] : {std::pair{35u, 1.0}, {0u, 0.0173}, {75u, 0.45}}) {
      SamplingParams params;
      params.temperature = 500;
      params.top_k = top_k;
      params.top_p = top_p;
      Sampler sampler(params, 2000);
      std::set<int32_t> want, seen;
      for (const auto& [id, p] : oracle(logits, params)) want.insert(id);
      for (int i = 0; i < 1000; ++i) seen.insert(sampler.sample(logits).value());
      EXPECT_EQ(seen, want) << "step " << step << " top-k " << top_k << " top-p " << top_p;
    }
  }
}

TEST(Sampler, EveryTokenOfAShortLastBlockCounts) {
  for (const uint32_t rows : {1u, 63u, 64u, 65u, 127u, 128u, 130u}) {
    std::vector<float> logits(rows, -1.0f);
    Sampler sampler(SamplingParams{}, rows);
    std::set<int32_t> seen;
    for (uint32_t i = 0; i < 40 * rows; ++i) seen.insert(sampler.sample(logits).value());
    EXPECT_EQ(seen.size(), rows);
    logits.back() = 500;
    EXPECT_EQ(*sampler.sample(logits), static_cast<int32_t>(rows - 1));
    SamplingParams params;
    params.temperature = 0;
    EXPECT_EQ(*Sampler(params, rows).sample(logits), static_cast<int32_t>(rows - 1));
    logits.back() = kNan;
    EXPECT_THAT(sampler.sample(logits).error().message,
                testing::HasSubstr("token " + std::to_string(rows - 1) + " is nan"));
    logits.back() = -kInfinity;  // what fills up the block, too
    if (rows > 1) EXPECT_NE(*sampler.sample(logits), static_cast<int32_t>(rows - 1));
  }
}

TEST(Sampler, TopPZeroKeepsTheBest) {
  SamplingParams params;
  params.top_p = 0;
  Sampler sampler(params, 4);
  for (int i = 0; i < 50; ++i) EXPECT_EQ(*sampler.sample(std::vector<float>{0, 2, 2, 1}), 1);
}

TEST(Sampler, ExtremeTemperaturesStayFinite) {
  for (const double temperature : {std::numeric_limits<double>::denorm_min(), 1e-300, 1e-30}) {
    SamplingParams params;
    params.temperature = temperature;
    Sampler sampler(params, 4);
    for (int i = 0; i < 20; ++i) {
      EXPECT_EQ(*sampler.sample(std::vector<float>{-3e38f, 1, 1.0001f, -kInfinity}), 2);
    }
  }
  SamplingParams hot;
  hot.temperature = 1e308;
  expect_distribution({1, 5, -20, 7}, hot);  // uniform
}

TEST(Sampler, RepetitionPenaltyShrinksPositiveAndGrowsNegativeLogits) {
  SamplingParams params;
  params.temperature = 0;
  params.repetition_penalty = 2;
  Sampler prompt(params, 3);
  EXPECT_EQ(*prompt.sample(std::vector<float>{3, 2, 0}), 0);
  prompt.observe_prompt(std::vector<int32_t>{0, -5, 99});           // ids outside count for nothing
  EXPECT_EQ(*prompt.sample(std::vector<float>{3, 2, 0}), 1);        // 1.5 < 2
  EXPECT_EQ(*prompt.sample(std::vector<float>{-1, -1.5f, -9}), 1);  // −2 < −1.5
  prompt.observe_output(1);
  EXPECT_EQ(*prompt.sample(std::vector<float>{-1, -1.5f, -9}), 0);  // −2 > −3
}

TEST(Sampler, PresenceAndFrequencyCountOutputOnly) {
  SamplingParams params;
  params.temperature = 0;
  params.presence_penalty = 0.5;
  params.frequency_penalty = 0.25;
  Sampler sampler(params, 2);
  sampler.observe_prompt(std::vector<int32_t>{0, 0, 0});
  EXPECT_EQ(*sampler.sample(std::vector<float>{1, 0.9f}), 0);
  sampler.observe_output(0);
  EXPECT_EQ(*sampler.sample(std::vector<float>{1, 0.3f}), 1);  // 1 − 0.75 = 0.25
  EXPECT_EQ(*sampler.sample(std::vector<float>{1, 0.2f}), 0);
  sampler.observe_output(0);
  EXPECT_EQ(*sampler.sample(std::vector<float>{1, 0.1f}), 1);  // 1 − 1.0 = 0
  Sampler huge(params, 2);
  huge.observe_output(1);
  EXPECT_EQ(*huge.sample(std::vector<float>{-3e38f, 3e38f}), 1);  // no overflow to infinity
}

// Against the definition, token by token, on a vocabulary of several blocks.
TEST(Sampler, PenaltiesReachTheirTokensOnly) {
  const auto logits = random_logits(200, 4);
  SamplingParams params;
  params.temperature = 0;
  params.repetition_penalty = 1.5;
  params.presence_penalty = 0.25;
  Sampler sampler(params, 200);
  auto want = logits;
  for (int i = 0; i < 200; ++i) {  // each best in turn
    const auto best =
        static_cast<int32_t>(std::max_element(want.begin(), want.end()) - want.begin());
    ASSERT_EQ(*sampler.sample(logits), best) << "turn " << i;
    sampler.observe_output(best);
    const float logit = logits[best];
    want[best] = static_cast<float>((logit > 0 ? logit / 1.5 : logit * 1.5) - 0.25);
  }
}

TEST(Sampler, SameSeedSameIds) {
  const auto logits = random_logits(1000, 3, 1);
  const auto run = [&](uint64_t seed) {
    SamplingParams params;
    params.seed = seed;
    params.top_p = 0.95;
    Sampler sampler(params, 1000);
    std::vector<int32_t> ids;
    for (int i = 0; i < 64; ++i) ids.push_back(*sampler.sample(logits));
    return ids;
  };
  EXPECT_EQ(run(42), run(42));
  EXPECT_NE(run(42), run(43));
}

// Pins the generator itself: splitmix64(0) seeding xoshiro256**, first uniform over 2^20 equal
// logits.
TEST(Sampler, GeneratorIsPinned) {
  constexpr uint32_t kRows = 1u << 20;
  Sampler sampler(SamplingParams{}, kRows);
  const std::vector<float> flat(kRows, 0.f);
  // xoshiro256** with splitmix64 seed 0 starts 0x99ec5f36cb75f2b4: its top 20 bits pick the id.
  EXPECT_EQ(*sampler.sample(flat), 0x99ec5);
}

TEST(Sampler, RefusesParametersOutOfRangeByFlag) {
  const auto message = [](auto set) {
    SamplingParams params;
    set(params);
    const Status status = validate_sampling(params);
    return status.ok() ? std::string() : status.error().message;
  };
  using testing::HasSubstr;
  const double nan = std::nan("");
  EXPECT_EQ(message([](auto&) {}), "");
  EXPECT_THAT(message([](auto& p) { p.temperature = -0.1; }), HasSubstr("--temperature"));
  EXPECT_THAT(message([&](auto& p) { p.temperature = nan; }), HasSubstr("--temperature"));
  EXPECT_THAT(message([&](auto& p) { p.temperature = HUGE_VAL; }), HasSubstr("--temperature"));
  EXPECT_THAT(message([](auto& p) { p.top_p = 1.01; }), HasSubstr("--top-p"));
  EXPECT_THAT(message([](auto& p) { p.min_p = -1; }), HasSubstr("--min-p"));
  EXPECT_THAT(message([](auto& p) { p.repetition_penalty = 0; }), HasSubstr("--repetition-pen"));
  EXPECT_THAT(message([](auto& p) { p.presence_penalty = 3; }), HasSubstr("--presence-penalty"));
  EXPECT_THAT(message([](auto& p) { p.frequency_penalty = -3; }), HasSubstr("--frequency-pen"));
}

TEST(GenerationConfig, ReadsSamplingValues) {
  const auto read = [](std::string_view text) {
    return sampling_from_generation_config(parse_json(text, "test").value());
  };
  const auto demo = read(R"({"do_sample": true, "temperature": 0.8, "top_p": 0.95, "top_k": 20})");
  EXPECT_EQ(demo->temperature, 0.8);
  EXPECT_EQ(demo->top_p, 0.95);
  EXPECT_EQ(demo->top_k, 20u);
  EXPECT_EQ(read(R"({"do_sample": true})")->temperature, 1.0);  // GPT-OSS as released
  EXPECT_EQ(read(R"({"temperature": 0.6})")->temperature,
            0.6);  // do_sample absent: the value counts
  EXPECT_EQ(read(R"({"do_sample": false, "temperature": 0.6})")->temperature, 0.0);
  EXPECT_EQ(read(R"({"temperature": null, "top_k": -1})")->top_k, 0u);
  EXPECT_EQ(read(R"({"top_k": 99999999999})")->top_k, 0xffffffffu);
  for (const char* bad : {R"({"temperature": "0.7"})", R"({"temperature": -1})", R"({"top_p": 2})",
                          R"({"top_k": 1.5})", R"({"do_sample": 1})", "[]"}) {
    EXPECT_FALSE(read(bad).ok()) << bad;
  }
}

TEST(GenerationConfig, ReadsEosAsNumberOrList) {
  const auto read = [](std::string_view text) {
    return eos_from_generation_config(parse_json(text, "test").value());
  };
  EXPECT_THAT(*read(R"({"eos_token_id": 5})"), testing::ElementsAre(5));
  EXPECT_THAT(*read(R"({"eos_token_id": [200002, 199999]})"), testing::ElementsAre(200002, 199999));
  EXPECT_THAT(*read("{}"), testing::IsEmpty());
  EXPECT_THAT(*read(R"({"eos_token_id": null})"), testing::IsEmpty());
  for (const char* bad : {R"({"eos_token_id": -1})", R"({"eos_token_id": 2147483648})",
                          R"({"eos_token_id": "2"})", R"({"eos_token_id": [2, 1.5]})"}) {
    EXPECT_FALSE(read(bad).ok()) << bad;
  }
}

TEST(Sampler, AllocatesNothingAfterConstruction) {
  const auto logits = random_logits(5000, 2, 1);
  SamplingParams params;
  params.top_k = 100;
  params.top_p = 0.99;
  params.frequency_penalty = 0.1;
  Sampler sampler(params, 5000);
  const std::vector<int32_t> prompt = {1, 2, 3};
  const long before = allocations;
  sampler.observe_prompt(prompt);
  for (int i = 0; i < 100; ++i) sampler.observe_output(*sampler.sample(logits));
  EXPECT_EQ(allocations, before);
}

// A guard against an accidental full sort or worse, not a benchmark: the bound leaves room for
// sanitizers.
TEST(Sampler, ManagesAFullVocabularyQuickly) {
  constexpr uint32_t kVocab = 201'088;
  const auto logits = random_logits(kVocab, 11);
  SamplingParams params;
  params.top_k = 50;
  params.top_p = 0.95;
  params.repetition_penalty = 1.1;
  Sampler sampler(params, kVocab);
  const auto start = std::chrono::steady_clock::now();
  for (int i = 0; i < 10; ++i) sampler.observe_output(sampler.sample(logits).value());
  const std::chrono::duration<double> took = std::chrono::steady_clock::now() - start;
  RecordProperty("milliseconds_a_token", std::to_string(took.count() * 100));
  EXPECT_LT(took.count(), 2.0);
}

}  // namespace
}  // namespace wader
