#include "measure/kernel_bench.h"

#include <algorithm>
#include <utility>

#include "base/check.h"
#include "base/error.h"
#include "base/units.h"
#include "measure/kernel_ops.h"
#include "measure/stopwatch.h"

namespace wader {
namespace {

constexpr double kSampleSeconds = 0.004;  // of one round of one setting, or one call
// Far beyond released models, and under the limit of memory.
Status check_sequence_case(const KernelCase& c) {
  const bool attend = c.op == KernelOpKind::attend;
  const uint64_t values = attend ? 16 * (uint64_t{c.rows} + 8 * uint64_t{c.tokens}) * c.cols
                                 : uint64_t{c.rows} * c.cols * (c.cols + 2 * uint64_t{kDeltaBlock});
  if (c.rows == 0 || c.cols == 0 || c.tokens == 0 || c.cols > 1024 || c.rows > 1u << 20 ||
      c.tokens > 1u << 16 || values > kMaxCaseBytes / sizeof(float))
    return invalid_argument_error(
        "a shape of {} × {} for {} tokens is not one that {} is measured with: heads of up to "
        "1024, "
        "and at most {}",
        c.rows, c.cols, c.tokens, kernel_op_name(c.op), format_bytes(kMaxCaseBytes));
  return {};
}

}  // namespace

std::string_view kernel_op_name(KernelOpKind op) {
  switch (op) {
    case KernelOpKind::matmul:
      return "matmul";
    case KernelOpKind::attend:
      return "attend";
    case KernelOpKind::delta:
      return "delta";
  }
  UNREACHABLE("no such case");
}

MatrixFormat read_format(const KernelCase& c, const Kernels& kernels) {
  if (c.op == KernelOpKind::matmul) return c.format;
  return c.op == KernelOpKind::attend ? kernels.kv_dtype : DType::f32;
}

Status check_kernel_case(const KernelCase& c) {
  if (c.matrices == 0 || (c.matrices > 1 && c.op != KernelOpKind::matmul))
    return invalid_argument_error("{} is not measured with {} matrices", kernel_op_name(c.op),
                                  c.matrices);
  if (c.op != KernelOpKind::matmul) return check_sequence_case(c);
  if (!is_plain_float(c.format.dtype) && !is_affine(c.format.dtype) &&
      c.format.dtype != DType::mxfp4)
    return invalid_argument_error("{} is not a format of weight matrices", format_name(c.format));
  if (c.rows == 0 || c.cols == 0 || c.tokens == 0)
    return invalid_argument_error("a shape of {} × {} for {} tokens is empty", c.rows, c.cols,
                                  c.tokens);
  const auto bytes = matrix_bytes(c.format, c.rows, c.cols);
  if (c.cols % kActivationBlock != 0 || !bytes)
    return invalid_argument_error("{} columns are not whole blocks of {} in format {}", c.cols,
                                  std::max<uint32_t>(c.format.group, kActivationBlock),
                                  format_name(c.format));
  const uint64_t values = uint64_t{c.tokens} * (uint64_t{c.rows} + 2 * uint64_t{c.cols});
  const uint64_t most = kMaxCaseBytes / c.matrices;
  if (*bytes > most || values > most / sizeof(float))
    return invalid_argument_error(
        "a shape of {} × {} for {} tokens and {} matrices takes more than {}", c.rows, c.cols,
        c.tokens, c.matrices, format_bytes(kMaxCaseBytes));
  return {};
}

std::vector<KernelCase> released_kernel_cases() {
  constexpr uint32_t kShapes[][2] = {{2880, 2880}, {5760, 2880}, {2048, 768}, {1536, 2048}};
  std::vector<KernelCase> cases;
  for (const DType dtype : {DType::mxfp4, DType::affine4, DType::affine8})
    for (const auto& [rows, cols] : kShapes)
      for (const uint32_t tokens : {1u, 16u, 128u})
        cases.push_back({KernelOpKind::matmul, dtype, rows, cols, tokens});
  // A trunk that was not quantised.
  for (const uint32_t tokens : {1u, 16u})
    cases.push_back({KernelOpKind::matmul, DType::bf16, 2880, 2880, tokens});
  for (const uint32_t tokens : {1u, 4u})
    cases.push_back({KernelOpKind::matmul, DType::affine8, 151936, 2048, tokens});
  // Rows of attention do not share anything: sixteen say what a chunk does.
  for (const auto& [positions, tokens] : {std::pair{1024u, 1u}, {1024u, 16u}, {8192u, 1u}})
    cases.push_back({KernelOpKind::attend, {}, positions, 128, tokens});
  for (const uint32_t tokens : {1u, kDeltaBlock})
    cases.push_back({KernelOpKind::delta, {}, 32, 128, tokens});
  return cases;
}

Result<KernelRun> bench_kernel_case(const KernelCase& c, std::span<const KernelSetting> settings,
                                    uint32_t rounds, MachineRates& machine) {
  CHECK(!settings.empty() && rounds >= 1 && check_kernel_case(c).ok());
  int most_threads = 1;
  for (const KernelSetting& setting : settings)
    most_threads = std::max(most_threads, setting.threads->size());
  ASSIGN_OR_RETURN(const auto op, make_kernel_op(c, most_threads));
  KernelRun run;
  for (const KernelSetting& setting : settings) run.bytes.push_back(op->bytes(*setting.kernels));
  run.operations = op->operations();
  run.seconds.resize(settings.size());
  run.int8_peak.resize(settings.size());
  std::vector<int> calls;
  for (const KernelSetting& setting : settings) {
    const double once = seconds_of([&] { op->run(setting); });
    calls.push_back(std::clamp(static_cast<int>(kSampleSeconds / once), 1, 1000));
  }
  for (uint32_t round = 0; round < rounds; ++round) {
    run.bandwidth.push_back(machine.read_bytes_per_second());
    for (size_t i = 0; i < settings.size(); ++i) {
      if (const auto peak = machine.int8_operations_per_second(settings[i].kernels->name))
        run.int8_peak[i].push_back(*peak);
      run.seconds[i].push_back(seconds_of([&] {
                                 for (int call = 0; call < calls[i]; ++call) op->run(settings[i]);
                               }) /
                               calls[i]);
    }
  }
  return run;
}

}  // namespace wader
