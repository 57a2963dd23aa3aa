#include "cli/report.h"

#include <fmt/format.h>

#include <cmath>
#include <vector>

#include "base/check.h"
#include "base/units.h"
#include "cli/text.h"

namespace wader {
namespace {

std::string state_detail(const MemoryPlan& plan, const ArchitectureSpec& spec) {
  return fmt::format("keys and values{} for {} tokens of context",
                     spec.has_mixer(LayerKind::delta_net) ? ", recurrent states," : "",
                     plan.context);
}

// What there is to say beside each part, in the order of plan_parts().
std::vector<std::string> part_details(const MemoryPlan& plan, const Manifest& manifest) {
  const uint64_t all = uint64_t{manifest.spec.moe_layer_count()} * manifest.spec.experts;
  const double share = all > 0 ? 100.0 * plan.slots / static_cast<double>(all) : 0;
  return {
      "code, tokenizer, manifest",
      "embeddings, mixers, routers, norms",
      state_detail(plan, manifest.spec),
      fmt::format("{} of the state, to go back in a conversation", plan.snapshots),
      fmt::format("passes of {} tokens", plan.chunk),
      "",
      fmt::format("{} slots for {} experts ({:.0f} %)", plan.slots, all, std::min(share, 100.0)),
      "stacks, allocator, terminal"};
}

double per_second(uint64_t count, double seconds) {
  return seconds > 0 ? static_cast<double>(count) / seconds : 0;
}

double hit_rate(const EngineStats& stats) {
  const uint64_t wanted = stats.experts.hits + stats.experts.misses;
  return wanted > 0 ? static_cast<double>(stats.experts.hits) / static_cast<double>(wanted) : 0;
}

}  // namespace

std::vector<PlanPart> plan_parts(const MemoryPlan& plan) {
  return {{'P', "program", plan.process_bytes},    {'T', "trunk", plan.trunk_bytes},
          {'K', "state", plan.state_bytes},        {'N', "snapshots", plan.snapshots_bytes},
          {'S', "scratch", plan.scratch_bytes},    {'I', "I/O buffers", plan.io_bytes},
          {'E', "expert slots", plan.slots_bytes}, {'R', "reserve", plan.reserve_bytes}};
}

PlanBar plan_bar(const MemoryPlan& plan, size_t width) {
  const uint64_t total = std::max<uint64_t>(plan.total_bytes(), 1);
  const bool small = total < plan.budget_bytes / 4;
  PlanBar bar = {"", small ? total : std::max(plan.budget_bytes, total), small};
  uint64_t sum = 0;
  for (const PlanPart& part : plan_parts(plan)) {
    sum += part.bytes;
    // Ends are rounded, not widths: the bar's length is that of the total.
    const auto end =
        static_cast<size_t>(std::lround(static_cast<double>(width) * static_cast<double>(sum) /
                                        static_cast<double>(bar.whole_bytes)));
    if (end > bar.text.size()) bar.text.resize(end, part.letter);
  }
  bar.text.resize(width, '.');
  return bar;
}

std::string plan_table(const MemoryPlan& plan, const Manifest& manifest) {
  const PlanBar bar = plan_bar(plan, 60);
  const std::vector<PlanPart> parts = plan_parts(plan);
  const std::vector<std::string> details = part_details(plan, manifest);
  CHECK(parts.size() == details.size());
  std::string out = fmt::format(
      "memory budget {}{}\n  [{}]\n", format_bytes(plan.budget_bytes),
      bar.small ? fmt::format(", {} needed", format_bytes(bar.whole_bytes)) : "", bar.text);
  for (size_t i = 0; i < parts.size(); ++i) {
    if (parts[i].bytes == 0) continue;
    out += fmt::format("  {} {:<13} {:>10}   {}\n", parts[i].letter, parts[i].name,
                       format_bytes(parts[i].bytes), details[i]);
  }
  out += fmt::format("    {:<13} {:>10}\n", "total", format_bytes(plan.total_bytes()));
  return out;
}

std::string figures_line(const RunFigures& f, uint64_t budget_bytes) {
  std::string prompt = fmt::format("{} prompt", f.prompt_tokens);
  if (f.reused_tokens > 0) prompt += fmt::format(" ({} reused)", f.reused_tokens);
  std::string pool;
  if (f.engine.pool_shrinks > 0 || f.engine.usable_slots < f.engine.slots)
    pool = fmt::format(", {} of {} slots (shrunk {}, grown {} times)", f.engine.usable_slots,
                       f.engine.slots, f.engine.pool_shrinks, f.engine.pool_growths);
  return fmt::format(
      "{:.1f} tok/s, first token {}, {} + {} new tokens, {} read at {}, hit rate {:.0f} %, peak {} "
      "of {}{}, seed {}",
      per_second(f.engine.decode_tokens, f.engine.decode_seconds),
      format_seconds(f.first_token_seconds), prompt, f.new_tokens,
      format_bytes(f.engine.experts.bytes_read),
      format_rate(per_second(f.engine.experts.bytes_read, f.seconds)), 100 * hit_rate(f.engine),
      format_bytes(f.engine.peak_rss_bytes), format_bytes(budget_bytes), pool, f.seed);
}

Json figures_json(const RunFigures& f, uint64_t budget_bytes) {
  const EngineStats& e = f.engine;
  return {{"seed", f.seed},
          {"prompt_tokens", f.prompt_tokens},
          {"reused_tokens", f.reused_tokens},
          {"new_tokens", f.new_tokens},
          {"seconds", f.seconds},
          {"first_token_seconds", f.first_token_seconds},
          {"tokens_per_second", per_second(e.decode_tokens, e.decode_seconds)},
          {"prefill_tokens", e.prefill_tokens},
          {"prefill_seconds", e.prefill_seconds},
          {"decode_tokens", e.decode_tokens},
          {"decode_seconds", e.decode_seconds},
          {"expert_hits", e.experts.hits},
          {"expert_misses", e.experts.misses},
          {"hit_rate", hit_rate(e)},
          {"bytes_read", e.experts.bytes_read},
          {"read_rate", per_second(e.experts.bytes_read, f.seconds)},
          {"read_wait_seconds", e.experts.wait_seconds},
          {"peak_rss_bytes", e.peak_rss_bytes},
          {"budget_bytes", budget_bytes},
          {"slots", e.slots},
          {"usable_slots", e.usable_slots},
          {"pool_shrinks", e.pool_shrinks},
          {"pool_growths", e.pool_growths}};
}

Json prediction_json(const Prediction& p, const MachineSpeed& speed) {
  const auto decode = [](const DecodePrediction& d) {
    return Json{{"tokens_per_second", d.tokens_per_second},
                {"read_bytes_per_token", d.read_bytes_per_token},
                {"hit_rate", d.hit_rate}};
  };
  return {
      {"skewed", decode(p.skewed)},
      {"uniform", decode(p.uniform)},
      {"first_prompt_read_bytes", p.first_prompt_read_bytes},
      {"first_token_seconds", p.first_token_seconds ? Json(*p.first_token_seconds) : Json(nullptr)},
      {"disk_rate", speed.disk_bytes_per_second},
      {"memory_bandwidth", speed.memory_bytes_per_second}};
}

std::string_view finish_name(FinishReason reason) {
  switch (reason) {
    case FinishReason::stop:
      return "stop";
    case FinishReason::length:
      return "length";
    case FinishReason::context_full:
      return "context_full";
    case FinishReason::cancelled:
      return "cancelled";
  }
  UNREACHABLE("no such case");
}

}  // namespace wader
