#include <fmt/format.h>

#include <algorithm>
#include <condition_variable>
#include <mutex>
#include <system_error>
#include <thread>
#include <vector>

#include "base/check.h"
#include "io/fifo.h"
#include "io/read_queue.h"
#include "io/request_lists.h"

namespace wader {
namespace {

class ThreadReadQueue final : public ReadQueue {
 public:
  ThreadReadQueue(uint32_t threads, uint32_t capacity)
      : capacity_(capacity), requests_(capacity), completions_(capacity) {
    threads_.reserve(threads);
    try {
      while (threads_.size() < threads) threads_.emplace_back([this] { work(); });
    } catch (const std::system_error&) {  // a process limit: it works with those it has
    }
  }

  ~ThreadReadQueue() override {
    {
      std::lock_guard lock(mutex_);
      stop_ = true;
    }
    wake_workers_.notify_all();
    for (std::thread& thread : threads_) thread.join();
  }

  size_t thread_count() const { return threads_.size(); }
  uint32_t capacity() const override { return capacity_; }
  uint32_t in_flight() const override { return in_flight_; }
  std::string description() const override {
    return fmt::format("{} pread threads", threads_.size());
  }

  void submit(std::span<const ReadRequest> requests, ReadClass read_class) override {
    CHECK(in_flight_ + requests.size() <= capacity_);
    {
      std::lock_guard lock(mutex_);
      for (const ReadRequest& request : requests) requests_.push(request, read_class);
    }
    in_flight_ += static_cast<uint32_t>(requests.size());
    if (requests.size() == 1)
      wake_workers_.notify_one();
    else
      wake_workers_.notify_all();
  }

  bool withdraw(uint64_t tag) override {
    std::lock_guard lock(mutex_);
    if (!requests_.remove(tag)) return false;
    --in_flight_;
    return true;
  }

  size_t poll(std::span<ReadCompletion> completions) override {
    std::lock_guard lock(mutex_);
    return take(completions);
  }

  size_t wait(std::span<ReadCompletion> completions) override {
    if (in_flight_ == 0) return 0;
    std::unique_lock lock(mutex_);
    wake_owner_.wait(lock, [this] { return !completions_.empty(); });
    return take(completions);
  }

 private:
  size_t take(std::span<ReadCompletion> completions) {
    const size_t n = std::min(completions.size(), completions_.size());
    for (size_t i = 0; i < n; ++i) completions[i] = completions_.pop();
    in_flight_ -= static_cast<uint32_t>(n);
    return n;
  }

  void work() {
    std::unique_lock lock(mutex_);
    for (;;) {
      // Requests still queued at the end are dropped: their owner is gone.
      wake_workers_.wait(lock, [this] { return stop_ || !requests_.empty(); });
      if (stop_) return;
      const ReadRequest request = requests_.pop();
      lock.unlock();
      const ReadCompletion completion = read_blocking(request);
      lock.lock();
      completions_.push(completion);
      wake_owner_.notify_one();
    }
  }

  const uint32_t capacity_;
  uint32_t in_flight_ = 0;  // the owner's count
  std::vector<std::thread> threads_;

  std::mutex mutex_;  // protects the lists and stop_
  std::condition_variable wake_workers_, wake_owner_;
  RequestLists requests_;  // not started
  Fifo<ReadCompletion> completions_;
  bool stop_ = false;
};

}  // namespace

std::unique_ptr<ReadQueue> make_thread_read_queue(uint32_t threads, uint32_t capacity) {
  CHECK(threads >= 1 && capacity >= 1);
  auto queue = std::make_unique<ThreadReadQueue>(threads, capacity);
  if (queue->thread_count() == 0) return nullptr;
  return queue;
}

}  // namespace wader
