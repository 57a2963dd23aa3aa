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
      scratch(matmul_scratch_floats(w.cols));
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

struct Attended {
  std::vector<float> out;
  std::vector<float> k, v, q, scores;
  AttendArgs args;
};

Attended attend(const Kernels& kernels, uint32_t first, uint32_t last, uint32_t capacity,
                const float* sink) {
  constexpr uint32_t kDim = 8;
  Attended a;
  a.q = random_values(kDim, 1);
  a.k.assign(capacity * kDim, NAN);  // a position outside the range must never be looked at
  a.v.assign(capacity * kDim, NAN);
  for (uint32_t p = first; p <= last; ++p) {
    const auto key = random_values(kDim, 100 + p), value = random_values(kDim, 9000 + p);
    std::copy(key.begin(), key.end(), a.k.begin() + (p % capacity) * kDim);
    std::copy(value.begin(), value.end(), a.v.begin() + (p % capacity) * kDim);
  }
  a.out.resize(kDim);
  a.scores.resize(last - first + 1);
  a.args = {a.out.data(), a.q.data(), a.k.data(), a.v.data(), kDim,           capacity,
            first,        last,       0.35f,      sink,       a.scores.data()};
  kernels.attend(a.args);
  return a;
}

TEST_P(KernelsTest, ARingGivesTheBitsOfAFlatCache) {
  for (const uint32_t first : {0u, 3u, 30u, 41u})
    for (const uint32_t count : {1u, 2u, 17u, 32u})
      EXPECT_EQ(attend(k, first, first + count - 1, 32, nullptr).out,
                attend(k, first, first + count - 1, 100, nullptr).out);
}

// Case C-02: plain softmax attention times σ(logsumexp(s) − sink); the sink adds no value vector,
// and 0 is not "none".
TEST_P(KernelsTest, TheSinkOnlyJoinsTheDenominator) {
  for (const float sink : {0.0f, -2.0f, 3.0f, 60.0f, -60.0f}) {
    const Attended plain = attend(k, 5, 20, 64, nullptr);
    const Attended sunk = attend(k, 5, 20, 64, &sink);
    double sum = 0;
    for (uint32_t p = 5; p <= 20; ++p) {
      double score = 0;
      for (uint32_t i = 0; i < 8; ++i)
        score += static_cast<double>(plain.q[i]) * plain.k[p * 8 + i];
      sum += std::exp(score * 0.35f);
    }
    const double share = 1 / (1 + std::exp(sink - std::log(sum)));
    for (uint32_t i = 0; i < 8; ++i) EXPECT_NEAR(sunk.out[i], plain.out[i] * share, 1e-6);
  }
}

TEST_P(KernelsTest, AttentionSurvivesHugeScores) {
  std::vector<float> q(4, 1e6f), keys(8, 1e6f), values = {1, 2, 3, 4, 5, 6, 7, 8}, scores(2),
                                                out(4);
  keys[4] = -1e6f;
  k.attend(
      {out.data(), q.data(), keys.data(), values.data(), 4, 2, 0, 1, 1.0f, nullptr, scores.data()});
  for (int i = 0; i < 4; ++i) EXPECT_EQ(out[i], values[i]);
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
