// ProgressMeter: counts bytes and calls a ProgressFn at most once a MiB and at the end of each
// phase.
#pragma once

#include <string>
#include <string_view>

#include "base/error.h"
#include "base/progress.h"
#include "base/units.h"

namespace wader {

class ProgressMeter {
 public:
  // `fn` may be empty and must outlive the meter. `stopped` is the message of the error when it
  // says no.
  ProgressMeter(const ProgressFn& fn, uint64_t total_bytes, std::string stopped)
      : fn_(fn), total_bytes_(total_bytes), stopped_(std::move(stopped)) {}

  // cancelled when the callback returned false.
  Status advance(std::string_view phase, uint64_t bytes) {
    done_bytes_ += bytes;
    if (done_bytes_ - reported_bytes_ < kMiB && done_bytes_ < total_bytes_) return {};
    return report(phase);
  }

  Status report(std::string_view phase) {
    reported_bytes_ = done_bytes_;
    if (fn_ && !fn_({phase, done_bytes_, total_bytes_})) return cancelled_error("{}", stopped_);
    return {};
  }

  // For one who waits: asks whether to go on, with what it waits for.
  bool wait(std::string_view phase, std::string_view note) const {
    return !fn_ || fn_({phase, done_bytes_, total_bytes_, note});
  }

  // Work found done already, or padding that nobody counted.
  void set_done(uint64_t bytes) { done_bytes_ = reported_bytes_ = bytes; }

  uint64_t done_bytes() const { return done_bytes_; }

 private:
  const ProgressFn& fn_;
  uint64_t total_bytes_;
  std::string stopped_;
  uint64_t done_bytes_ = 0, reported_bytes_ = 0;
};

}  // namespace wader
