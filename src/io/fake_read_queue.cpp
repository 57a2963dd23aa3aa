#include <unistd.h>

#include <algorithm>
#include <vector>

#include "base/check.h"
#include "io/fault_injector.h"
#include "io/read_queue.h"

namespace wader {
namespace {

class FakeReadQueue final : public ReadQueue {
 public:
  FakeReadQueue(const FaultPlan& plan, uint32_t capacity) : capacity_(capacity), faults_(plan) {
    pending_.reserve(capacity);
  }
  uint32_t capacity() const override { return capacity_; }
  uint32_t in_flight() const override { return static_cast<uint32_t>(pending_.size()); }
  std::string description() const override { return "fake reads"; }

  void submit(std::span<const ReadRequest> requests, ReadClass) override {
    CHECK(pending_.size() + requests.size() <= capacity_);
    pending_.insert(pending_.end(), requests.begin(), requests.end());
  }

  bool withdraw(uint64_t tag) override {
    const auto it = std::find_if(pending_.begin(), pending_.end(),
                                 [tag](const ReadRequest& r) { return r.tag == tag; });
    if (it == pending_.end() || faults_.random() % 2 == 0) return false;  // half have "started"
    pending_.erase(it);
    return true;
  }

  // Now and then one is complete.
  size_t poll(std::span<ReadCompletion> completions) override {
    return faults_.random() % 2 == 0 ? 0 : wait(completions);
  }

  size_t wait(std::span<ReadCompletion> completions) override {
    if (pending_.empty() || completions.empty()) return 0;
    std::swap(pending_[faults_.random() % pending_.size()], pending_.back());
    const ReadRequest request = pending_.back();
    pending_.pop_back();
    completions[0] = read(request);
    return 1;
  }

 private:
  ReadCompletion read(const ReadRequest& request) {
    ReadAttempt attempt{request};
    for (;;) {
      const int failure = faults_.failure(attempt);
      const uint64_t bytes = faults_.part_of(attempt.bytes_left(), request.from.file->is_direct());
      const ssize_t n = failure ? -failure
                                : ::pread(request.from.file->fd(), attempt.into(), bytes,
                                          static_cast<off_t>(attempt.offset_bytes()));
      const int64_t result = failure || n >= 0 ? n : -errno;
      if (const auto completion = attempt.take(result)) return *completion;
    }
  }

  const uint32_t capacity_;
  FaultInjector faults_;
  std::vector<ReadRequest> pending_;
};

}  // namespace

std::unique_ptr<ReadQueue> make_fake_read_queue(const FaultPlan& plan, uint32_t capacity) {
  return std::make_unique<FakeReadQueue>(plan, capacity);
}

}  // namespace wader
