// A fixed set of compute threads with a static partition: worker w of n always gets the same slice
// of [0, count), so the thread count can never change which arithmetic happens, only who does it.
// One owner calls parallel_for; it is not reentrant and not shared between engines.
#pragma once

#include <cstdint>
#include <functional>
#include <memory>

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

  // Body for one slice; worker is in [0, size()) and indexes per-thread scratch.
  struct Slice {
    int64_t begin, end;
    int worker;
  };

  // Calls fn(context, slice) on every worker with a non-empty slice and waits for all of them.
  // No allocation. Slices are whole multiples of `grain` (except the last).
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
