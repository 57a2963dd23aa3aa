// UseHistory: how often each expert was used over several spans of the past, and what that says of
// its next use. Pure bookkeeping; all memory is taken at construction, 52 bytes an expert.
//
// A span is a memory that fades: a use weighs half as much after a number of further uses of its
// layer. Spans are counted in uses of a layer, as multiples of its experts, so that they fit any
// model: with E experts and k a token, E uses are E / k tokens. No fixed span is right: where
// popularity stands still the longest is, where the topic drifts a short one. So an expert's share
// of the next uses is predicted as a weighted sum of its shares in all spans, and the weights are
// fitted, by least squares, to what was used next (least-squares combination of forecasts: Bates
// and Granger 1969, Granger and Ramanathan 1984).
#pragma once

#include <array>
#include <cstdint>
#include <span>
#include <vector>

namespace wader {

class UseHistory {
 public:
  static constexpr uint32_t kSpans = 5;
  // Half-lives, in multiples of the experts of a layer; the last span forgets nothing.
  static constexpr std::array<double, kSpans - 1> kHalfLives = {0.25, 1, 4, 16};
  static constexpr uint32_t kMiddleSpan = 2, kWholeSpan = kSpans - 1;

  UseHistory(uint32_t layers, uint32_t experts);

  // `uses` > 0 tokens of a pass want the expert. The counts of one layer that follow each other,
  // each expert once, are one pass: none of them is later than another.
  void count(uint32_t layer, uint32_t expert, uint32_t uses);

  // Of the uses that a span remembers of the key's layer, the share that was the key's; 0 where it
  // remembers nothing.
  double share(size_t key, uint32_t span) const;
  // Predicted share of the key in its layer's next uses.
  double predicted_share(size_t key) const;
  // Expected tokens until the key's next use, seen from the layer that was counted last: layers
  // come in a fixed order, so that of two equals the one whose layer has just passed waits longer.
  double expected_wait(size_t key) const;
  // How the spans are weighed, as fitted so far.
  std::span<const double, kSpans> weights() const { return weights_; }

  // The whole past as (layers, experts) shares, and such a past taken as this one's beginning,
  // worth kPriorUsesPerExpert uses an expert. Call it before anything is counted; values are
  // finite, ≥ 0.
  static constexpr double kPriorUsesPerExpert = 16;
  bool has_counted() const { return counted_; }
  std::vector<float> whole_past() const;
  void begin_with(std::span<const float> shares);

 private:
  struct Layer {
    std::array<double, kSpans> growth{};  // weight of a use now; old uses shrink beside it
    std::array<double, kSpans> sum{};     // of the values
    std::array<double, kSpans> scale{};   // weight ÷ sum, 0 where that is 0
    uint64_t passes = 0;                  // begun
    uint64_t pass_uses = 0;               // of the pass that is open
    uint64_t window_uses = 0;             // since shares_before_ was taken
  };
  using Values = std::array<float, kSpans>;

  void begin_pass(uint32_t layer);
  void rebase(uint32_t layer, uint32_t span, double by);
  void rescale(Layer& layer);
  void open_window(uint32_t layer);
  void learn(uint32_t layer);
  void fit();

  const uint32_t layers_, experts_;
  uint32_t last_layer_ = 0;
  bool counted_ = false;
  double experts_per_token_;  // the least uses a pass had
  std::vector<Layer> layer_;
  std::vector<Values> values_;         // by key
  std::vector<Values> shares_before_;  // by key, where the open window began
  std::vector<uint32_t> window_uses_;  // by key
  std::vector<uint64_t> pass_of_;      // by key, its layer's pass that counted it last
  std::array<double, kSpans> weights_;
  // Normal equations, with older windows fading.
  std::array<std::array<double, kSpans>, kSpans> products_{};
  std::array<double, kSpans> targets_{};
  uint64_t windows_ = 0;
};

}  // namespace wader
