#include <fmt/format.h>

#include <algorithm>
#include <cmath>

#include "base/error.h"
#include "cli/commands.h"
#include "cli/console.h"
#include "cli/golden.h"
#include "cli/options.h"
#include "cli/text.h"
#include "container/manifest.h"

namespace wader {
namespace {

Result<GoldenLimits> limits_of(const Args& args) {
  GoldenLimits limits;
  ASSIGN_OR_RETURN(limits.logits, args.number("--tolerance", limits.logits));
  ASSIGN_OR_RETURN(limits.nll, args.number("--nll-tolerance", limits.nll));
  if (limits.logits < 0 || limits.nll < 0)
    return invalid_argument_error("a tolerance cannot be negative");
  // The weights of a softmax move by less than its logits: one twentieth is the fixtures' 1e-4
  // beside 2e-3.
  limits.router_weights = limits.logits / 20;
  return limits;
}

Json line_json(const GoldenLine& line) {
  Json json = {{"name", line.name},   {"measure", line.measure}, {"compared", line.compared},
               {"error", line.error}, {"limit", line.limit},     {"ok", line.ok()}};
  if (!std::isfinite(line.error)) json["error"] = nullptr;
  if (!line.detail.empty()) json["detail"] = line.detail;
  return json;
}

void print_line(const GoldenLine& line) {
  const std::string value = line.measure.ends_with("differ")
                                ? fmt::format("{:.0f} {}", line.error, line.measure)
                                : fmt::format("{} {:.2e}", line.measure, line.error);
  print(terminal_safe(fmt::format("{:<32} {:>6}  {:<20} {}{}\n", line.name, line.compared, value,
                                  line.ok() ? "ok" : "FAILED",
                                  line.detail.empty() ? "" : "  (" + line.detail + ")")));
  flush_output();
}

// Held-out texts are up to 600 tokens and the start token.
constexpr uint32_t kHeldoutContext = 601;

}  // namespace

Result<int> run_check(const Args& args) {
  ASSIGN_OR_RETURN(EngineOptions options, engine_options(args));
  // The limits are those of f32 products; integer ones are judged by likelihood and agreement.
  if (!args.has("--kernels")) options.kernels = "ref";
  ASSIGN_OR_RETURN(const GoldenLimits limits, limits_of(args));
  ASSIGN_OR_RETURN(const Container container, open_container(args));
  ASSIGN_OR_RETURN(const GoldenFile golden, GoldenFile::open(args.operand(1)));
  Json nll;
  if (args.has("--nll")) {
    ASSIGN_OR_RETURN(const std::string text, read_text_file(args.text("--nll"), kMaxInputBytes));
    ASSIGN_OR_RETURN(nll, parse_json(text, args.text("--nll")));
  }
  if (options.context == 0) {
    options.context = std::max(golden.context_tokens(), args.has("--nll") ? kHeldoutContext : 1);
    options.context = std::min(options.context, container.spec().max_context);
  }
  options.extra_bytes = golden.capture_bytes(container.spec());
  ASSIGN_OR_RETURN(const auto engine, open_engine(container, options));
  ASSIGN_OR_RETURN(const auto session, engine->new_session());

  const bool json = args.has("--json");
  const auto on_line = [&](const GoldenLine& line) {
    if (!json) print_line(line);
  };
  auto report = check_golden(golden, container.spec(), *session, limits, on_line);
  if (!report.ok()) return not_usage(std::move(report).error());
  if (args.has("--nll")) {
    auto more = check_nll({nll, golden, engine->tokenizer()}, *session, limits, on_line);
    if (!more.ok()) return not_usage(std::move(more).error().within(args.text("--nll")));
    report->lines.insert(report->lines.end(), more->lines.begin(), more->lines.end());
  }
  if (json) {
    Json lines = Json::array();
    for (const GoldenLine& line : report->lines) lines.push_back(line_json(line));
    print_json({{"ok", report->ok()}, {"lines", lines}, {"not_compared", report->not_compared}});
    return report->ok() ? 0 : 1;
  }
  if (!report->not_compared.empty()) {
    print(terminal_safe(fmt::format("not compared: {}\n", fmt::join(report->not_compared, ", "))));
  }
  if (report->ok()) return 0;
  const auto failed = std::count_if(report->lines.begin(), report->lines.end(),
                                    [](const GoldenLine& line) { return !line.ok(); });
  const auto failures = fmt::format("{} of {} comparisons failed", failed, report->lines.size());
  // GPT-OSS's experts are mxfp4 in the reference too; of others only bf16 is as released.
  const Manifest& manifest = container.manifest();
  const bool exact_experts = manifest.experts.format.gate_up == DType::mxfp4 ||
                             manifest.experts.format.gate_up == DType::bf16;
  if (exact_experts && trunk_format_text(manifest) == "bf16") return corrupt_error("{}", failures);
  return corrupt_error(
      "{}\nthe weights are quantised (experts {}, trunk {}); exact references need an install with "
      "--trunk bf16{}",
      failures, expert_format_text(manifest.experts.format), trunk_format_text(manifest),
      exact_experts ? "" : " --experts bf16");
}

}  // namespace wader
