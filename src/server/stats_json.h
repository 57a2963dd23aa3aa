// What /wader/stats says: the model, the plan, and how things stand.
#pragma once

#include "base/json.h"
#include "server/scheduler.h"
#include "server/served_model.h"

namespace wader {

// CPUs of the machine that no compute thread has: what a browser beside it can take without slowing
// the model. A second thread of a core counts as one.
uint32_t spare_cpus(const Engine& engine);

// "model", "plan" and "engine": what does not change while a model is served.
Json served_facts_json(const ServedModel& model);
// "now" and "counters".
Json standing_json(const SchedulerStats& stats);

}  // namespace wader
