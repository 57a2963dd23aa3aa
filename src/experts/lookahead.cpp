#include "experts/lookahead.h"

#include <algorithm>

#include "base/error.h"

namespace wader {
namespace {

// Tokens until a running lookahead is judged again, and of a trial. A trial that loses 5 % over 8
// tokens and is followed by 128 without costs 0.3 %.
constexpr uint32_t kWindowPasses = 32;
constexpr uint32_t kTrialPasses = 8;
constexpr uint32_t kShortestPause = 128, kLongestPause = 4096;
constexpr double kWorthwhileShare = 0.001;  // of the time
constexpr double kWaitingShare = 0.01;      // below it there is nothing to hide

}  // namespace

Result<LookaheadMode> lookahead_mode_from_name(std::string_view name) {
  if (name == "off") return LookaheadMode::off;
  if (name == "on") return LookaheadMode::on;
  if (name == "auto") return LookaheadMode::automatic;
  return invalid_argument_error("--lookahead must be on, off or auto, not '{}'", name);
}

void LookaheadGate::end_pass(const LookaheadPass& pass) {
  if (mode_ != LookaheadMode::automatic) return;
  window_.pass_seconds += pass.pass_seconds;
  window_.wait_seconds += pass.wait_seconds;
  window_.predict_seconds += pass.predict_seconds;
  window_.hidden_seconds += pass.hidden_seconds;
  window_.delay_seconds += pass.delay_seconds;
  const uint32_t wanted = !active_             ? pause_passes_
                          : pause_passes_ == 0 ? kWindowPasses
                                               : kTrialPasses;
  if (++passes_ < wanted) return;
  judge();
  passes_ = 0;
  window_ = {};
}

void LookaheadGate::judge() {
  const bool waits = window_.wait_seconds > kWaitingShare * window_.pass_seconds;
  if (!active_) {
    active_ = waits;  // time for another trial, unless there is nothing to gain
    trials_ += waits;
    return;
  }
  const double gain = window_.hidden_seconds - window_.delay_seconds - window_.predict_seconds;
  if (gain > kWorthwhileShare * window_.pass_seconds) {
    pause_passes_ = 0;
    return;
  }
  active_ = false;
  pause_passes_ = std::clamp(2 * pause_passes_, kShortestPause, kLongestPause);
}

std::string LookaheadGate::description() const {
  if (mode_ != LookaheadMode::automatic) return mode_ == LookaheadMode::on ? "on" : "off";
  if (active_) return "auto: on";
  return fmt::format("auto: off, it did not pay in {} trial{}", trials_, trials_ == 1 ? "" : "s");
}

}  // namespace wader
