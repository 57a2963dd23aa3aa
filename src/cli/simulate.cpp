#include "experts/simulate.h"

#include <fmt/format.h>

#include <algorithm>
#include <charconv>
#include <cmath>

#include "base/error.h"
#include "base/units.h"
#include "cli/commands.h"
#include "cli/console.h"
#include "cli/options.h"
#include "cli/svg_plot.h"
#include "cli/text.h"

namespace wader {
namespace {

// "128" is slots, "50%" a share of all experts.
Result<std::vector<uint32_t>> slot_counts(std::string_view text, const TraceShape& shape) {
  const double all = double{1} * shape.layers * shape.experts;
  std::vector<uint32_t> out;
  for (const std::string_view part : split_list(text)) {
    const bool percent = part.ends_with('%');
    double number = 0;
    const char* end = part.data() + part.size() - (percent ? 1 : 0);
    const auto [stop, code] = std::from_chars(part.data(), end, number);
    const double slots = percent ? std::floor(number / 100 * all) : number;
    if (code != std::errc{} || stop != end || !(slots >= 1) || slots > all ||
        (percent && number > 100) || slots != std::floor(slots))
      return invalid_argument_error(
          "--slots takes whole numbers from 1 to {:.0f}, or shares of it as 50%, not '{}'", all,
          part);
    out.push_back(static_cast<uint32_t>(slots));
  }
  std::sort(out.begin(), out.end());
  out.erase(std::unique(out.begin(), out.end()), out.end());
  return out;
}

Result<std::vector<EvictionRule>> rules_of(const Args& args) {
  std::vector<EvictionRule> rules;
  if (!args.has("--policies")) {
    for (const EvictionRuleName& known : eviction_rules()) rules.push_back(known.rule);
    return rules;
  }
  const std::string text = args.text("--policies");
  for (const std::string_view part : split_list(text)) {
    auto rule = eviction_rule_from_name(part);
    if (!rule.ok()) return std::move(rule).error().within("--policies");
    rules.push_back(*rule);
  }
  return rules;
}

struct Column {
  std::string name;
  std::vector<SimulatedReads> reads;  // by slot count
};

struct Simulation {
  RoutingTrace trace;
  std::vector<uint32_t> slots;
  std::vector<Column> columns;  // Belady's first
  uint64_t counted_tokens = 0, counted_decode_tokens = 0;
};

Result<Simulation> run_all(const Args& args) {
  Simulation sim;
  auto trace = read_routing_trace(args.operand(0));
  if (!trace.ok()) return not_usage(std::move(trace).error());
  sim.trace = std::move(*trace);
  ASSIGN_OR_RETURN(sim.slots,
                   slot_counts(args.text("--slots", "12.5%,25%,37.5%,50%,75%"), sim.trace.shape));
  ASSIGN_OR_RETURN(const std::vector<EvictionRule> rules, rules_of(args));
  SimulateOptions options;
  const uint64_t tokens = sim.trace.tokens();
  if (tokens == 0) return corrupt_error("{}: holds no pass", args.operand(0));
  ASSIGN_OR_RETURN(options.uncounted_tokens, args.whole("--warm-up", 0, tokens - 1, 0));
  std::vector<float> history;
  if (args.has("--learn")) {
    auto learnt = read_routing_trace(args.text("--learn"));
    if (!learnt.ok()) return not_usage(std::move(learnt).error());
    if (learnt->shape.layers != sim.trace.shape.layers ||
        learnt->shape.experts != sim.trace.shape.experts)
      return invalid_argument_error("--learn {}: a trace of another model", args.text("--learn"));
    history = learn_history(*learnt);
    options.history = history;
  }
  uint64_t at = 0;
  for (const TracePass& pass : sim.trace.passes) {
    if (at >= options.uncounted_tokens) {
      sim.counted_tokens += pass.rows;
      if (pass.rows == 1 && !pass.begins_prompt) ++sim.counted_decode_tokens;
    }
    at += pass.rows;
  }
  sim.columns.push_back({"belady", {}});
  for (const EvictionRule rule : rules) sim.columns.push_back({std::string(name_of(rule)), {}});
  for (const uint32_t slots : sim.slots) {
    options.slots = slots;
    sim.columns[0].reads.push_back(simulate_belady(sim.trace, options));
    for (size_t r = 0; r < rules.size(); ++r)
      sim.columns[r + 1].reads.push_back(simulate(sim.trace, rules[r], options));
  }
  return sim;
}

using Count = uint64_t SimulatedReads::*;

// The title and the columns' names.
std::string table_head(const Simulation& sim, std::string_view title) {
  std::string out = fmt::format("{}\n{:>7} {:>6} {:>14}", title, "slots", "share", "belady");
  for (size_t c = 1; c < sim.columns.size(); ++c)
    out += fmt::format(" {:>12}", sim.columns[c].name);
  return out + "\n";
}

// A row's slots, and their share of all experts.
std::string row_head(const Simulation& sim, size_t i) {
  const uint32_t all = sim.trace.shape.layers * sim.trace.shape.experts;
  return fmt::format("{:>7} {:>5.1f}%", sim.slots[i], 100.0 * sim.slots[i] / all);
}

// Bytes that a token reads under Belady's rule, and under each rule as a multiple of that.
std::string table(const Simulation& sim, std::string_view title, Count missed, uint64_t tokens) {
  std::string out = table_head(sim, title);
  for (size_t i = 0; i < sim.slots.size(); ++i) {
    const auto least = static_cast<double>(sim.columns[0].reads[i].*missed);
    const double bytes = least * static_cast<double>(sim.trace.shape.record_bytes);
    out += fmt::format("{} {:>14}", row_head(sim, i),
                       format_bytes(static_cast<uint64_t>(bytes / static_cast<double>(tokens))));
    for (size_t c = 1; c < sim.columns.size(); ++c) {
      const auto own = static_cast<double>(sim.columns[c].reads[i].*missed);
      out += least > 0 ? fmt::format(" {:>11.3f}x", own / least) : fmt::format(" {:>12}", "-");
    }
    out += "\n";
  }
  return out;
}

std::string after_prompt_table(const Simulation& sim) {
  std::string out =
      table_head(sim, fmt::format("\nHits of the first {} tokens after a prompt of {} or more",
                                  kTokensAfterPrompt, kLongPrompt));
  for (size_t i = 0; i < sim.slots.size(); ++i) {
    out += row_head(sim, i);
    for (size_t c = 0; c < sim.columns.size(); ++c) {
      const SimulatedReads& reads = sim.columns[c].reads[i];
      const double rate = 1 - static_cast<double>(reads.after_prompt_missed) /
                                  static_cast<double>(reads.after_prompt_wanted);
      out += fmt::format(" {:>{}.1f}%", 100 * rate, c == 0 ? 13 : 11);
    }
    out += "\n";
  }
  return out;
}

Json simulation_json(const Simulation& sim) {
  Json results = Json::array();
  for (const Column& column : sim.columns)
    for (size_t i = 0; i < sim.slots.size(); ++i) {
      const SimulatedReads& reads = column.reads[i];
      results.push_back({{"policy", column.name},
                         {"slots", sim.slots[i]},
                         {"wanted", reads.wanted},
                         {"missed", reads.missed},
                         {"decode_wanted", reads.decode_wanted},
                         {"decode_missed", reads.decode_missed},
                         {"after_prompt_wanted", reads.after_prompt_wanted},
                         {"after_prompt_missed", reads.after_prompt_missed}});
    }
  const TraceShape& shape = sim.trace.shape;
  return {{"layers", shape.layers},
          {"experts", shape.experts},
          {"experts_per_token", shape.experts_per_token},
          {"record_bytes", shape.record_bytes},
          {"passes", sim.trace.passes.size()},
          {"tokens", sim.counted_tokens},
          {"decode_tokens", sim.counted_decode_tokens},
          {"cut", sim.trace.cut},
          {"results", results}};
}

std::string plot(const Simulation& sim, const std::string& name) {
  constexpr double kMiBytes = 1 << 20;
  std::vector<PlotSeries> series;
  for (const Column& column : sim.columns) {
    PlotSeries& one = series.emplace_back();
    one.name = column.name;
    one.is_bound = &column == &sim.columns[0];
    for (size_t i = 0; i < sim.slots.size(); ++i)
      one.points.push_back({static_cast<double>(sim.slots[i]),
                            static_cast<double>(column.reads[i].missed) *
                                static_cast<double>(sim.trace.shape.record_bytes) /
                                static_cast<double>(sim.counted_tokens) / kMiBytes});
  }
  return line_plot_svg({name + ": what a token reads", "slots", "MiB a token"}, series);
}

}  // namespace

Result<int> run_simulate(const Args& args) {
  ASSIGN_OR_RETURN(const Simulation sim, run_all(args));
  const std::string name = std::filesystem::path(args.operand(0)).filename().string();
  std::error_code error;
  if (args.has("--svg") && std::filesystem::equivalent(args.text("--svg"), args.operand(0), error))
    return invalid_argument_error("--svg {} is the trace itself", args.text("--svg"));
  if (args.has("--svg"))
    RETURN_IF_ERROR(write_file_atomically(args.text("--svg"), plot(sim, name)));
  if (args.has("--json")) {
    print_json(simulation_json(sim));
    return 0;
  }
  const TraceShape& shape = sim.trace.shape;
  std::string out = fmt::format(
      "{}: {} layers, {} experts of {}, {} a token; {} tokens counted in {} passes, {} "
      "decoded{}\n\n",
      name, shape.layers, shape.experts, format_bytes(shape.record_bytes), shape.experts_per_token,
      sim.counted_tokens, sim.trace.passes.size(), sim.counted_decode_tokens,
      sim.trace.cut ? "; the file ends inside a pass" : "");
  out += table(sim, "Bytes read a token, all passes, in multiples of Belady's",
               &SimulatedReads::missed, sim.counted_tokens);
  if (sim.counted_decode_tokens > 0)
    out += "\n" + table(sim, "The same, of decoded tokens alone", &SimulatedReads::decode_missed,
                        sim.counted_decode_tokens);
  if (sim.columns[0].reads[0].after_prompt_wanted > 0) out += after_prompt_table(sim);
  print(terminal_safe(out));
  return 0;
}

}  // namespace wader
