// Facts as people read them and as JSON: memory plans, statistics of a run.
#pragma once

#include <cstdint>
#include <string>
#include <string_view>
#include <vector>

#include "arch/spec.h"
#include "base/json.h"
#include "container/container.h"
#include "engine/engine.h"
#include "measure/predict.h"
#include "model/memory_plan.h"

namespace wader {

struct PlanPart {
  char letter;  // in the bar
  std::string_view name;
  uint64_t bytes;
};
std::vector<PlanPart> plan_parts(const MemoryPlan& plan);

// The plan as a bar of `width` cells: one letter a part, '.' what the budget has left. A model far
// smaller than the budget would be a speck in it: then the bar is the model alone.
struct PlanBar {
  std::string text;
  uint64_t whole_bytes;  // that the bar stands for: the budget, or the plan's total where `small`
  bool small;
};
PlanBar plan_bar(const MemoryPlan& plan, size_t width);
// A table of the plan's parts with that bar.
std::string plan_table(const MemoryPlan& plan, const Manifest& manifest);

// What one generation did.
struct RunFigures {
  EngineStats engine;  // of this run alone, but peak_rss_bytes of the process
  uint32_t prompt_tokens = 0, reused_tokens = 0, new_tokens = 0;
  double seconds = 0;              // from the request to the last token
  double first_token_seconds = 0;  // 0 when none came
  uint64_t seed = 0;
};

// "24.1 tok/s · first token 0.31 s · 81 + 45 tokens · …", one line without a newline.
std::string figures_line(const RunFigures& figures, uint64_t budget_bytes);
Json figures_json(const RunFigures& figures, uint64_t budget_bytes);

// For `wader info`, and for benches to show beside what they measured.
Json prediction_json(const Prediction& prediction, const MachineSpeed& speed);

std::string_view finish_name(FinishReason reason);  // "stop", "length", "context_full", "cancelled"

}  // namespace wader
