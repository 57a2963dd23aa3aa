// Memory plan: every byte the process will hold, decided before any is taken.
#pragma once

#include <cstdint>
#include <span>
#include <string>

#include "arch/spec.h"
#include "base/result.h"
#include "base/units.h"
#include "tensor/dtype.h"

namespace wader {

// What the machine and the process look like when the plan is made.
struct MachineMemory {
  uint64_t available_bytes;  // what --memory auto may use in all: min(cgroup room, MemAvailable) −
                             // reserve
  uint64_t process_bytes;  // already resident in this process (code, tokenizer, manifest)
};

constexpr uint32_t kAutoSnapshots = ~0u;

struct PlanRequest {
  uint64_t trunk_bytes;          // the container's trunk as it will lie in memory
  uint64_t expert_stride_bytes;  // of a slot
  uint64_t budget_bytes;         // --memory; 0 = auto (available_bytes)
  DType kv_dtype = DType::f32;   // of the back end
  uint32_t context;  // tokens; 0 = auto: 8192, or less when that leaves no room for slots
  uint32_t chunk;    // rows of a prefill pass; 0 = auto
  uint32_t slots;    // 0 = as many as fit
  uint32_t threads;
  uint32_t sessions = 1;
  uint32_t snapshots = kAutoSnapshots;  // of the state, kept by each session
  uint64_t extra_bytes = 0;             // what the caller itself will hold, e.g. captured values
};

struct MemoryPlan {
  uint64_t budget_bytes;
  uint64_t available_bytes;  // what the machine has; a larger budget is the caller's risk
  uint64_t process_bytes;    // resident before the model is loaded
  uint64_t trunk_bytes;
  uint64_t state_bytes;      // of all sessions: keys and values, recurrent states
  uint64_t snapshots_bytes;  // of all sessions
  uint64_t scratch_bytes;    // activations, scores, logits
  uint64_t io_bytes;         // bounce buffers, queues
  uint64_t slots_bytes;
  uint64_t reserve_bytes;  // allocator slack, thread stacks, the terminal's line editing
  uint32_t context, chunk, slots, threads;
  uint32_t sessions;
  uint32_t snapshots;          // of each session
  uint32_t working_set_slots;  // slots of the smallest legal pool: one token's experts of one layer
  uint64_t total_bytes() const {
    return process_bytes + trunk_bytes + state_bytes + snapshots_bytes + scratch_bytes + io_bytes +
           slots_bytes + reserve_bytes;
  }
};

// How many sessions an eighth of the budget holds, by a plan for one: 1 to 8.
uint32_t sessions_that_fit(const MemoryPlan& plan_of_one);

// over_budget with the shortfall in bytes and what would fit, when not even the smallest pool does.
Result<MemoryPlan> plan_memory(const ArchitectureSpec& spec, const PlanRequest& request,
                               const MachineMemory& machine);

}  // namespace wader
