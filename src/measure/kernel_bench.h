// Kernels alone: how fast each back end multiplies, attends and moves recurrent states, beside what
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

enum class KernelOpKind : uint8_t {
  matmul,  // y (tokens, rows) = x (tokens, cols) · w (rows, cols)ᵀ, quantising x included
  attend,  // tokens rows over a context of `rows` positions, 8 KV heads of `cols`, 64 query heads
  delta,   // tokens rows through `rows` value heads of DeltaNet, states of cols × cols
};
constexpr KernelOpKind kKernelOps[] = {KernelOpKind::matmul, KernelOpKind::attend,
                                       KernelOpKind::delta};
std::string_view kernel_op_name(KernelOpKind op);

struct KernelCase {
  KernelOpKind op;
  MatrixFormat format;  // of the weights; attend and delta have none
  uint32_t rows, cols, tokens;
  // matmul: that many matrices times one x in one call, as a token's experts are; y has one for
  // each.
  uint32_t matrices = 1;
};
// What the setting's back end reads: the weights' format, that of its keys and values, f32.
MatrixFormat read_format(const KernelCase& c, const Kernels& kernels);

// Refuses shapes that no kernel takes, or whose memory is over kMaxCaseBytes.
Status check_kernel_case(const KernelCase& c);
constexpr uint64_t kMaxCaseBytes = uint64_t{4} << 30;

// The usual formats in the shapes of released models: GPT-OSS's and Qwen3's experts and
// projections, at the tokens of decode, of an expert in prefill and of a chunk; Qwen3's head; bf16;
// contexts of 1,024 and 8,192, and the states of Qwen3-Next.
std::vector<KernelCase> released_kernel_cases();

struct KernelSetting {
  const Kernels* kernels;
  ThreadPool* threads;
};

struct KernelRun {
  std::vector<uint64_t> bytes;  // (settings), read at least; with few tokens, from memory
  double operations = 0;        // multiplications and additions
  std::vector<std::vector<double>> seconds;  // (settings, rounds), of one call
  std::vector<double> bandwidth;             // (rounds), bytes per second
  // (settings, rounds), operations per second; no rounds: unknown.
  std::vector<std::vector<double>> int8_peak;
};

// Takes 256 MiB and the case's own memory. At least one setting and one round.
Result<KernelRun> bench_kernel_case(const KernelCase& c, std::span<const KernelSetting> settings,
                                    uint32_t rounds, MachineRates& machine);

}  // namespace wader
