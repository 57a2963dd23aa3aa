#include "base/thread_pool.h"

#include <algorithm>
#include <atomic>
#include <chrono>
#include <condition_variable>
#include <mutex>
#include <system_error>
#include <thread>
#include <vector>

#include "base/check.h"

#if defined(__x86_64__)
#include <immintrin.h>
#endif

namespace wader {
namespace {

using Clock = std::chrono::steady_clock;

// A layer's serial parts take a few µs, a token's sampling some hundred; waking a sleeper takes
// 40 µs. A read takes longer than all of them: then the threads should sleep.
constexpr auto kSpin = std::chrono::microseconds(60);
constexpr int kPausesBetweenLooks = 32;
// A worker's share in pieces, which the others take over where it is late: on a slower core, or
// not running at all.
constexpr int64_t kPiecesOfShare = 4;

void pause_cpu() {
#if defined(__x86_64__)
  _mm_pause();
#elif defined(__aarch64__)
  __asm__ volatile("yield");
#endif
}

// Waits for `done()` without a system call, for kSpin at most.
template <typename Done>
bool spin_until(Done&& done) {
  const auto begin = Clock::now();
  do {
    for (int i = 0; i < kPausesBetweenLooks; ++i) {
      if (done()) return true;
      pause_cpu();
    }
  } while (Clock::now() - begin < kSpin);
  return done();
}

// What is left of one worker's share of a job. A cache line each.
struct alignas(64) Share {
  std::atomic<int64_t> next{0};  // grain
  int64_t end = 0;               // grains
  int64_t piece = 1;             // grains
};

}  // namespace

// The gate: a job's number, whether it is open, and how many workers are inside. A worker enters an
// open job only, so the owner need not wait for one that sleeps or was not scheduled: it does that
// worker's share itself, closes the gate, and waits for those inside.
struct ThreadPool::Impl {
  static constexpr uint64_t kOpen = uint64_t{1} << 31, kJob = uint64_t{1} << 32;

  explicit Impl(int size) : workers(size), shares(static_cast<size_t>(size)) {}

  void work(int worker) {
    uint64_t seen = 0;
    const auto is_new = [&](uint64_t state) { return (state & kOpen) && state / kJob != seen; };
    while (!stop.load(std::memory_order_relaxed)) {
      uint64_t state = gate.load(std::memory_order_acquire);
      if (!is_new(state)) {
        seen = state / kJob;  // that job was this worker's, or went without it
        if (!spin_until([&] {
              state = gate.load(std::memory_order_acquire);
              return is_new(state) || stop.load(std::memory_order_relaxed);
            }))
          sleep_until_next(seen);
        continue;
      }
      if (!gate.compare_exchange_weak(state, state + 1, std::memory_order_acq_rel)) continue;
      seen = state / kJob;
      take_pieces(worker);
      gate.fetch_sub(1, std::memory_order_release);
    }
  }

  // Until a job after `seen` has begun. It may be over by the time this thread runs: then it spins
  // for the next, which is likely near.
  void sleep_until_next(uint64_t seen) {
    std::unique_lock lock(mutex);
    sleepers.fetch_add(1);  // before the look at the gate; the owner opens it, then looks here
    wake.wait(lock, [&] { return stop || gate.load() / kJob != seen; });
    sleepers.fetch_sub(1);
  }

  // The own share first, then what others have left.
  void take_pieces(int worker) {
    for (int i = 0; i < workers; ++i) {
      Share& share = shares[static_cast<size_t>((worker + i) % workers)];
      for (;;) {
        if (share.next.load(std::memory_order_relaxed) >= share.end) break;
        const int64_t first = share.next.fetch_add(share.piece, std::memory_order_relaxed);
        if (first >= share.end) break;
        const int64_t last = std::min(first + share.piece, share.end);
        fn(context, {first * grain, std::min(last * grain, count), worker});
      }
    }
  }

  void publish(int64_t new_count, int64_t new_grain, void (*new_fn)(void*, Slice), void* c) {
    count = new_count;
    grain = new_grain;
    fn = new_fn;
    context = c;
    const int64_t grains = (count + grain - 1) / grain;
    for (int w = 0; w < workers; ++w) {
      Share& share = shares[static_cast<size_t>(w)];
      const int64_t begin = grains * w / workers;
      share.end = grains * (w + 1) / workers;
      share.piece = std::max<int64_t>(1, (share.end - begin + kPiecesOfShare - 1) / kPiecesOfShare);
      share.next.store(begin, std::memory_order_relaxed);
    }
    gate.store((gate.load(std::memory_order_relaxed) / kJob + 1) * kJob | kOpen);
    if (sleepers.load() > 0) {
      std::lock_guard lock(mutex);
      wake.notify_all();
    }
  }

  void close_and_wait() {
    gate.fetch_and(~kOpen, std::memory_order_acq_rel);
    const auto is_empty = [&] { return gate.load(std::memory_order_acquire) % kOpen == 0; };
    // Beyond the spin someone inside is not running: give it this core.
    while (!spin_until(is_empty)) std::this_thread::yield();
  }

  int workers;  // the caller's thread and those that started
  std::vector<std::thread> threads;

  alignas(64) std::atomic<uint64_t> gate{0};
  std::atomic<int> sleepers{0};
  std::atomic<bool> stop{false};
  std::mutex mutex;  // of those who sleep
  std::condition_variable wake;

  // The job: written while the gate is closed and nobody inside.
  std::vector<Share> shares;
  int64_t count = 0, grain = 1;
  void (*fn)(void*, Slice) = nullptr;
  void* context = nullptr;
};

ThreadPool::ThreadPool(int threads) {
  CHECK(threads >= 1);
  impl_ = std::make_unique<Impl>(threads);
  impl_->threads.reserve(static_cast<size_t>(threads - 1));
  int started = 1;
  for (; started < threads; ++started) {
    try {
      impl_->threads.emplace_back([impl = impl_.get(), started] { impl->work(started); });
    } catch (const std::system_error&) {  // the standard library's only way to say it
      break;
    }
  }
  impl_->workers = started;
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
  impl_->publish(count, grain, fn, context);
  impl_->take_pieces(0);
  impl_->close_and_wait();
}

}  // namespace wader
