#include "experts/use_history.h"

#include <algorithm>
#include <cmath>

#include "base/check.h"

namespace wader {
namespace {

// A window of a quarter of the experts in uses: E / 4k tokens. Longer ones follow a drift worse.
constexpr double kWindowUsesPerExpert = 0.25;
// Longer windows are passes over a prompt, which say little of the next tokens.
constexpr double kLongestWindow = 16;
// What a round of windows, one of each layer, leaves of the older ones' weight.
constexpr double kKeptPerRound = 0.97;
// Weights before anything was learnt; they favour the middle, whose worst case is mildest.
constexpr std::array<double, UseHistory::kSpans> kFirstWeights = {0.1, 0.25, 0.35, 0.2, 0.1};
// How strongly weights are held to the first ones, relative to the mean square of the shares.
constexpr double kRidge = 1e-3;
// A pass over a long prompt would fade a short span to nothing; it keeps what it has, as a
// millionth beside a new token.
constexpr double kMostFading = 1 << 20;
constexpr double kMostGrowth = 1ull << 40;  // in float range with 2^20 uses a pass above it
constexpr double kNothing = 1e-30;          // below it a value would soon be denormal
constexpr double kMostWholeUses = 1 << 22;  // a float counts each of them

}  // namespace

UseHistory::UseHistory(uint32_t layers, uint32_t experts)
    : layers_(layers),
      experts_(experts),
      experts_per_token_(std::max(1.0, experts / 8.0)),
      layer_(layers),
      values_(static_cast<size_t>(layers) * experts),
      shares_before_(values_.size()),
      window_uses_(values_.size(), 0),
      pass_of_(values_.size(), 0),
      weights_(kFirstWeights) {
  for (Layer& layer : layer_) layer.growth.fill(1.0);
}

void UseHistory::count(uint32_t layer, uint32_t expert, uint32_t uses) {
  CHECK(layer < layers_ && expert < experts_ && uses > 0);
  const size_t key = static_cast<size_t>(layer) * experts_ + expert;
  Layer& l = layer_[layer];
  if (!counted_ || layer != last_layer_ || pass_of_[key] == l.passes) begin_pass(layer);
  last_layer_ = layer;
  counted_ = true;
  pass_of_[key] = l.passes;
  for (uint32_t s = 0; s < kSpans; ++s) {
    const double before = values_[key][s];
    values_[key][s] = static_cast<float>(before + uses * l.growth[s]);
    l.sum[s] += values_[key][s] - before;
  }
  rescale(l);
  l.pass_uses += uses;
  l.window_uses += uses;
  window_uses_[key] += uses;
}

// Closes the layer's last pass: its uses are of the past from here on.
void UseHistory::begin_pass(uint32_t layer) {
  Layer& l = layer_[layer];
  if (l.pass_uses > 0) {
    const auto uses = static_cast<double>(l.pass_uses);
    experts_per_token_ = std::min(experts_per_token_, uses);
    for (uint32_t s = 0; s < kWholeSpan; ++s) {
      l.growth[s] *= std::min(std::exp2(uses / (kHalfLives[s] * experts_)), kMostFading);
      if (l.growth[s] > kMostGrowth) rebase(layer, s, l.growth[s]);
    }
    if (l.sum[kWholeSpan] > kMostWholeUses) {
      rebase(layer, kWholeSpan, 2);
      l.growth[kWholeSpan] = 1;
    }
    rescale(l);
  }
  if (l.passes == 0 || static_cast<double>(l.window_uses) >= kWindowUsesPerExpert * experts_) {
    if (l.passes > 0) learn(layer);
    open_window(layer);
  }
  ++l.passes;
  l.pass_uses = 0;
}

void UseHistory::rebase(uint32_t layer, uint32_t span, double by) {
  Layer& l = layer_[layer];
  l.growth[span] /= by;
  l.sum[span] = 0;
  for (uint32_t e = 0; e < experts_; ++e) {
    float& value = values_[static_cast<size_t>(layer) * experts_ + e][span];
    value = static_cast<float>(value / by);
    if (value < kNothing) value = 0;
    l.sum[span] += value;
  }
}

void UseHistory::rescale(Layer& layer) {
  for (uint32_t s = 0; s < kSpans; ++s)
    layer.scale[s] = layer.sum[s] > 0 ? weights_[s] / layer.sum[s] : 0;
}

double UseHistory::share(size_t key, uint32_t span) const {
  const double sum = layer_[key / experts_].sum[span];
  return sum > 0 ? values_[key][span] / sum : 0;
}

double UseHistory::predicted_share(size_t key) const {
  const Layer& layer = layer_[key / experts_];
  double share = 0;
  for (uint32_t s = 0; s < kSpans; ++s) share += layer.scale[s] * values_[key][s];
  return share;
}

double UseHistory::expected_wait(size_t key) const {
  constexpr double kNever = 1e9;
  const double per_token = predicted_share(key) * experts_per_token_;
  const auto layer = static_cast<uint32_t>(key / experts_);
  const uint32_t ahead = layer > last_layer_ ? layer - last_layer_ : layer + layers_ - last_layer_;
  const double tokens = per_token > 1 / kNever ? 1 / per_token : kNever;
  return tokens + static_cast<double>(ahead) / layers_;
}

void UseHistory::open_window(uint32_t layer) {
  const size_t first = static_cast<size_t>(layer) * experts_;
  for (size_t key = first; key < first + experts_; ++key) {
    for (uint32_t s = 0; s < kSpans; ++s)
      shares_before_[key][s] = static_cast<float>(share(key, s));
    window_uses_[key] = 0;
  }
  layer_[layer].window_uses = 0;
}

// The window that ends is an example: the shares before it, and the shares of its uses.
void UseHistory::learn(uint32_t layer) {
  const auto uses = static_cast<double>(layer_[layer].window_uses);
  if (uses > kLongestWindow * kWindowUsesPerExpert * experts_) return;
  const size_t first = static_cast<size_t>(layer) * experts_;
  for (size_t key = first; key < first + experts_; ++key) {
    const double target = window_uses_[key] / uses;
    const Values& x = shares_before_[key];
    for (uint32_t i = 0; i < kSpans; ++i) {
      targets_[i] += x[i] * target;
      for (uint32_t j = 0; j < kSpans; ++j) products_[i][j] += static_cast<double>(x[i]) * x[j];
    }
  }
  if (++windows_ % layers_ == 0) fit();
}

// Non-negative least squares by coordinate descent: convex, and five unknowns settle in a few
// rounds.
void UseHistory::fit() {
  double mean_square = 0;
  for (uint32_t i = 0; i < kSpans; ++i) mean_square += products_[i][i] / kSpans;
  if (mean_square <= 0) return;
  const double ridge = kRidge * mean_square;
  for (int round = 0; round < 30; ++round)
    for (uint32_t i = 0; i < kSpans; ++i) {
      double rest = targets_[i] + ridge * kFirstWeights[i];
      for (uint32_t j = 0; j < kSpans; ++j)
        if (j != i) rest -= products_[i][j] * weights_[j];
      weights_[i] = std::max(0.0, rest / (products_[i][i] + ridge));
    }
  for (Layer& layer : layer_) rescale(layer);
  for (uint32_t i = 0; i < kSpans; ++i) {
    targets_[i] *= kKeptPerRound;
    for (double& product : products_[i]) product *= kKeptPerRound;
  }
}

std::vector<float> UseHistory::whole_past() const {
  std::vector<float> shares(values_.size());
  for (size_t key = 0; key < shares.size(); ++key)
    shares[key] = static_cast<float>(share(key, kWholeSpan));
  return shares;
}

void UseHistory::begin_with(std::span<const float> shares) {
  CHECK(!counted_ && shares.size() == values_.size());
  for (uint32_t layer = 0; layer < layers_; ++layer) {
    Layer& l = layer_[layer];
    const auto of_layer = shares.subspan(static_cast<size_t>(layer) * experts_, experts_);
    double sum = 0;
    for (const float share : of_layer) sum += share;
    if (sum <= 0) continue;
    l.sum[kWholeSpan] = 0;
    for (uint32_t e = 0; e < experts_; ++e) {
      float& value = values_[static_cast<size_t>(layer) * experts_ + e][kWholeSpan];
      value = static_cast<float>(of_layer[e] / sum * kPriorUsesPerExpert * experts_);
      l.sum[kWholeSpan] += value;
    }
    rescale(l);
  }
}

}  // namespace wader
