// A fixed set of compute threads. [0, count) is shared out in equal parts, of which who is done
// early takes over what is left: a slow core, or a thread that is not running, holds up one piece
// at most. Which thread computes a piece never changes a bit, as long as a piece's result depends
// on its indices alone. Threads spin for 60 µs between jobs, then sleep. One owner calls
// parallel_for; it is not reentrant and not shared between engines.
#pragma once

#include <cstdint>
#include <memory>
#include <type_traits>

namespace wader {

class ThreadPool {
 public:
  // `threads` >= 1, the caller's own thread included: ThreadPool(1) starts none.
  // Where the system refuses more threads (a process limit), the pool has those it got: see size().
  explicit ThreadPool(int threads);
  ~ThreadPool();
  ThreadPool(const ThreadPool&) = delete;
  ThreadPool& operator=(const ThreadPool&) = delete;

  int size() const;

  // Body for one piece; worker is in [0, size()) and indexes per-thread scratch.
  struct Slice {
    int64_t begin, end;
    int worker;
  };

  // Calls fn(context, slice) until all of [0, count) was in one slice, and waits for all calls; any
  // worker may get several. No allocation. Slices are whole multiples of `grain` (except the last).
  void run(int64_t count, int64_t grain, void (*fn)(void*, Slice), void* context);

  template <typename Fn>
  void parallel_for(int64_t count, int64_t grain, Fn&& fn) {
    run(
        count, grain,
        [](void* f, Slice slice) { (*static_cast<std::remove_reference_t<Fn>*>(f))(slice); }, &fn);
  }

 private:
  struct Impl;
  std::unique_ptr<Impl> impl_;
};

}  // namespace wader
