// Gated DeltaNet's block form against the textbook's recurrence, in double precision.
#include <gtest/gtest.h>

#include <algorithm>
#include <cmath>
#include <random>
#include <vector>

#include "kernels/ops.h"

namespace wader {
namespace {

// Inputs of one head at every position, with the sizes that a trained model has: keys and queries
// of length one, decays from almost none to almost all.
struct Inputs {
  uint32_t key_dim, value_dim, length;
  std::vector<float> q, k, v, g, beta;
};

Inputs random_inputs(uint32_t key_dim, uint32_t value_dim, uint32_t length, uint32_t seed,
                     float strongest_decay) {
  std::mt19937 rng(seed);
  std::normal_distribution<float> normal;
  std::uniform_real_distribution<float> uniform;
  Inputs in{key_dim, value_dim, length, {}, {}, {}, {}, {}};
  const auto unit = [&](std::vector<float>& to, float scale) {
    std::vector<float> x(key_dim);
    float sum = 0;
    for (float& value : x) value = normal(rng), sum += value * value;
    for (float value : x) to.push_back(value / std::sqrt(sum) * scale);
  };
  for (uint32_t t = 0; t < length; ++t) {
    unit(in.q, 1.0f / std::sqrt(static_cast<float>(key_dim)));
    unit(in.k, 1.0f);
    for (uint32_t d = 0; d < value_dim; ++d) in.v.push_back(normal(rng));
    in.g.push_back(-strongest_decay * uniform(rng) * uniform(rng) * uniform(rng));
    in.beta.push_back(uniform(rng));
  }
  return in;
}

// S ← e^g S; m = Sᵀk; δ = β (v − m); S ← S + k δᵀ; y = Sᵀq.
std::vector<double> textbook(const Inputs& in) {
  std::vector<double> s(in.key_dim * in.value_dim), y;
  for (uint32_t t = 0; t < in.length; ++t) {
    const float* k = &in.k[t * in.key_dim];
    const float* q = &in.q[t * in.key_dim];
    for (double& value : s) value *= std::exp(static_cast<double>(in.g[t]));
    for (uint32_t d = 0; d < in.value_dim; ++d) {
      double m = 0;
      for (uint32_t c = 0; c < in.key_dim; ++c) m += s[c * in.value_dim + d] * k[c];
      const double delta = in.beta[t] * (in.v[t * in.value_dim + d] - m);
      double out = 0;
      for (uint32_t c = 0; c < in.key_dim; ++c) {
        s[c * in.value_dim + d] += k[c] * delta;
        out += s[c * in.value_dim + d] * q[c];
      }
      y.push_back(out);
    }
  }
  return y;
}

// The same by blocks, `chunk` positions at a time, as a pass of the model goes.
class Head {
 public:
  Head(const Kernels& kernels, const Inputs& in)
      : kernels_(kernels),
        in_(in),
        state(in.key_dim * in.value_dim),
        keys(kDeltaBlock * in.key_dim),
        log_decay(kDeltaBlock),
        deltas(kDeltaBlock * in.value_dim) {}

  void run(uint32_t chunk) {
    while (position < in_.length) {
      const uint32_t until = std::min(in_.length, position + chunk);
      while (position < until) block(std::min(until, (position / kDeltaBlock + 1) * kDeltaBlock));
    }
  }

  uint32_t position = 0;

 private:
  void block(uint32_t end) {
    const uint32_t place = position % kDeltaBlock, count = end - position;
    if (place == 0 && position > 0)
      kernels_.delta_fold(
          {in_.key_dim, in_.value_dim, state.data(), keys.data(), log_decay.data(), deltas.data()});
    for (uint32_t i = 0; i < count; ++i) {
      std::copy_n(&in_.k[(position + i) * in_.key_dim], in_.key_dim,
                  &keys[(place + i) * in_.key_dim]);
      const double before = place + i == 0 ? 0.0 : log_decay[place + i - 1];
      log_decay[place + i] = before + std::max(in_.g[position + i], kDeltaStrongestDecay);
    }
    y.resize(y.size() + count * in_.value_dim);
    kernels_.delta_block({.key_dim = in_.key_dim,
                          .value_dim = in_.value_dim,
                          .begin = place,
                          .end = place + count,
                          .state = state.data(),
                          .keys = keys.data(),
                          .log_decay = log_decay.data(),
                          .deltas = deltas.data(),
                          .q = &in_.q[position * in_.key_dim],
                          .q_stride = in_.key_dim,
                          .v = &in_.v[position * in_.value_dim],
                          .v_stride = in_.value_dim,
                          .beta = &in_.beta[position],
                          .beta_stride = 1,
                          .y = &y[position * in_.value_dim],
                          .y_stride = in_.value_dim});
    position = end;
  }

  const Kernels& kernels_;
  const Inputs& in_;

 public:
  std::vector<float> state, keys;
  std::vector<double> log_decay;
  std::vector<float> deltas, y;
};

double largest_difference(const std::vector<float>& a, const std::vector<double>& b, size_t from,
                          size_t to) {
  double largest = 0;
  for (size_t i = from; i < to; ++i) largest = std::max(largest, std::fabs(a[i] - b[i]));
  return largest;
}

class DeltaTest : public ::testing::TestWithParam<const Kernels*> {
 protected:
  const Kernels& k = *GetParam();
};
INSTANTIATE_TEST_SUITE_P(All, DeltaTest, ::testing::ValuesIn(available_kernels()),
                         [](const auto& back_end) { return std::string(back_end.param->name); });

// Case C-08. The bound does not grow with length: it holds for the last positions of a long
// sequence as for the first.
TEST_P(DeltaTest, EqualsTheRecurrenceAtEveryLength) {
  for (const float strongest_decay : {0.01f, 1.0f, 100.0f}) {
    const Inputs in = random_inputs(32, 32, 5000, 7, strongest_decay);
    Head head(k, in);
    head.run(128);
    const auto want = textbook(in);
    ASSERT_EQ(head.y.size(), want.size());
    const size_t row = in.value_dim;
    EXPECT_LE(largest_difference(head.y, want, 0, 200 * row), 1e-5) << strongest_decay;
    EXPECT_LE(largest_difference(head.y, want, 200 * row, want.size()), 1e-5) << strongest_decay;
    EXPECT_LE(largest_difference(head.y, want, want.size() - 200 * row, want.size()), 1e-5);
  }
}

TEST_P(DeltaTest, ReleasedHeadSize) {
  const Inputs in = random_inputs(128, 128, 300, 8, 0.3f);
  Head head(k, in);
  head.run(128);
  EXPECT_LE(largest_difference(head.y, textbook(in), 0, head.y.size()), 1e-5);
}

// Case C-08: one by one, whole, and every split between, to the bit.
TEST_P(DeltaTest, ChunkSizeNeverChangesABit) {
  const Inputs in = random_inputs(16, 24, 261, 9, 0.5f);
  Head whole(k, in);
  whole.run(in.length);
  for (uint32_t chunk = 1; chunk <= 130; ++chunk) {
    Head head(k, in);
    head.run(chunk);
    EXPECT_EQ(head.y, whole.y) << chunk;
    EXPECT_EQ(head.state, whole.state) << chunk;
  }
}

TEST_P(DeltaTest, FullForgettingLeavesNoNaN) {
  Inputs in = random_inputs(16, 16, 100, 10, 1.0f);
  for (uint32_t t = 0; t < in.length; t += 7) in.g[t] = -1e30f;
  Head head(k, in);
  head.run(128);
  EXPECT_LE(largest_difference(head.y, textbook(in), 0, head.y.size()), 1e-5);
}

}  // namespace
}  // namespace wader
