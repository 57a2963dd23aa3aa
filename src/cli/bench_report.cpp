#include "cli/bench_report.h"

#include <fmt/format.h>

#include <algorithm>

#include "base/check.h"
#include "base/units.h"
#include "cli/text.h"

namespace wader {
namespace {

double share(double part, double whole) {
  return whole > 0 ? part / whole : 0;
}

double hit_rate(const EngineStats& stats) {
  return share(static_cast<double>(stats.experts.hits),
               static_cast<double>(stats.experts.hits + stats.experts.misses));
}

std::vector<double> speeds_of(const EngineRun& run, const EngineBenchOptions& options) {
  std::vector<double> speeds;
  for (size_t i = 0; i < run.rounds.size(); ++i)
    speeds.push_back(run.tokens_per_second(options, i));
  return speeds;
}

// The round that stands for the run, and what follows from it.
struct EngineFigures {
  Spread speed;
  const EngineRound& round;
  double tokens_per_second;
  double floor_ratio;                   // decode
  std::optional<double> peak_fraction;  // prefill
  double read_rate;
};

EngineFigures engine_figures(const EngineRun& run, const EngineBenchOptions& options) {
  const std::vector<double> speeds = speeds_of(run, options);
  const size_t median = median_index(speeds);
  const EngineRound& round = run.rounds[median];
  const double floor_seconds =
      share(static_cast<double>(run.active.total()), round.bandwidth) * options.count;
  std::optional<double> peak_fraction;
  if (round.int8_peak) peak_fraction = run.prompt_operations / round.seconds / *round.int8_peak;
  return {spread_of(speeds), round,
          speeds[median],    share(round.seconds, floor_seconds),
          peak_fraction,     static_cast<double>(round.engine.experts.bytes_read) / round.seconds};
}

// Of the passes that had to wait for the disk.
std::optional<double> rate_while_waiting(const ExpertCounters& experts) {
  if (experts.waited_bytes == 0) return {};
  return static_cast<double>(experts.waited_bytes) / experts.waited_seconds;
}

std::optional<double> lookahead_accuracy(const ExpertCounters& experts) {
  if (experts.predicted == 0) return {};
  return static_cast<double>(experts.predicted_right) / static_cast<double>(experts.predicted);
}

Json optional_json(const std::optional<double>& value) {
  return value ? Json(*value) : Json(nullptr);
}

// Null for a layer that nothing was read ahead for, as the first.
Json accuracy_by_layer(const EngineRound& round) {
  Json layers = Json::array();
  for (const LayerPredictions& layer : round.predictions)
    layers.push_back(layer.predicted > 0 ? Json(static_cast<double>(layer.right) /
                                                static_cast<double>(layer.predicted))
                                         : Json(nullptr));
  return layers;
}

// "right 71 to 98 % by layer", of those that were read ahead for.
std::string accuracy_range(const EngineRound& round) {
  double least = 1, most = 0;
  for (const LayerPredictions& layer : round.predictions) {
    if (layer.predicted == 0) continue;
    const double right = static_cast<double>(layer.right) / static_cast<double>(layer.predicted);
    least = std::min(least, right);
    most = std::max(most, right);
  }
  return fmt::format("{:.0f} to {:.0f} % by layer", 100 * least, 100 * most);
}

struct Phase {
  std::string_view key, name;
  double PhaseSeconds::*seconds;
};
constexpr Phase kPhases[] = {
    {"mixer", "mixer", &PhaseSeconds::mixer},
    {"router", "router", &PhaseSeconds::router},
    {"expert_compute", "expert compute", &PhaseSeconds::expert_compute},
    {"expert_wait", "expert wait", &PhaseSeconds::expert_wait},
    {"lookahead", "lookahead", &PhaseSeconds::lookahead},
    {"head", "head", &PhaseSeconds::head},
    {"other", "other", &PhaseSeconds::other},
};

// Rows of label and one cell a setting, aligned.
class Table {
 public:
  void row(std::string label, std::vector<std::string> cells) {
    rows_.push_back({std::move(label), std::move(cells)});
  }
  std::string text() const {
    size_t label = 0;
    std::vector<size_t> widths;
    for (const auto& [name, cells] : rows_) {
      label = std::max(label, columns_of(name));
      widths.resize(std::max(widths.size(), cells.size()));
      for (size_t i = 0; i < cells.size(); ++i)
        widths[i] = std::max(widths[i], columns_of(cells[i]));
    }
    std::string out;
    for (const auto& [name, cells] : rows_) {
      out += pad_to(name, label);
      for (size_t i = 0; i < cells.size(); ++i)
        out.append("  ").append(i + 1 < cells.size() ? pad_to(cells[i], widths[i]) : cells[i]);
      out += "\n";
    }
    return out;
  }

 private:
  std::vector<std::pair<std::string, std::vector<std::string>>> rows_;
};

std::string giga(double rate, std::string_view unit) {
  return fmt::format("{:.1f} G{}/s", rate / 1e9, unit);
}

std::string milliseconds(double seconds) {
  return fmt::format("{:.3f} ms", seconds * 1e3);
}

void add_decode_rows(Table& table, std::span<const EngineRun> runs,
                     std::span<const EngineFigures> figures, const EngineBenchOptions& options) {
  const auto row = [&](std::string label, auto&& cell) {
    std::vector<std::string> cells;
    for (size_t i = 0; i < runs.size(); ++i) cells.push_back(cell(runs[i], figures[i]));
    table.row(std::move(label), std::move(cells));
  };
  row("floor", [](const EngineRun& run, const EngineFigures& f) {
    return fmt::format("{:.2f} × reading {} at {}", f.floor_ratio, format_bytes(run.active.total()),
                       giga(f.round.bandwidth, "B"));
  });
  row("reads a token", [&](const EngineRun&, const EngineFigures& f) {
    return fmt::format("{} at {}", format_bytes(f.round.engine.experts.bytes_read / options.count),
                       format_rate(f.read_rate));
  });
}

void add_prefill_rows(Table& table, std::span<const EngineFigures> figures) {
  std::vector<std::string> peak, reads;
  for (const EngineFigures& f : figures) {
    peak.push_back(f.peak_fraction ? fmt::format("{:.1f} % of {}", 100 * *f.peak_fraction,
                                                 giga(*f.round.int8_peak, "OP"))
                                   : "not known here");
    reads.push_back(fmt::format("{} at {}", format_bytes(f.round.engine.experts.bytes_read),
                                format_rate(f.read_rate)));
  }
  table.row("8-bit peak", std::move(peak));
  table.row("reads", std::move(reads));
}

}  // namespace

KernelFigures kernel_figures(const KernelRun& run, size_t setting) {
  const std::vector<double>& seconds = run.seconds[setting];
  KernelFigures out{};
  out.seconds = spread_of(seconds);
  const auto bytes = static_cast<double>(run.bytes[setting]);
  out.bytes_per_second = bytes / out.seconds.median;
  out.operations_per_second = run.operations / out.seconds.median;
  std::vector<double> of_memory, of_peak;
  for (size_t round = 0; round < seconds.size(); ++round) {
    of_memory.push_back(bytes / seconds[round] / run.bandwidth[round]);
    if (!run.int8_peak[setting].empty())
      of_peak.push_back(run.operations / seconds[round] / run.int8_peak[setting][round]);
  }
  out.bandwidth_fraction = spread_of(of_memory).median;
  if (!of_peak.empty()) out.peak_fraction = spread_of(of_peak).median;
  return out;
}

std::string kernel_table_head() {
  return fmt::format(
      "{:<7} {:<11} {:>13} {:>7}  {:<9} {:>7} {:>11} {:>11} {:>7} {:>9} {:>8} {:>7}\n", "op",
      "format", "shape", "tokens", "kernels", "threads", "median \u00b5s", "best \u00b5s", "GB/s",
      "of memory", "GOP/s", "of peak");
}

std::string kernel_table_row(const KernelCase& c, const KernelSetting& setting,
                             const KernelFigures& f) {
  return fmt::format(
      "{:<7} {:<11} {:>13} {:>7}  {:<9} {:>7} {:>11.1f} {:>11.1f} {:>7.1f} {:>7.0f} % {:>8.0f} "
      "{:>7}\n",
      kernel_op_name(c.op), format_name(read_format(c, *setting.kernels)),
      c.matrices > 1 ? fmt::format("{} {}x{}", c.matrices, c.rows, c.cols)
                     : fmt::format("{}x{}", c.rows, c.cols),
      c.tokens, setting.kernels->name, setting.threads->size(), f.seconds.median * 1e6,
      f.seconds.smallest * 1e6, f.bytes_per_second / 1e9, 100 * f.bandwidth_fraction,
      f.operations_per_second / 1e9,
      f.peak_fraction ? fmt::format("{:.0f} %", 100 * *f.peak_fraction) : "-");
}

Json kernel_json(const KernelCase& c, const KernelSetting& setting, const KernelRun& run,
                 size_t index) {
  const KernelFigures f = kernel_figures(run, index);
  const std::vector<double>& peak = run.int8_peak[index];
  return {{"op", kernel_op_name(c.op)},
          {"format", format_name(read_format(c, *setting.kernels))},
          {"rows", c.rows},
          {"cols", c.cols},
          {"tokens", c.tokens},
          {"matrices", c.matrices},
          {"kernels", setting.kernels->name},
          {"threads", setting.threads->size()},
          {"bytes", run.bytes[index]},
          {"operations", run.operations},
          {"seconds", f.seconds.median},
          {"seconds_smallest", f.seconds.smallest},
          {"seconds_largest", f.seconds.largest},
          {"bytes_per_second", f.bytes_per_second},
          {"operations_per_second", f.operations_per_second},
          {"memory_bandwidth", spread_of(run.bandwidth).median},
          {"bandwidth_fraction", f.bandwidth_fraction},
          {"int8_peak", peak.empty() ? Json(nullptr) : Json(spread_of(peak).median)},
          {"peak_fraction", optional_json(f.peak_fraction)}};
}

std::string engine_table(std::span<const EngineRun> runs, const EngineBenchOptions& options) {
  std::vector<EngineFigures> figures;
  for (const EngineRun& run : runs) figures.push_back(engine_figures(run, options));
  Table table;
  const auto row = [&](std::string label, auto&& cell) {
    std::vector<std::string> cells;
    for (size_t i = 0; i < runs.size(); ++i) cells.push_back(cell(runs[i], figures[i]));
    table.row(std::move(label), std::move(cells));
  };
  if (runs.size() == 2) table.row("", {"A", "B"});
  row("setting", [](const EngineRun& run, const EngineFigures&) {
    return fmt::format("{}, {} threads, {} slots, chunk {}; {}", run.kernels, run.plan.threads,
                       run.plan.slots, run.plan.chunk, run.io);
  });
  row("speed", [](const EngineRun&, const EngineFigures& f) {
    return fmt::format("{:.1f} tok/s ({:.1f} to {:.1f})", f.tokens_per_second, f.speed.smallest,
                       f.speed.largest);
  });
  if (options.work == EngineWork::decode)
    add_decode_rows(table, runs, figures, options);
  else
    add_prefill_rows(table, figures);
  row("hit rate", [](const EngineRun&, const EngineFigures& f) {
    return fmt::format("{:.1f} %", 100 * hit_rate(f.round.engine));
  });
  row("waiting", [](const EngineRun&, const EngineFigures& f) {
    const auto rate = rate_while_waiting(f.round.engine.experts);
    return fmt::format("{}{}, reads outstanding {:.0f} % of the time",
                       rate ? "at " + format_rate(*rate) : std::string("for no read"),
                       rate && f.round.read_rate_limit
                           ? " of " + format_rate(*f.round.read_rate_limit)
                           : std::string(),
                       100 * f.round.engine.experts.busy_seconds / f.round.seconds);
  });
  row("disk floor", [&](const EngineRun& run, const EngineFigures& f) {
    const auto floor = streaming_floor_seconds(f.round, options.work, run.experts_per_token);
    if (!floor) return std::string("nothing was read");
    return fmt::format("{:.2f} \u00d7 the {} a token that reads and what they cannot hide take",
                       f.round.seconds / *floor, milliseconds(*floor / options.count));
  });
  row("lookahead", [](const EngineRun& run, const EngineFigures& f) {
    const ExpertCounters& e = f.round.engine.experts;
    if (e.predicted == 0) return fmt::format("{}, read nothing ahead", run.lookahead);
    return fmt::format("{}, {} of {} reads ahead were right ({}), {} wasted, {} hidden",
                       run.lookahead, e.predicted_right, e.predicted, accuracy_range(f.round),
                       format_bytes(e.wasted_bytes), milliseconds(e.hidden_seconds));
  });
  row("memory", [](const EngineRun& run, const EngineFigures& f) {
    return fmt::format("peak {} of {}", format_bytes(f.round.engine.peak_rss_bytes),
                       format_bytes(run.plan.budget_bytes));
  });
  row("time a token", [&](const EngineRun&, const EngineFigures& f) {
    return milliseconds(f.round.seconds / options.count);
  });
  for (const Phase& phase : kPhases)
    row(fmt::format("  {}", phase.name), [&](const EngineRun&, const EngineFigures& f) {
      const double seconds = phases_of(f.round).*phase.seconds;
      return fmt::format("{:>12}  {:>3.0f} %", milliseconds(seconds / options.count),
                         100 * share(seconds, f.round.seconds));
    });
  return table.text();
}

Json engine_json(const EngineRun& run, const EngineBenchOptions& options) {
  const EngineFigures f = engine_figures(run, options);
  const EngineRound& round = f.round;
  const bool decode = options.work == EngineWork::decode;
  Json phases = Json::object();
  for (const Phase& phase : kPhases) phases[phase.key] = phases_of(round).*phase.seconds;
  Json out = {{"tokens", options.count},
              {"rounds", run.rounds.size()},
              {"tokens_per_second", f.tokens_per_second},
              {"tokens_per_second_by_round", speeds_of(run, options)},
              {"seconds", round.seconds},
              {"phase_seconds", phases},
              {"memory_bandwidth", round.bandwidth},
              {"int8_peak", optional_json(round.int8_peak)},
              {"bytes_read", round.engine.experts.bytes_read},
              {"read_rate", f.read_rate},
              {"read_rate_waiting", optional_json(rate_while_waiting(round.engine.experts))},
              {"read_rate_limit", optional_json(round.read_rate_limit)},
              {"streaming_floor_seconds",
               optional_json(streaming_floor_seconds(round, options.work, run.experts_per_token))},
              {"read_busy_share", round.engine.experts.busy_seconds / round.seconds},
              {"lookahead", run.lookahead},
              {"lookahead_accuracy", optional_json(lookahead_accuracy(round.engine.experts))},
              {"lookahead_accuracy_by_layer", accuracy_by_layer(round)},
              {"lookahead_reads", round.engine.experts.predicted},
              {"lookahead_reads_right", round.engine.experts.predicted_right},
              {"lookahead_wasted_bytes", round.engine.experts.wasted_bytes},
              {"lookahead_hidden_seconds", round.engine.experts.hidden_seconds},
              {"lookahead_delay_seconds", round.engine.experts.delay_seconds},
              {"hit_rate", hit_rate(round.engine)},
              {"peak_rss_bytes", round.engine.peak_rss_bytes},
              {"budget_bytes", run.plan.budget_bytes},
              {"kernels", run.kernels},
              {"io", run.io},
              {"threads", run.plan.threads},
              {"slots", run.plan.slots},
              {"usable_slots", round.engine.usable_slots},
              {"pool_shrinks", round.engine.pool_shrinks},
              {"chunk", run.plan.chunk},
              {"context", run.plan.context}};
  if (decode) {
    out["prompt_tokens"] = options.prompt_tokens;
    out["active_bytes_per_token"] = run.active.total();
    out["active_trunk_bytes"] = run.active.trunk;
    out["active_expert_bytes"] = run.active.experts;
    out["active_state_bytes"] = run.active.state;
    out["floor_ratio"] = f.floor_ratio;
    out["bytes_read_per_token"] =
        static_cast<double>(round.engine.experts.bytes_read) / options.count;
  } else {
    out["operations"] = run.prompt_operations;
    out["peak_fraction"] = optional_json(f.peak_fraction);
  }
  return out;
}

Comparison compare_speed(std::span<const EngineRun> runs, const EngineBenchOptions& options) {
  CHECK(runs.size() == 2);
  return compare_pairs(speeds_of(runs[0], options), speeds_of(runs[1], options));
}

std::string comparison_line(const Comparison& c, size_t rounds) {
  return fmt::format("B/A {:.3f}\u00d7 ({:.3f} to {:.3f}), B faster in {} of {} rounds, p = {:.2g}",
                     c.ratio.median, c.ratio.smallest, c.ratio.largest, c.larger, rounds,
                     c.p_value);
}

Json comparison_json(const Comparison& c, size_t rounds) {
  return {{"rounds", rounds},
          {"speed_ratio", c.ratio.median},
          {"speed_ratio_smallest", c.ratio.smallest},
          {"speed_ratio_largest", c.ratio.largest},
          {"b_faster", c.larger},
          {"a_faster", c.smaller},
          {"sign_test_p", c.p_value}};
}

}  // namespace wader
