#include "measure/kernel_bench.h"

#include <gtest/gtest.h>

#include "io/aligned_buffer.h"

namespace wader {
namespace {

struct Machine {
  ThreadPool threads{2};
  AlignedBuffer memory = AlignedBuffer::allocate(1 << 20).value();
  MachineRates rates{threads, memory.span()};
};

TEST(MachineRates, AreThereAndSane) {
  Machine machine;
  EXPECT_GT(machine.rates.read_bytes_per_second(), 1e7);
  bool wide = false;
  for (const Kernels* kernels : available_kernels()) wide = wide || kernels->name == "avx512";
  EXPECT_EQ(machine.rates.int8_operations_per_second("avx512").has_value(), wide);
  if (wide) EXPECT_GT(*machine.rates.int8_operations_per_second("avx512"), 1e9);
}

TEST(KernelBench, EveryBackEndEveryRound) {
  Machine machine;
  std::vector<KernelSetting> settings;
  for (const Kernels* kernels : available_kernels())
    settings.push_back({kernels, &machine.threads});
  for (const MatrixFormat format : {MatrixFormat(DType::mxfp4), MatrixFormat(DType::affine4, 32),
                                    MatrixFormat(DType::affine8), MatrixFormat(DType::bf16)}) {
    const KernelCase c = {KernelOpKind::matmul, format, 48, 64, 9};
    ASSERT_TRUE(check_kernel_case(c).ok()) << format_name(format);
    const auto run = bench_kernel_case(c, settings, 2, machine.rates);
    ASSERT_TRUE(run.ok()) << run.error().message;
    EXPECT_EQ(run->bytes, std::vector(settings.size(), *matrix_bytes(format, 48, 64)));
    EXPECT_EQ(run->operations, 2 * 48 * 64 * 9);
    ASSERT_EQ(run->seconds.size(), settings.size());
    for (const auto& seconds : run->seconds) {
      ASSERT_EQ(seconds.size(), 2u);
      for (const double s : seconds) EXPECT_GT(s, 0);
    }
    EXPECT_EQ(run->bandwidth.size(), 2u);
  }
}

TEST(KernelBench, ManyMatricesOfOneCall) {
  Machine machine;
  std::vector<KernelSetting> settings;
  for (const Kernels* kernels : available_kernels())
    settings.push_back({kernels, &machine.threads});
  for (const uint32_t tokens : {1u, 9u}) {
    const KernelCase c = {KernelOpKind::matmul, DType::mxfp4, 48, 64, tokens, 5};
    const auto run = bench_kernel_case(c, settings, 1, machine.rates);
    ASSERT_TRUE(run.ok()) << run.error().message;
    EXPECT_EQ(run->bytes[0], 5 * *matrix_bytes(DType::mxfp4, 48, 64));
    EXPECT_EQ(run->operations, 2.0 * 48 * 64 * tokens * 5);
  }
  EXPECT_FALSE(check_kernel_case({KernelOpKind::matmul, DType::mxfp4, 48, 64, 1, 0}).ok());
  EXPECT_FALSE(check_kernel_case({KernelOpKind::matmul, DType::mxfp4, 1u << 20, 4096, 1, 2}).ok());
  EXPECT_FALSE(check_kernel_case({KernelOpKind::attend, {}, 70, 16, 5, 2}).ok());
}

TEST(KernelBench, AttentionAndStates) {
  Machine machine;
  std::vector<KernelSetting> settings;
  for (const Kernels* kernels : available_kernels())
    settings.push_back({kernels, &machine.threads});
  const KernelCase attend = {KernelOpKind::attend, {}, 70, 16, 5};
  ASSERT_TRUE(check_kernel_case(attend).ok());
  const auto attended = bench_kernel_case(attend, settings, 1, machine.rates);
  ASSERT_TRUE(attended.ok()) << attended.error().message;
  EXPECT_EQ(attended->operations, 4.0 * 70 * 16 * 64 * 5);
  for (size_t i = 0; i < settings.size(); ++i)
    EXPECT_EQ(attended->bytes[i], 2 * 8 * 70 * 16 * dtype_bytes(settings[i].kernels->kv_dtype));
  // 33 rows: a block with its fold, and one in the middle of another.
  const auto state =
      bench_kernel_case({KernelOpKind::delta, {}, 3, 16, 33}, settings, 1, machine.rates);
  ASSERT_TRUE(state.ok()) << state.error().message;
  EXPECT_EQ(state->bytes[0], 3 * 16 * 16 * 4);
  EXPECT_EQ(state->operations, 33 * (4.0 * 3 * 256 + 16 * 8.0 * 16 * 3) + 2.0 * 32 * 3 * 256);
  for (const KernelOpKind op : {KernelOpKind::attend, KernelOpKind::delta}) {
    EXPECT_FALSE(check_kernel_case({op, {}, 0, 16, 1}).ok());
    EXPECT_FALSE(check_kernel_case({op, {}, 16, 0, 1}).ok());
    EXPECT_FALSE(check_kernel_case({op, {}, 16, 16, 0}).ok());
    EXPECT_FALSE(check_kernel_case({op, {}, ~0u, ~0u, ~0u}).ok());
    EXPECT_FALSE(check_kernel_case({op, {}, 1u << 20, 1024, 1}).ok());
  }
}

TEST(KernelBench, ShapesAreChecked) {
  const auto ok = [](MatrixFormat format, uint32_t rows, uint32_t cols, uint32_t tokens) {
    return check_kernel_case({KernelOpKind::matmul, format, rows, cols, tokens}).ok();
  };
  EXPECT_TRUE(ok(DType::mxfp4, 1, 32, 1));
  EXPECT_FALSE(ok(DType::affine4, 1, 32, 1));  // groups of 64
  EXPECT_FALSE(ok(DType::mxfp4, 1, 40, 1));
  EXPECT_FALSE(ok(DType::bf16, 1, 40, 1));  // activations come in blocks of 32
  EXPECT_FALSE(ok(DType::mxfp4, 0, 32, 1));
  EXPECT_FALSE(ok(DType::mxfp4, 1, 0, 1));
  EXPECT_FALSE(ok(DType::mxfp4, 1, 32, 0));
  EXPECT_FALSE(ok(DType::i64, 1, 32, 1));
  EXPECT_FALSE(ok(DType::mxfp4, ~0u, ~0u - 31, 1));
  EXPECT_FALSE(ok(DType::mxfp4, 1u << 20, 32, 1u << 16));
  for (const KernelCase& c : released_kernel_cases()) EXPECT_TRUE(check_kernel_case(c).ok());
}

}  // namespace
}  // namespace wader
