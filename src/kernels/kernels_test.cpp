#include <gtest/gtest.h>

#include <cmath>
#include <limits>
#include <random>
#include <vector>

#include "kernels/ops.h"

namespace wader {
namespace {

std::vector<float> random_values(size_t n, uint32_t seed, float scale = 1) {
  std::mt19937 rng(seed);
  std::normal_distribution<float> normal(0, scale);
  std::vector<float> values(n);
  for (float& v : values) v = normal(rng);
  return values;
}

class KernelsTest : public ::testing::TestWithParam<const Kernels*> {
 protected:
  const Kernels& k = *GetParam();
};

INSTANTIATE_TEST_SUITE_P(Backends, KernelsTest,
                         ::testing::ValuesIn(available_kernels().begin(),
                                             available_kernels().end()),
                         [](const auto& suite) { return std::string(suite.param->name); });

std::vector<float> matmul(const Kernels& k, const MatrixView& w, const std::vector<float>& x,
                          uint32_t tokens, const float* bias, uint32_t split) {
  std::vector<float> y(static_cast<size_t>(tokens) * w.rows, NAN),
      scratch(matmul_scratch_floats(w.cols, tokens));
  for (uint32_t begin = 0; begin < w.rows; begin += split)
    k.matmul({y.data(), w.rows, x.data(), w.cols, tokens, w, bias, begin,
              std::min(begin + split, w.rows), scratch.data()});
  return y;
}

TEST_P(KernelsTest, MatmulIsTheDoubleSumWithinRounding) {
  std::mt19937 rng(3);
  for (const uint32_t cols : {32u, 64u, 96u, 192u, 2880u})
    for (const uint32_t tokens : {1u, 2u, 3u, 4u, 5u, 9u}) {
      const uint32_t rows = 1 + rng() % 40;
      const auto weights = random_values(static_cast<size_t>(rows) * cols, rng());
      const auto x = random_values(static_cast<size_t>(tokens) * cols, rng());
      const auto bias = random_values(rows, rng());
      const MatrixView w = matrix_view(DType::f32, rows, cols, std::as_bytes(std::span(weights)));
      const auto y = matmul(k, w, x, tokens, bias.data(), rows);
      for (uint32_t t = 0; t < tokens; ++t)
        for (uint32_t r = 0; r < rows; ++r) {
          double sum = bias[r], magnitude = std::fabs(bias[r]);
          for (uint32_t c = 0; c < cols; ++c) {
            const double product = static_cast<double>(x[t * cols + c]) * weights[r * cols + c];
            sum += product;
            magnitude += std::fabs(product);
          }
          // cols/16 + 5 additions on the longest path, each within 2^-24.
          EXPECT_NEAR(y[t * rows + r], sum, magnitude * (cols / 16 + 6) * 0x1p-24);
        }
    }
}

// Design rule 1: rows of a batch and slices of the matrix never change a bit.
TEST_P(KernelsTest, MatmulBitsDoNotDependOnBatchOrSplit) {
  const uint32_t rows = 37, cols = 192, tokens = 11;
  std::vector<uint8_t> bytes(*matrix_bytes(DType::mxfp4, rows, cols));
  std::mt19937 rng(5);
  for (uint8_t& b : bytes) b = static_cast<uint8_t>(rng());
  for (size_t i = rows * cols / 2; i < bytes.size(); ++i)
    bytes[i] = static_cast<uint8_t>(120 + rng() % 12);
  const MatrixView w = matrix_view(DType::mxfp4, rows, cols, std::as_bytes(std::span(bytes)));
  const auto x = random_values(tokens * cols, 6);
  const auto whole = matmul(k, w, x, tokens, nullptr, rows);
  for (const uint32_t split : {1u, 5u, 16u})
    EXPECT_EQ(matmul(k, w, x, tokens, nullptr, split), whole);
  for (uint32_t t = 0; t < tokens; ++t) {
    const std::vector<float> one(x.begin() + t * cols, x.begin() + (t + 1) * cols);
    const auto alone = matmul(k, w, one, 1, nullptr, rows);
    EXPECT_TRUE(std::equal(alone.begin(), alone.end(), whole.begin() + t * rows)) << t;
  }
}

// Case C-03. Values computed by hand from the formula.
TEST_P(KernelsTest, SwigluClampsTheGateAboveOnly) {
  const std::vector<float> gate_up = {-20, 0, 20, 20, 20, -20, -7.5f, 8};
  std::vector<float> out(4);
  k.swiglu_clamped(out.data(), gate_up.data(), 4, 7.0f);
  EXPECT_NEAR(out[0], -3.3e-14, 0.2e-14);  // a symmetric clamp would give −4.7e-5
  EXPECT_NEAR(out[1], 55.9996, 1e-4);
  EXPECT_NEAR(out[2], -41.9997, 1e-4);
  EXPECT_NEAR(out[3], -7.5 * 8 / (1 + std::exp(1.702 * 7.5)), 1e-7);
}

// Case C-05.
TEST_P(KernelsTest, RouterTakesSoftmaxOverTheChosen) {
  uint32_t ids[3];
  float weights[3];
  const std::vector<float> logits = {2, 1, 0, -1};
  k.topk_softmax(ids, weights, logits.data(), 4, 2);
  EXPECT_EQ(ids[0], 0u);
  EXPECT_EQ(ids[1], 1u);
  EXPECT_NEAR(weights[0], 0.7310586, 1e-6);
  EXPECT_NEAR(weights[1], 0.2689414, 1e-6);

  const std::vector<float> equal(7, 0.25f);
  k.topk_softmax(ids, weights, equal.data(), 7, 3);
  for (uint32_t i = 0; i < 3; ++i) {
    EXPECT_EQ(ids[i], i);
    EXPECT_NEAR(weights[i], 1.0 / 3, 1e-6);
  }
  const std::vector<float> far = {-1e30f, 5e8f, 1, 2};
  k.topk_softmax(ids, weights, far.data(), 4, 2);
  EXPECT_EQ(ids[0], 1u);
  EXPECT_EQ(ids[1], 3u);
  EXPECT_EQ(weights[0], 1.0f);
  EXPECT_EQ(weights[1], 0.0f);
}

// Case C-05, Qwen's rules: the same numbers with renormalising, the shares of all without.
TEST_P(KernelsTest, RouterTakesSharesOfTheWhole) {
  uint32_t ids[2];
  float weights[2];
  const std::vector<float> logits = {2, 1, 0, -1};
  k.softmax_topk(ids, weights, logits.data(), 4, 2, true);
  EXPECT_EQ(ids[0], 0u);
  EXPECT_EQ(ids[1], 1u);
  EXPECT_NEAR(weights[0], 0.7310586, 1e-6);
  EXPECT_NEAR(weights[1], 0.2689414, 1e-6);
  k.softmax_topk(ids, weights, logits.data(), 4, 2, false);
  EXPECT_NEAR(weights[0], 0.6439143, 1e-6);
  EXPECT_NEAR(weights[1], 0.2368828, 1e-6);
  const std::vector<float> far = {3e38f, -3e38f, 3e38f, 0};
  k.softmax_topk(ids, weights, far.data(), 4, 2, false);
  EXPECT_EQ(ids[1], 2u);
  EXPECT_EQ(weights[0], 0.5f);
}

TEST_P(KernelsTest, SwigluTakesGateFromEvenPlaces) {
  const std::vector<float> gate_up = {0, 5, 2, 3, -100, 7, 90, -1};
  std::vector<float> out(4);
  k.swiglu(out.data(), gate_up.data(), 4);
  EXPECT_EQ(out[0], 0.0f);
  EXPECT_NEAR(out[1], 2 / (1 + std::exp(-2.0)) * 3, 1e-6);
  EXPECT_NEAR(out[2], 0.0f, 1e-30);
  EXPECT_EQ(out[3], -90.0f);
}

TEST_P(KernelsTest, GatesMultiply) {
  std::vector<float> x = {2, 2, 2}, y = x;
  const std::vector<float> gate = {0, 3, -200};
  k.sigmoid_gate(x.data(), gate.data(), 3);
  EXPECT_EQ(x[0], 1.0f);
  EXPECT_NEAR(x[1], 2 / (1 + std::exp(-3.0)), 1e-6);
  EXPECT_NEAR(x[2], 0, 1e-30);
  k.silu_gate(y.data(), gate.data(), 3);
  EXPECT_EQ(y[0], 0.0f);
  EXPECT_NEAR(y[1], 6 / (1 + std::exp(-3.0)), 1e-6);
  EXPECT_NEAR(y[2], 0, 1e-30);
}

// eps stands beside the sum, not the mean.
TEST_P(KernelsTest, L2NormAddsEpsToTheSum) {
  std::vector<float> x = {3e-3f, 4e-3f}, zeros(5, 0.0f);
  k.l2_norm(x.data(), 2, 1e-6f, 0.5f);
  const double length = std::sqrt(25e-6 + 1e-6);
  EXPECT_NEAR(x[0], 3e-3 / length * 0.5, 1e-6);
  EXPECT_NEAR(x[1], 4e-3 / length * 0.5, 1e-6);
  k.l2_norm(zeros.data(), 5, 1e-6f, 1.0f);
  for (float value : zeros) EXPECT_EQ(value, 0.0f);
}

TEST_P(KernelsTest, ConvolutionTakesOldestFirst) {
  // Three channels, two taps; channel 0 is not asked for.
  const std::vector<float> old = {9, 1, 2}, now = {9, 10, 20}, taps = {9, 9, 0.5f, 0.25f, 1, -1};
  const float* const rows[] = {old.data(), now.data()};
  std::vector<float> out = {7, 7, 7};
  k.conv_silu(out.data(), rows, taps.data(), 2, 1, 3);
  EXPECT_EQ(out[0], 7.0f);
  EXPECT_NEAR(out[1], 3 / (1 + std::exp(-3.0)), 1e-6);
  EXPECT_NEAR(out[2], -18 / (1 + std::exp(18.0)), 1e-9);
}

TEST_P(KernelsTest, TopKEqualsASort) {
  std::mt19937 rng(8);
  for (int round = 0; round < 200; ++round) {
    const uint32_t n = 1 + rng() % 64, kept = 1 + rng() % n;
    std::vector<float> logits(n);
    for (float& l : logits) l = static_cast<float>(rng() % 9);  // many ties
    std::vector<uint32_t> order(n), ids(kept);
    for (uint32_t i = 0; i < n; ++i) order[i] = i;
    std::stable_sort(order.begin(), order.end(),
                     [&](uint32_t a, uint32_t b) { return logits[a] > logits[b]; });
    std::vector<float> weights(kept);
    k.topk_softmax(ids.data(), weights.data(), logits.data(), n, kept);
    EXPECT_TRUE(std::equal(ids.begin(), ids.end(), order.begin()));
  }
}

struct Attention {
  uint32_t first, last, capacity;
  uint32_t queries = 1, head_dim = 8;
  std::vector<float> sinks = {};
  float scale = 0.35f;
};

float key_value(uint32_t position, uint32_t d, bool value) {
  uint32_t bits = (position * 2 + value) * 2654435761u + d * 0x9e3779b9u;
  bits = (bits ^ (bits >> 15)) * 0x2c1b3c6du;
  return static_cast<float>((bits >> 12) % 2048) / 1024 - 1;  // exact in f16
}

std::vector<float> queries_of(const Attention& a) {
  return random_values(a.queries * a.head_dim, 1);
}

// Every place without a position of [first, last] holds NaN, which must reach nothing.
std::vector<float> attend(const Kernels& kernels, const Attention& a) {
  const size_t plane =
      size_t{a.capacity} * a.head_dim * (kernels.kv_dtype == DType::f32 ? sizeof(float) : 2);
  std::vector<std::byte> k(plane, std::byte{0xff}), v(plane, std::byte{0xff});
  std::vector<float> key(a.head_dim), value(a.head_dim);
  for (uint32_t p = a.first; p <= a.last; ++p) {
    for (uint32_t d = 0; d < a.head_dim; ++d) {
      key[d] = key_value(p, d, false);
      value[d] = key_value(p, d, true);
    }
    kernels.store_kv({k.data(), v.data(), a.head_dim, a.capacity, p, key.data(), value.data()});
  }
  const std::vector<float> q = queries_of(a);
  std::vector<float> out(q.size()), scratch(attend_scratch_floats(a.queries), NAN);
  kernels.attend({.out = out.data(),
                  .q = q.data(),
                  .queries = a.queries,
                  .k = k.data(),
                  .v = v.data(),
                  .head_dim = a.head_dim,
                  .capacity = a.capacity,
                  .first = a.first,
                  .last = a.last,
                  .scale = a.scale,
                  .sinks = a.sinks.empty() ? nullptr : a.sinks.data(),
                  .scratch = scratch.data()});
  return out;
}

// The softmax of all scores at once, in double precision.
std::vector<double> attend_exactly(const Attention& a) {
  const std::vector<float> q = queries_of(a);
  std::vector<double> out(q.size());
  for (uint32_t i = 0; i < a.queries; ++i) {
    std::vector<double> scores;
    double max = a.sinks.empty() ? -INFINITY : a.sinks[i];
    for (uint32_t p = a.first; p <= a.last; ++p) {
      double score = 0;
      for (uint32_t d = 0; d < a.head_dim; ++d)
        score += static_cast<double>(q[i * a.head_dim + d]) * key_value(p, d, false);
      scores.push_back(score * a.scale);
      max = std::max(max, scores.back());
    }
    // Case C-02: the sink joins the denominator and adds no value vector; 0 is not "none".
    double sum = a.sinks.empty() ? 0 : std::exp(a.sinks[i] - max);
    for (double& score : scores) sum += score = std::exp(score - max);
    for (uint32_t p = a.first; p <= a.last; ++p)
      for (uint32_t d = 0; d < a.head_dim; ++d)
        out[i * a.head_dim + d] += scores[p - a.first] / sum * key_value(p, d, true);
  }
  return out;
}

TEST_P(KernelsTest, AttentionIsTheSoftmaxOfAllScores) {
  for (const uint32_t head_dim : {8u, 32u, 64u, 80u, 128u})
    for (const uint32_t queries : {1u, 3u, 8u})
      for (const auto& [first, last] :
           {std::pair{0u, 0u}, {0u, 63u}, {5u, 64u}, {63u, 64u}, {100u, 227u}, {3u, 300u}}) {
        Attention a{.first = first,
                    .last = last,
                    .capacity = 320,
                    .queries = queries,
                    .head_dim = head_dim};
        for (const bool with_sinks : {false, true}) {
          if (with_sinks) a.sinks = random_values(queries, 7);
          const auto out = attend(k, a);
          const auto exact = attend_exactly(a);
          for (size_t i = 0; i < out.size(); ++i) ASSERT_NEAR(out[i], exact[i], 3e-6) << i;
        }
      }
}

TEST_P(KernelsTest, ARingGivesTheBitsOfAFlatCache) {
  for (const uint32_t first : {0u, 3u, 30u, 41u, 100u, 130u})
    for (const uint32_t count : {1u, 2u, 17u, 64u, 65u, 100u}) {
      Attention a{.first = first, .last = first + count - 1, .capacity = 128, .queries = 2};
      const auto ring = attend(k, a);
      a.capacity = 320;
      EXPECT_EQ(ring, attend(k, a));
    }
}

TEST_P(KernelsTest, AQueryDoesNotFeelItsNeighbours) {
  Attention a{.first = 7, .last = 200, .capacity = 256, .queries = 13, .head_dim = 64};
  a.sinks = random_values(13, 3);
  const auto together = attend(k, a);
  for (uint32_t n = 1; n <= 13; ++n) {
    a.queries = n;  // the first n of the same queries
    const auto fewer = attend(k, a);
    EXPECT_TRUE(std::equal(fewer.begin(), fewer.end(), together.begin())) << n;
  }
}

TEST_P(KernelsTest, TheSinkOnlyJoinsTheDenominator) {
  for (const float sink : {0.0f, -2.0f, 3.0f, 60.0f, -60.0f}) {
    const Attention a{.first = 5, .last = 20, .capacity = 64, .sinks = {sink}};
    const auto out = attend(k, a);
    const auto exact = attend_exactly(a);
    for (uint32_t i = 0; i < 8; ++i) EXPECT_NEAR(out[i], exact[i], 1e-6);
  }
}

TEST_P(KernelsTest, AttentionSurvivesHugeScores) {
  const size_t plane = 64 * 4 * sizeof(float);
  std::vector<std::byte> keys(plane), values(plane);
  const std::vector<float> q(4, 1e6f), up(4, 1e4f), down(4, -1e4f);
  const std::vector<float> value0 = {1, 2, 3, 4}, value1 = {5, 6, 7, 8};
  std::vector<float> out(4), scratch(attend_scratch_floats(1));
  k.store_kv({keys.data(), values.data(), 4, 64, 0, up.data(), value0.data()});
  k.store_kv({keys.data(), values.data(), 4, 64, 1, down.data(), value1.data()});
  k.attend({out.data(), q.data(), 1, keys.data(), values.data(), 4, 64, 0, 1, 1.0f, nullptr,
            scratch.data()});
  EXPECT_EQ(out, value0);
}

TEST_P(KernelsTest, RopeLeavesTheRestOfAHead) {
  std::vector<float> head = {1, 2, 3, 4, 5, 6};
  const std::vector<float> cos = {0, 1}, sin = {1, 0};
  k.rope(head.data(), cos.data(), sin.data(), 4);
  EXPECT_EQ(head, (std::vector<float>{-3, 2, 1, 4, 5, 6}));
}

TEST_P(KernelsTest, RopePairsHalves) {
  std::vector<float> head = {1, 2, 3, 4};
  const std::vector<float> cos = {0, 1}, sin = {1, 0};
  k.rope(head.data(), cos.data(), sin.data(), 4);
  EXPECT_EQ(head, (std::vector<float>{-3, 2, 1, 4}));
}

TEST_P(KernelsTest, RmsNormOfZerosAndOfLargeValues) {
  std::vector<float> out(32), zeros(32, 0.0f), weight(32, 2.0f), large(32, 1e15f);
  k.rms_norm(out.data(), zeros.data(), weight.data(), 32, 1e-5f);
  for (float v : out) EXPECT_EQ(v, 0.0f);
  k.rms_norm(out.data(), large.data(), weight.data(), 32, 1e-5f);
  for (float v : out) EXPECT_NEAR(v, 2.0f, 1e-5);
}

TEST(SelectKernels, NamesWhatThereIs) {
  EXPECT_EQ((*select_kernels("ref"))->name, "ref");
  EXPECT_EQ(*select_kernels("auto"), available_kernels().back());
  EXPECT_NE((*select_kernels("auto"))->name, "ref");
  for (const Kernels* k : available_kernels()) EXPECT_EQ(*select_kernels(k->name), k);
  const auto none = select_kernels("sse1");
  ASSERT_FALSE(none.ok());
  EXPECT_NE(none.error().message.find("ref"), std::string::npos);
}

}  // namespace
}  // namespace wader
