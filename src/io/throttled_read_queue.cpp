#include <fmt/format.h>

#include <algorithm>
#include <chrono>
#include <thread>

#include "base/check.h"
#include "io/fifo.h"
#include "io/read_queue.h"
#include "io/request_lists.h"

namespace wader {
namespace {

using Clock = std::chrono::steady_clock;

class ThrottledReadQueue final : public ReadQueue {
 public:
  ThrottledReadQueue(double bytes_per_second, double latency_seconds, uint32_t capacity)
      : bytes_per_second_(bytes_per_second),
        latency_seconds_(latency_seconds),
        capacity_(capacity),
        requests_(capacity),
        completions_(capacity) {}

  uint32_t capacity() const override { return capacity_; }
  uint32_t in_flight() const override { return in_flight_; }
  std::string description() const override {
    return fmt::format("a modelled disk of {:.0f} MB/s", bytes_per_second_ / 1e6);
  }

  void submit(std::span<const ReadRequest> requests, ReadClass read_class) override {
    CHECK(in_flight_ + requests.size() <= capacity_);
    const Clock::time_point now = advance();
    for (const ReadRequest& request : requests) requests_.push(request, read_class);
    in_flight_ += static_cast<uint32_t>(requests.size());
    if (!busy_) start_next(now);
  }

  bool withdraw(uint64_t tag) override {
    advance();
    if (!requests_.remove(tag)) return false;
    --in_flight_;
    return true;
  }

  size_t poll(std::span<ReadCompletion> completions) override {
    advance();
    const size_t n = std::min(completions.size(), completions_.size());
    for (size_t i = 0; i < n; ++i) completions[i] = completions_.pop();
    in_flight_ -= static_cast<uint32_t>(n);
    return n;
  }

  size_t wait(std::span<ReadCompletion> completions) override {
    if (in_flight_ == 0) return 0;
    advance();
    if (completions_.empty()) std::this_thread::sleep_until(finish_);
    return poll(completions);
  }

 private:
  // Everything that the modelled disk has done until now. Every call of the owner begins with it,
  // so what a read that ended in the past was followed by is what stood queued then.
  Clock::time_point advance() {
    const Clock::time_point now = Clock::now();
    while (busy_ && finish_ <= now) {
      completions_.push(read_blocking(current_));
      start_next(finish_);
    }
    return now;
  }

  void start_next(Clock::time_point start) {
    busy_ = !requests_.empty();
    if (!busy_) return;
    current_ = requests_.pop();
    const std::chrono::duration<double> takes(
        latency_seconds_ + static_cast<double>(current_.from.bytes) / bytes_per_second_);
    finish_ = start + std::chrono::ceil<Clock::duration>(takes);
  }

  const double bytes_per_second_, latency_seconds_;
  const uint32_t capacity_;
  uint32_t in_flight_ = 0;
  RequestLists requests_;  // not started
  ReadRequest current_ = {};
  Clock::time_point finish_ = {};
  bool busy_ = false;  // with current_, until finish_
  Fifo<ReadCompletion> completions_;
};

}  // namespace

std::unique_ptr<ReadQueue> make_throttled_read_queue(double bytes_per_second,
                                                     double latency_seconds, uint32_t capacity) {
  CHECK(bytes_per_second > 0 && latency_seconds >= 0 && capacity >= 1);
  return std::make_unique<ThrottledReadQueue>(bytes_per_second, latency_seconds, capacity);
}

}  // namespace wader
