// Scheduler: the one thread that owns the engine and its sessions. Requests take turns, a chunk of
// prompt or a token each, and each has a session of its own; further ones wait, first come, first
// served. Whoever has had the least of the engine's time is next, so that a long prompt takes at
// most its share from a running answer. What a request gets does not depend on the others.
#pragma once

#include <atomic>
#include <cstdint>
#include <functional>
#include <memory>

#include "server/generation.h"

namespace wader {

struct SchedulerOptions {
  uint32_t max_queued = 64;  // beyond those that run
  // In the engine's thread after each pass: a running number of the request, the pass' rows, and
  // whether they were of the prompt.
  std::function<void(uint64_t request, uint32_t rows, bool prefill)> on_pass = {};
  RoutingListener on_routing = {};            // in the engine's thread, of all passes
  std::function<void()> on_request_end = {};  // in the engine's thread
};

struct SchedulerStats {
  uint32_t running = 0, queued = 0;
  uint64_t finished = 0, cancelled = 0, failed = 0, refused = 0;
  EngineStats engine;  // a tenth of a second old at most while work runs
};

// Opens the engine, which calls `on_routing` (EngineOptions).
using OpenEngine = std::function<Result<std::unique_ptr<Engine>>(RoutingListener on_routing)>;

class Scheduler {
 public:
  // Opens the engine in its thread, and one session for each that it was planned for.
  static Result<std::unique_ptr<Scheduler>> start(OpenEngine open, const SchedulerOptions& options);
  virtual ~Scheduler() = default;  // stops and waits for the thread

  virtual const Engine& engine() const = 0;  // what never changes: plan, tokenizer, container
  // From any thread. over_budget when the queue is full, cancelled after stop(). `cancel` may be
  // set at any time from any thread: the work ends within a chunk or a token, or never begins, and
  // on_end still comes. The prompt has been checked against the context.
  virtual Status submit(GenerationRequest request, GenerationListener listener,
                        std::shared_ptr<const std::atomic<bool>> cancel) = 0;
  virtual SchedulerStats stats() const = 0;  // from any thread
  virtual void stop() = 0;  // no new work; what there is ends as cancelled. From any thread
  // After stop(): whether the engine's thread has ended, waiting for it for `patience`; a pass that
  // reads much from a slow disk ends when it ends.
  virtual bool stopped(std::chrono::milliseconds patience) const = 0;
};

}  // namespace wader
