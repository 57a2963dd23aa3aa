#include <fmt/format.h>

#include <algorithm>
#include <optional>

#include "base/hash.h"
#include "base/machine.h"
#include "base/units.h"
#include "cli/commands.h"
#include "cli/console.h"
#include "cli/options.h"
#include "cli/report.h"
#include "cli/text.h"
#include "container/manifest.h"
#include "engine/read_setup.h"
#include "kernels/ops.h"
#include "measure/machine_rates.h"
#include "measure/predict.h"
#include "model/plan_json.h"

namespace wader {
namespace {

// "24 full", "12 full, 12 sliding over 128 tokens", "10 full, 30 DeltaNet; 1 dense".
std::string layer_kinds(const ArchitectureSpec& spec) {
  const auto count = [&](LayerKind kind) {
    return std::count_if(spec.layers.begin(), spec.layers.end(),
                         [kind](const LayerSpec& layer) { return layer.mixer == kind; });
  };
  std::string text = fmt::format("{} full", count(LayerKind::full_attention));
  if (spec.has_mixer(LayerKind::sliding_attention))
    text += fmt::format(", {} sliding over {} tokens", count(LayerKind::sliding_attention),
                        spec.sliding_window);
  if (spec.has_mixer(LayerKind::delta_net))
    text += fmt::format(", {} DeltaNet", count(LayerKind::delta_net));
  if (const uint32_t dense = spec.layer_count() - spec.moe_layer_count(); dense > 0)
    text += fmt::format("; {} dense", dense);
  return text;
}

// What one token reads from disk when no expert is held.
uint64_t expert_bytes_a_token(const Manifest& manifest) {
  return uint64_t{manifest.spec.moe_layer_count()} * manifest.spec.experts_per_token *
         manifest.experts.stride_bytes;
}

struct Machine {
  ThreadChoice threads;
  MemoryRoom memory;
  std::optional<MachineSpeed> speed;  // where the disk's is known
};

Json reads_json(const ReadReport& report, const EngineOptions& options) {
  static constexpr std::string_view kWhy[] = {"forced", "measured", "small", "unmeasured"};
  Json rates = Json::array();
  for (const MeasuredMethod& rate : report.rates.rates)
    rates.push_back({{"back_end", read_engine_name(rate.method.engine)},
                     {"direct", rate.method.direct},
                     {"bytes_per_second", rate.bytes_per_second}});
  const bool known = report.why != ReadReport::Why::unmeasured;
  return {
      {"back_end", known ? read_engine_name(report.method.engine) : options.io},
      {"direct", known ? Json(report.method.direct) : Json(options.direct)},
      {"reason", kWhy[static_cast<size_t>(report.why)]},
      {"measured_at", report.rates.rates.empty() ? Json(nullptr) : Json(report.rates.measured_at)},
      {"rates", std::move(rates)}};
}

// The disk's rate is --disk-rate, or what was measured at the model's first use. Memory and
// arithmetic are measured here, in some tenths of a second and inside the budget.
Result<std::optional<MachineSpeed>> machine_speed(const Args& args, const EngineOptions& options,
                                                  const MemoryPlan& plan, const ReadReport& reads) {
  ASSIGN_OR_RETURN(const uint64_t asked, args.bytes("--disk-rate", 0));
  const MeasuredMethod* const measured = reads.rates.find(reads.method);
  if (asked == 0 && measured == nullptr) return std::optional<MachineSpeed>();
  const double disk = asked > 0 ? static_cast<double>(asked) : measured->bytes_per_second;
  ASSIGN_OR_RETURN(const Kernels* kernels, select_kernels(options.kernels));
  const uint64_t spare_bytes = plan.budget_bytes - std::min(plan.budget_bytes, plan.process_bytes);
  ASSIGN_OR_RETURN(const MeasuredRates rates,
                   measure_rates(plan.threads, kernels->name,
                                 std::clamp(spare_bytes / 2, kMiB, kBandwidthBytes / 2)));
  return std::optional(
      MachineSpeed{disk, rates.read_bytes_per_second, rates.int8_operations_per_second});
}

Result<std::optional<Prediction>> prediction(const Manifest& manifest, const EngineOptions& options,
                                             const MemoryPlan& plan, const Machine& machine) {
  if (!machine.speed) return std::optional<Prediction>();
  ASSIGN_OR_RETURN(const Kernels* kernels, select_kernels(options.kernels));
  return std::optional(
      predict(manifest, prediction_request(plan, kernels->kv_dtype), *machine.speed));
}

std::string prediction_rows(const Prediction& p, const PredictionRequest& request,
                            const MachineSpeed& speed) {
  std::string first = "time to the first token not known for these kernels";
  if (p.first_token_seconds)
    first = fmt::format("first token of {} after {}", request.prompt_tokens,
                        format_seconds(*p.first_token_seconds));
  return fmt::format(
      "{:<10} {:.1f} tok/s, {:.2f} GB read a token ({:.0f} % hits); {}\n"
      "           {:.1f} tok/s, {:.2f} GB ({:.0f} %) if all experts were wanted equally often\n"
      "           with the disk at {}, memory at {}\n",
      "predicted", p.skewed.tokens_per_second, p.skewed.read_bytes_per_token / 1e9,
      100 * p.skewed.hit_rate, first, p.uniform.tokens_per_second,
      p.uniform.read_bytes_per_token / 1e9, 100 * p.uniform.hit_rate,
      format_rate(speed.disk_bytes_per_second), format_rate(speed.memory_bytes_per_second));
}

Json info_json(const Container& container, const MemoryPlan& plan, const EngineOptions& options,
               const Machine& machine, const ReadReport& reads,
               const std::optional<Prediction>& predicted) {
  const Manifest& m = container.manifest();
  const ArchitectureSpec& s = m.spec;
  return {
      {"path", container.directory().string()},
      {"in_place", container.in_place() ? Json(container.in_place()->directory.string()) : Json()},
      {"source", m.source},
      {"revision", m.revision},
      {"format_version", kFormatVersion},
      {"spec", spec_to_json(s)},
      {"identity", digest_to_hex(container.identity())},
      {"trunk_format", trunk_format_text(m)},
      {"expert_format", expert_format_text(m.experts.format)},
      {"trunk_bytes", m.trunk_bytes()},
      {"expert_bytes", m.expert_bytes()},
      {"expert_record_bytes", m.experts.stride_bytes},
      {"expert_bytes_per_token", expert_bytes_a_token(m)},
      {"install_report", m.report},
      {"plan", plan_json(plan)},
      {"machine",
       {{"threads", plan.threads},
        {"threads_reason", options.threads != 0 ? "--threads" : machine.threads.reason},
        {"available_bytes", machine.memory.available_bytes},
        {"available_reason", machine.memory.reason}}},
      {"predicted", predicted ? prediction_json(*predicted, *machine.speed) : Json(nullptr)},
      {"io", reads_json(reads, options)}};
}

std::string facts(const Container& container) {
  const Manifest& m = container.manifest();
  const ArchitectureSpec& s = m.spec;
  const auto row = [](std::string_view name, const std::string& value) {
    return fmt::format("{:<10} {}\n", name, terminal_safe_line(value));
  };
  std::string out;
  out += row("model", container.directory().string());
  if (container.in_place())
    out += row("in place",
               fmt::format("experts are read from {}", container.in_place()->directory.string()));
  out += row("source", fmt::format("{} ({})", m.source, m.revision));
  out += row("family", s.family);
  out +=
      row("layers", fmt::format("{} ({}), hidden {}", s.layer_count(), layer_kinds(s), s.hidden));
  out += row("attention", fmt::format("{} query heads, {} key/value heads of {}", s.query_heads,
                                      s.kv_heads, s.head_dim));
  if (s.has_mixer(LayerKind::delta_net))
    out +=
        row("deltanet", fmt::format("{} key heads of {}, {} value heads of {}", s.delta.key_heads,
                                    s.delta.key_dim, s.delta.value_heads, s.delta.value_dim));
  out += row("experts",
             fmt::format("{} a layer, {} a token{}, inner width {}", s.experts, s.experts_per_token,
                         s.shared_inner > 0 ? " and a shared one" : "", s.expert_inner));
  out += row("vocabulary",
             fmt::format("{} rows, context up to {} tokens", s.vocab_rows, s.max_context));
  out += row("formats", fmt::format("experts {}, trunk {}", expert_format_text(m.experts.format),
                                    trunk_format_text(m)));
  out += row("on disk",
             fmt::format("trunk {}, experts {} in records of {}", format_bytes(m.trunk_bytes()),
                         format_bytes(m.expert_bytes()), format_bytes(m.experts.stride_bytes)));
  out +=
      row("a token",
          fmt::format("uses {} of the experts ({:.1f} %), read from disk where no slot holds them",
                      format_bytes(expert_bytes_a_token(m)),
                      100.0 * s.experts_per_token / std::max(1u, s.experts)));
  return out;
}

}  // namespace

Result<int> run_info(const Args& args) {
  ASSIGN_OR_RETURN(const EngineOptions options, engine_options(args));
  ASSIGN_OR_RETURN(const Container container, open_container(args));
  Machine machine = {choose_threads(process_affinity()), memory_room(), {}};
  auto plan = plan_for(container, options);
  if (!plan.ok()) return not_usage(std::move(plan).error());
  auto reads = report_reads(container, options);
  if (!reads.ok()) return not_usage(std::move(reads).error());
  warn_of_overcommit(*plan);
  ASSIGN_OR_RETURN(machine.speed, machine_speed(args, options, *plan, *reads));
  ASSIGN_OR_RETURN(const auto predicted, prediction(container.manifest(), options, *plan, machine));
  if (args.has("--json")) {
    print_json(info_json(container, *plan, options, machine, *reads, predicted));
    return 0;
  }
  print(facts(container) + "\n");
  print(plan_table(*plan, container.manifest()));
  print(fmt::format("\n{:<10} {} ({})\n", "threads", plan->threads,
                    options.threads != 0 ? "--threads" : machine.threads.reason));
  print(fmt::format("{:<10} {} available ({})\n", "memory",
                    format_bytes(machine.memory.available_bytes),
                    terminal_safe_line(machine.memory.reason)));
  print(fmt::format("{:<10} {}\n", "reads", terminal_safe_line(read_report_text(*reads))));
  if (predicted)
    print(prediction_rows(*predicted, prediction_request(*plan, DType::f16), *machine.speed));
  else
    print(fmt::format("{:<10} {}\n", "predicted",
                      reads->why == ReadReport::Why::unmeasured
                          ? "the first use measures the disk; or give --disk-rate"
                          : "not without the disk's rate; give --disk-rate"));
  return 0;
}

}  // namespace wader
