// The faults of a FaultPlan, one decision after the other. For the back ends' tests.
#pragma once

#include <cerrno>
#include <random>

#include "io/read_queue.h"

namespace wader {

class FaultInjector {
 public:
  explicit FaultInjector(const FaultPlan& plan) : plan_(plan), rng_(plan.seed) {}

  uint64_t random() { return rng_(); }
  // 0, or the errno with which this step of the read fails instead. A transient EIO never strikes
  // a step that is being tried again.
  int failure(const ReadAttempt& attempt) {
    const bool broken =
        plan_.eio_always && attempt.offset_bytes() + attempt.bytes_left() > plan_.eio_offset;
    if (broken || (!attempt.retried && happens(plan_.eio))) return EIO;
    return happens(plan_.interrupt) ? EINTR : 0;
  }
  // How much of `bytes` this step reads: all, or a part. Unbuffered reads end on whole blocks.
  uint64_t part_of(uint64_t bytes, bool direct) {
    const uint64_t step = direct ? kDirectAlignment : 1;
    if (bytes <= step || !happens(plan_.short_read)) return bytes;
    return step * (1 + rng_() % (bytes / step));
  }

 private:
  bool happens(double probability) {
    return probability > 0 && std::uniform_real_distribution<>(0, 1)(rng_) < probability;
  }

  const FaultPlan plan_;
  std::mt19937_64 rng_;
};

}  // namespace wader
