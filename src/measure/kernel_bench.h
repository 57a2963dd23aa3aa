// Kernels alone: how fast each back end multiplies a weight matrix with activations, beside what
// the memory and the multipliers of this machine can do. Every round takes each of them in turn:
// on a machine that drifts only what was measured side by side can be compared.
#pragma once

#include <cstdint>
#include <optional>
#include <span>
#include <string_view>
#include <vector>

#include "base/result.h"
#include "base/thread_pool.h"
#include "kernels/ops.h"
#include "measure/machine_rates.h"

namespace wader {

// y (tokens, rows) = x (tokens, cols) · w (rows, cols)ᵀ, quantising x included.
struct KernelCase {
  std::string_view op;  // "matmul"
  MatrixFormat format;
  uint32_t rows, cols, tokens;
};

// Refuses shapes that no kernel takes, or whose memory is over kMaxCaseBytes.
Status check_kernel_case(const KernelCase& c);
constexpr uint64_t kMaxCaseBytes = uint64_t{4} << 30;

// The usual formats in the shapes of released models: GPT-OSS's and Qwen3's experts and
// projections, at the tokens of decode, of an expert in prefill and of a chunk; Qwen3's head; bf16.
std::vector<KernelCase> released_kernel_cases();

struct KernelSetting {
  const Kernels* kernels;
  ThreadPool* threads;
};

struct KernelRun {
  uint64_t bytes = 0;     // of the weights; with few tokens, each pass reads them from memory
  double operations = 0;  // multiplications and additions
  std::vector<std::vector<double>> seconds;  // (settings, rounds), of one call
  std::vector<double> bandwidth;             // (rounds), bytes per second
  std::vector<double> int8_peak;             // (rounds), operations per second; empty: unknown
};

// Takes 256 MiB and the case's own memory. At least one setting and one round.
Result<KernelRun> bench_kernel_case(const KernelCase& c, std::span<const KernelSetting> settings,
                                    uint32_t rounds, MachineRates& machine);

}  // namespace wader
