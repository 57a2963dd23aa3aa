// Lookahead: the experts of the next layer guessed from the residual stream before that layer's own
// router has run, so that their reads fill time in which the disk would stand still. This decides
// whether that pays; ExpertCache::predict() does it. Pure: no clock, no
// I/O. Idea: Eliseev and Mazur, "Fast Inference of Mixture-of-Experts Language Models with
// Offloading" (2023), section 3.2.
#pragma once

#include <cstdint>
#include <string>
#include <string_view>

#include "base/result.h"

namespace wader {

enum class LookaheadMode : uint8_t { off, on, automatic };
Result<LookaheadMode> lookahead_mode_from_name(std::string_view name);  // off, on, auto

// What lookahead cost and gave in one decoding pass through all layers.
struct LookaheadPass {
  double pass_seconds = 0;     // the whole pass
  double wait_seconds = 0;     // of it, waiting for reads
  double predict_seconds = 0;  // computing predictions
  double hidden_seconds = 0;   // ExpertCounters::hidden_seconds of the pass
  double delay_seconds = 0;    // ExpertCounters::delay_seconds of the pass
};

class LookaheadGate {
 public:
  explicit LookaheadGate(LookaheadMode mode) : mode_(mode), active_(mode != LookaheadMode::off) {}

  // Whether the next decoding pass should predict. automatic: on for a trial, then as long as what
  // it hides exceeds what it costs by a thousandth of the time; off for longer after each trial in
  // a row that did not pay, and while nothing waits for the disk.
  bool active() const { return active_; }
  void end_pass(const LookaheadPass& pass);
  // "on", "off", "auto: on", "auto: off, it did not pay in 3 trials".
  std::string description() const;
  LookaheadMode mode() const { return mode_; }

 private:
  void judge();

  LookaheadMode mode_;
  bool active_;
  uint64_t trials_ = 1;
  uint32_t passes_ = 0;  // of the open window
  uint32_t pause_passes_ = 0;
  LookaheadPass window_;
};

}  // namespace wader
