// PoolGovernor: asks the machine now and then, and gives the expert pool the slots that the answer
// allows. One owner thread, the engine's; tick() allocates nothing.
#pragma once

#include <cstdint>
#include <functional>
#include <optional>

#include "base/memory_watch.h"
#include "engine/engine.h"
#include "engine/governor.h"
#include "experts/expert_cache.h"

namespace wader {

class PoolGovernor {
 public:
  // `read`: where readings come from, each tick() one; empty: this machine, four times a second.
  // `stalls_count`: false where experts come through the page cache. Then our own reads reclaim and
  // fault pages in again, which looks like a shortage, and what the pool gives up does not help.
  // The cache must outlive this.
  PoolGovernor(ExpertCache& cache, const MemoryPlan& plan, uint64_t slot_bytes,
               bool memory_is_automatic, bool stalls_count, std::function<MemoryReading()> read);

  // Between two passes. Counts what it did in `stats`.
  void tick(EngineStats& stats);

 private:
  std::optional<MemoryReading> read();

  ExpertCache& cache_;
  MemoryGovernor policy_;
  const uint64_t planned_bytes_, slot_bytes_;
  const bool stalls_count_;
  const std::function<MemoryReading()> injected_;
  std::optional<MemoryWatch> watch_;
  std::optional<double> read_at_;  // seconds of the steady clock
};

}  // namespace wader
