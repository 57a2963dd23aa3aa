// A memory plan as `wader info --json` and /wader/stats show it: every figure of MemoryPlan, in bytes
// where its name says so.
#pragma once

#include "base/json.h"
#include "model/memory_plan.h"

namespace wader {

Json plan_json(const MemoryPlan& plan);

}  // namespace wader
