#include "io/read_queue.h"

#include <fcntl.h>
#include <sys/stat.h>
#include <unistd.h>

#include <algorithm>
#include <condition_variable>
#include <cstring>
#include <mutex>
#include <random>
#include <system_error>
#include <thread>
#include <vector>

#include "base/check.h"
#include "base/error.h"
#include "io/aligned_buffer.h"

namespace wader {
namespace {

// Fixed-size first-in first-out ring: the queues below never allocate while they run.
template <typename T>
class Ring {
 public:
  explicit Ring(size_t capacity) : items_(capacity) {}
  size_t size() const { return size_; }
  void push(const T& item) {
    CHECK(size_ < items_.size());
    at(size_++) = item;
  }
  // Drops the first item for which `pred` holds; the others keep their order.
  template <typename Pred>
  bool remove_first(Pred&& pred) {
    for (size_t i = 0; i < size_; ++i) {
      if (!pred(at(i))) continue;
      for (; i + 1 < size_; ++i) at(i) = at(i + 1);
      --size_;
      return true;
    }
    return false;
  }
  T pop() {
    CHECK(size_ > 0);
    const T item = items_[head_];
    head_ = (head_ + 1) % items_.size();
    --size_;
    return item;
  }

 private:
  T& at(size_t i) { return items_[(head_ + i) % items_.size()]; }
  std::vector<T> items_;
  size_t head_ = 0, size_ = 0;
};

class ThreadReadQueue final : public ReadQueue {
 public:
  ThreadReadQueue(uint32_t threads, uint32_t capacity)
      : capacity_(capacity), demand_(capacity), ahead_(capacity), completions_(capacity) {
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
      Ring<ReadRequest>& queue = read_class == ReadClass::demand ? demand_ : ahead_;
      for (const ReadRequest& request : requests) queue.push(request);
    }
    in_flight_ += static_cast<uint32_t>(requests.size());
    if (requests.size() == 1)
      wake_workers_.notify_one();
    else
      wake_workers_.notify_all();
  }

  bool withdraw(uint64_t tag) override {
    const auto is_it = [tag](const ReadRequest& request) { return request.tag == tag; };
    std::lock_guard lock(mutex_);
    if (!ahead_.remove_first(is_it) && !demand_.remove_first(is_it)) return false;
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
    wake_owner_.wait(lock, [this] { return completions_.size() > 0; });
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
      wake_workers_.wait(lock, [this] { return stop_ || demand_.size() + ahead_.size() > 0; });
      if (stop_) return;
      const ReadRequest request = demand_.size() > 0 ? demand_.pop() : ahead_.pop();
      lock.unlock();
      const ReadCompletion completion = read_with_retries(request, ::pread);
      lock.lock();
      completions_.push(completion);
      wake_owner_.notify_one();
    }
  }

  const uint32_t capacity_;
  uint32_t in_flight_ = 0;  // the owner's count
  std::vector<std::thread> threads_;

  std::mutex mutex_;  // protects the rings and stop_
  std::condition_variable wake_workers_, wake_owner_;
  Ring<ReadRequest> demand_, ahead_;  // not started
  Ring<ReadCompletion> completions_;
  bool stop_ = false;
};

class FakeReadQueue final : public ReadQueue {
 public:
  FakeReadQueue(const FaultPlan& plan, uint32_t capacity)
      : plan_(plan), capacity_(capacity), rng_(plan.seed) {
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
    if (it == pending_.end() || rng_() % 2 == 0) return false;  // half of them have "started"
    pending_.erase(it);
    return true;
  }

  // Now and then one is complete.
  size_t poll(std::span<ReadCompletion> completions) override {
    return rng_() % 2 == 0 ? 0 : wait(completions);
  }

  size_t wait(std::span<ReadCompletion> completions) override {
    if (pending_.empty() || completions.empty()) return 0;
    std::swap(pending_[rng_() % pending_.size()], pending_.back());
    const ReadRequest request = pending_.back();
    pending_.pop_back();
    completions[0] =
        read_with_retries(request, [this](int fd, void* into, size_t count, off_t offset) {
          return pread(fd, into, count, offset);
        });
    return 1;
  }

 private:
  bool happens(double probability) {
    return std::uniform_real_distribution<>(0, 1)(rng_) < probability;
  }

  ssize_t pread(int fd, void* into, size_t count, off_t offset) {
    const bool broken =
        plan_.eio_always && static_cast<uint64_t>(offset) + count > plan_.eio_offset;
    if (broken || (!failed_last_ && happens(plan_.eio))) {
      failed_last_ = true;
      errno = EIO;
      return -1;
    }
    if (happens(plan_.interrupt)) {
      errno = EINTR;
      return -1;
    }
    failed_last_ = false;
    // Unbuffered reads end on whole blocks.
    const size_t step = fcntl(fd, F_GETFL) & O_DIRECT ? kDirectAlignment : 1;
    if (count > step && happens(plan_.short_read)) count = step * (1 + rng_() % (count / step));
    return ::pread(fd, into, count, offset);
  }

  const FaultPlan plan_;
  const uint32_t capacity_;
  std::mt19937_64 rng_;
  bool failed_last_ = false;  // a transient EIO never strikes twice in a row
  std::vector<ReadRequest> pending_;
};

}  // namespace

std::unique_ptr<ReadQueue> make_thread_read_queue(uint32_t threads, uint32_t capacity) {
  CHECK(threads >= 1 && capacity >= 1);
  auto queue = std::make_unique<ThreadReadQueue>(threads, capacity);
  if (queue->thread_count() == 0) return nullptr;
  return queue;
}

std::unique_ptr<ReadQueue> make_fake_read_queue(const FaultPlan& plan, uint32_t capacity) {
  return std::make_unique<FakeReadQueue>(plan, capacity);
}

bool direct_reads_work(const std::string& path) {
  auto direct = File::open(path, File::Mode::read_direct);
  auto buffered = File::open(path, File::Mode::read);
  auto memory = AlignedBuffer::allocate(2 * kDirectAlignment);
  if (!direct.ok() || !buffered.ok() || !memory.ok()) return false;
  const auto first = memory->span().first(kDirectAlignment);
  const auto second = memory->span().subspan(kDirectAlignment, kDirectAlignment);
  return direct->read_at(0, first).ok() && buffered->read_at(0, second).ok() &&
         std::memcmp(first.data(), second.data(), kDirectAlignment) == 0;
}

Error read_error(const ReadCompletion& completion, const Extent& from) {
  if (completion.errno_value != 0)
    return errno_error(completion.errno_value,
                       fmt::format("{}: reading {} bytes at byte {}", from.file->path(), from.bytes,
                                   from.offset_bytes));
  return corrupt_error("{}: ends at byte {}, {} bytes short of what should stand there",
                       from.file->path(), from.offset_bytes + completion.bytes_read,
                       from.bytes - completion.bytes_read);
}

}  // namespace wader
