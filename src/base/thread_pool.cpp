#include "base/thread_pool.h"

#include <algorithm>
#include <atomic>
#include <condition_variable>
#include <mutex>
#include <system_error>
#include <thread>
#include <vector>

#include "base/check.h"

namespace wader {
namespace {

ThreadPool::Slice slice_of(int64_t count, int64_t grain, int workers, int worker) {
  const int64_t grains = (count + grain - 1) / grain;
  const int64_t begin = grains * worker / workers * grain;
  const int64_t end = std::min(grains * (worker + 1) / workers * grain, count);
  return {begin, end, worker};
}

}  // namespace

struct ThreadPool::Impl {
  explicit Impl(int size) : workers(size) {}

  void work(int worker) {
    uint64_t seen = 0;
    for (;;) {
      {
        std::unique_lock lock(mutex);
        wake.wait(lock, [&] { return stop || generation != seen; });
        if (stop) return;
        seen = generation;
      }
      run_slice(worker);
      if (pending.fetch_sub(1, std::memory_order_acq_rel) == 1) {
        std::lock_guard lock(mutex);
        done.notify_one();
      }
    }
  }

  void run_slice(int worker) {
    const Slice slice = slice_of(count, grain, workers, worker);
    if (slice.begin < slice.end) fn(context, slice);
  }

  int workers;  // the caller's thread and those that started
  std::vector<std::thread> threads;

  std::mutex mutex;  // protects generation, stop, and the job below while it is published
  std::condition_variable wake, done;
  uint64_t generation = 0;
  bool stop = false;
  int64_t count = 0, grain = 1;
  void (*fn)(void*, Slice) = nullptr;
  void* context = nullptr;
  std::atomic<int> pending = 0;
};

ThreadPool::ThreadPool(int threads) : impl_(std::make_unique<Impl>(threads)) {
  CHECK(threads >= 1);
  impl_->threads.reserve(static_cast<size_t>(threads - 1));
  for (int worker = 1; worker < threads; ++worker) {
    try {
      impl_->threads.emplace_back([this, worker] { impl_->work(worker); });
    } catch (const std::system_error&) {  // the standard library's only way to say it
      impl_->workers = worker;
      break;
    }
  }
}

ThreadPool::~ThreadPool() {
  {
    std::lock_guard lock(impl_->mutex);
    impl_->stop = true;
  }
  impl_->wake.notify_all();
  for (std::thread& thread : impl_->threads) thread.join();
}

int ThreadPool::size() const {
  return impl_->workers;
}

void ThreadPool::run(int64_t count, int64_t grain, void (*fn)(void*, Slice), void* context) {
  CHECK(count >= 0 && grain >= 1);
  if (count == 0) return;
  if (impl_->workers == 1 || count <= grain) {
    fn(context, {0, count, 0});
    return;
  }
  {
    std::lock_guard lock(impl_->mutex);
    impl_->count = count;
    impl_->grain = grain;
    impl_->fn = fn;
    impl_->context = context;
    impl_->pending.store(impl_->workers - 1, std::memory_order_relaxed);
    ++impl_->generation;
  }
  impl_->wake.notify_all();
  impl_->run_slice(0);
  std::unique_lock lock(impl_->mutex);
  impl_->done.wait(lock, [&] { return impl_->pending.load(std::memory_order_acquire) == 0; });
}

}  // namespace wader
