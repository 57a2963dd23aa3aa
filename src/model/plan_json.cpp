#include "model/plan_json.h"

namespace wader {

Json plan_json(const MemoryPlan& plan) {
  return {{"budget_bytes", plan.budget_bytes},
          {"total_bytes", plan.total_bytes()},
          {"process_bytes", plan.process_bytes},
          {"trunk_bytes", plan.trunk_bytes},
          {"state_bytes", plan.state_bytes},
          {"snapshots_bytes", plan.snapshots_bytes},
          {"snapshots", plan.snapshots},
          {"scratch_bytes", plan.scratch_bytes},
          {"io_bytes", plan.io_bytes},
          {"slots_bytes", plan.slots_bytes},
          {"reserve_bytes", plan.reserve_bytes},
          {"context", plan.context},
          {"chunk", plan.chunk},
          {"slots", plan.slots},
          {"working_set_slots", plan.working_set_slots},
          {"threads", plan.threads},
          {"sessions", plan.sessions}};
}

}  // namespace wader
