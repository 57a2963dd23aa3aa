// Scheduler: the one thread that owns the engine and its sessions. Requests take turns (a chunk of
// prompt or a token each), each on a session of its own; a request continues on the session that
// has most of its prompt, or on the one unused longest, with the common beginning copied.
#pragma once

#include <atomic>
#include <cstdint>
#include <memory>
#include <optional>

#include "server/generation.h"

namespace wader {

struct SchedulerOptions {
  uint32_t max_queued = 64;  // beyond those that run
};

struct SchedulerStats {
  uint32_t running = 0, queued = 0;
  uint64_t finished = 0, cancelled = 0, failed = 0, refused = 0;
  EngineStats engine;  // as of the last turn
};

class Scheduler {
 public:
  virtual ~Scheduler() = default;  // cancels everything and joins
  static Result<std::unique_ptr<Scheduler>> start(std::unique_ptr<Engine> engine,
                                                  const SchedulerOptions& options);

  virtual const Engine& engine() const = 0;  // what of it never changes: plan, tokenizer, container
  // From any thread. over_budget when the queue is full. `cancel` may be set at any time from any
  // thread: the work ends within a chunk or a token, or never begins, and on_end still comes.
  virtual Status submit(GenerationRequest request, GenerationListener listener,
                        std::shared_ptr<std::atomic<bool>> cancel) = 0;
  virtual SchedulerStats stats() const = 0;
  // No new work; what runs ends as cancelled. From any thread.
  virtual void stop() = 0;
};

}  // namespace wader
