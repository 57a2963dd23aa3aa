#include "server/stats_json.h"

#include <algorithm>

#include "base/machine.h"
#include "container/manifest.h"
#include "model/plan_json.h"

namespace wader {

uint32_t spare_cpus(const Engine& engine) {
  const uint32_t cpus = online_cpus();
  return cpus - std::min(cpus, engine.plan().threads);
}

Json served_facts_json(const ServedModel& model) {
  const Engine& engine = model.engine();
  const Manifest& manifest = engine.container().manifest();
  const ArchitectureSpec& spec = engine.container().spec();
  const MemoryPlan& plan = engine.plan();
  Json moe_layers = Json::array();
  for (uint32_t layer = 0; layer < spec.layer_count(); ++layer)
    if (spec.layers[layer].ffn == FfnKind::moe) moe_layers.push_back(layer);
  Json disk_rate = nullptr;
  if (model.disk_bytes_per_second) disk_rate = *model.disk_bytes_per_second;
  uint64_t disk_bytes = 0;
  for (const auto& [name, record] : manifest.files) disk_bytes += record.bytes;
  return {{"model",
           {{"id", model.facts.id},
            {"family", spec.family},
            {"source", manifest.source},
            {"layers", spec.layer_count()},
            {"moe_layers", moe_layers},
            {"experts", spec.experts},
            {"experts_per_token", spec.experts_per_token},
            {"context", plan.context},
            {"vocab_rows", spec.vocab_rows},
            {"expert_bytes", manifest.experts.stride_bytes},
            {"expert_format", expert_format_text(manifest.experts.format)},
            {"trunk_format", trunk_format_text(manifest)},
            {"disk_bytes", disk_bytes}}},
          {"plan", plan_json(plan)},
          {"engine",
           {{"kernels", engine.kernels().name},
            {"reads", engine.io_description()},
            {"disk_bytes_per_second", disk_rate},
            {"spare_cpus", spare_cpus(engine)}}}};
}

Json standing_json(const SchedulerStats& stats) {
  const EngineStats& engine = stats.engine;
  const ExpertCounters& experts = engine.experts;
  const PassSeconds& seconds = engine.pass_seconds;
  return {{"now",
           {{"resident_bytes", process_memory().resident_bytes},
            {"usable_slots", engine.usable_slots},
            {"running", stats.running},
            {"queued", stats.queued}}},
          {"counters",
           {{"hits", experts.hits},
            {"misses", experts.misses},
            {"bytes_read", experts.bytes_read},
            {"wait_seconds", experts.wait_seconds},
            {"reading_seconds", experts.busy_seconds},
            {"predicted", experts.predicted},
            {"predicted_right", experts.predicted_right},
            {"wasted_bytes", experts.wasted_bytes},
            {"hidden_seconds", experts.hidden_seconds},
            {"prefill_tokens", engine.prefill_tokens},
            {"decode_tokens", engine.decode_tokens},
            {"prefill_seconds", engine.prefill_seconds},
            {"decode_seconds", engine.decode_seconds},
            {"mixer_seconds", seconds.mixer},
            {"router_seconds", seconds.router},
            {"experts_seconds", seconds.experts},
            {"lookahead_seconds", seconds.lookahead},
            {"head_seconds", seconds.head},
            {"finished", stats.finished},
            {"cancelled", stats.cancelled},
            {"failed", stats.failed},
            {"refused", stats.refused},
            {"pool_shrinks", engine.pool_shrinks},
            {"pool_growths", engine.pool_growths}}}};
}

}  // namespace wader
