// Figures of `wader bench` as people read them and as JSON. Rates are bytes or operations a
// second, sizes bytes.
#pragma once

#include <span>
#include <string>
#include <vector>

#include "base/json.h"
#include "measure/engine_bench.h"
#include "measure/kernel_bench.h"
#include "measure/statistics.h"

namespace wader {

// One case of `wader bench kernels` with one setting.
struct KernelFigures {
  Spread seconds;             // of one call
  double bytes_per_second;    // of the median
  double bandwidth_fraction;  // median of the rounds, each against its own bandwidth
  double operations_per_second;
  std::optional<double> peak_fraction;
};
KernelFigures kernel_figures(const KernelRun& run, size_t setting);

std::string kernel_table_head();
std::string kernel_table_row(const KernelCase& c, const KernelSetting& setting,
                             const KernelFigures& figures);
Json kernel_json(const KernelCase& c, const KernelSetting& setting, const KernelRun& run,
                 size_t index);

// Of one or two settings, each of at least one round.
std::string engine_table(std::span<const EngineRun> runs, const EngineBenchOptions& options);
Json engine_json(const EngineRun& run, const EngineBenchOptions& options);
// B's speed against A's, round by round.
Comparison compare_speed(std::span<const EngineRun> runs, const EngineBenchOptions& options);

// "B/A 1.32× (1.20 to 1.41), B faster in 8 of 9 rounds, p = 0.039".
std::string comparison_line(const Comparison& comparison, size_t rounds);
Json comparison_json(const Comparison& comparison, size_t rounds);

}  // namespace wader
