#include "measure/kernel_bench.h"

#include <algorithm>
#include <cstring>
#include <random>

#include "base/check.h"
#include "base/error.h"
#include "base/units.h"
#include "io/aligned_buffer.h"
#include "measure/stopwatch.h"

namespace wader {
namespace {

constexpr double kSampleSeconds = 0.004;  // of one round of one setting, or one call
constexpr uint32_t kDecodeTokens = 4;     // up to here weights come from memory, copy after copy

// Codes at random; scales, biases and plain values small and ordinary, of either sign.
void fill_matrix(const MatrixView& m, std::byte* to, std::mt19937_64& random) {
  const RowBytes row = *row_bytes(m.format, m.cols);
  const uint64_t total = row.total() * m.rows;
  const uint64_t codes = is_plain_float(m.format.dtype) ? 0 : row.codes * m.rows;
  for (uint64_t i = 0; i < codes; i += 8) {
    const uint64_t bits = random();
    std::memcpy(to + i, &bits, std::min<uint64_t>(8, codes - i));
  }
  if (m.format.dtype == DType::mxfp4) {
    for (uint64_t i = codes; i < total; ++i) to[i] = static_cast<std::byte>(118 + random() % 8);
    return;
  }
  // As bf16 ± 2^-7 … 2^-5; as f16, about 1.
  for (uint64_t i = codes; i < total; i += 2) {
    const auto bits = static_cast<uint16_t>(0x3c00 + (random() & 0x80ff));
    std::memcpy(to + i, &bits, 2);
  }
}

// One case's memory, and a product of it.
class Product {
 public:
  static Result<Product> create(const KernelCase& c, int most_threads) {
    Product out(c);
    ASSIGN_OR_RETURN(out.weights_, AlignedBuffer::allocate(out.stride_ * out.copies_));
    ASSIGN_OR_RETURN(out.scratch_,
                     AlignedBuffer::allocate(static_cast<uint64_t>(most_threads) *
                                             matmul_scratch_floats(c.cols) * sizeof(float)));
    out.fill();
    return out;
  }

  // As model/linear.h does it: quantise, then a slice of rows a thread.
  void multiply(const KernelSetting& setting) {
    const Kernels& k = *setting.kernels;
    const MatrixView w = view(next_++ % copies_);
    const QuantisedRows xq = {codes_.data(),     scales_.data(), sums_.data(),
                              code_sums_.data(), c_.cols,        c_.cols / kActivationBlock};
    const bool integer = k.quantise_row != nullptr && !is_plain_float(c_.format.dtype);
    if (integer) quantise(setting, xq);
    setting.threads->parallel_for(c_.rows, 16, [&](ThreadPool::Slice slice) {
      auto* scratch = reinterpret_cast<float*>(scratch_.data());
      k.matmul(
          {.y = y_.data(),
           .y_stride = c_.rows,
           .x = x_.data(),
           .x_stride = c_.cols,
           .tokens = c_.tokens,
           .w = w,
           .bias = nullptr,
           .row_begin = static_cast<uint32_t>(slice.begin),
           .row_end = static_cast<uint32_t>(slice.end),
           .scratch = scratch + static_cast<size_t>(slice.worker) * matmul_scratch_floats(c_.cols),
           .xq = integer ? &xq : nullptr});
    });
  }

  uint64_t bytes() const { return matrix_bytes_; }

 private:
  explicit Product(const KernelCase& c)
      : c_(c),
        matrix_bytes_(*matrix_bytes(c.format, c.rows, c.cols)),
        stride_(align_up(matrix_bytes_, 4096)),
        copies_(c.tokens > kDecodeTokens ? 1 : std::max<uint64_t>(1, kBandwidthBytes / stride_)) {}

  void fill() {
    std::mt19937_64 random(1);
    fill_matrix(view(0), weights_.data(), random);
    for (uint64_t i = 1; i < copies_; ++i)
      std::memcpy(weights_.data() + i * stride_, weights_.data(), matrix_bytes_);
    x_.resize(static_cast<size_t>(c_.tokens) * c_.cols);
    for (float& value : x_) value = static_cast<float>(random() % 2001) / 1000 - 1;
    y_.resize(static_cast<size_t>(c_.tokens) * c_.rows);
    codes_.resize(x_.size());
    scales_.resize(x_.size() / kActivationBlock);
    sums_.resize(scales_.size());
    code_sums_.resize(scales_.size());
  }

  void quantise(const KernelSetting& setting, const QuantisedRows& xq) {
    setting.threads->parallel_for(c_.tokens, 8, [&](ThreadPool::Slice slice) {
      for (auto t = static_cast<size_t>(slice.begin); t < static_cast<size_t>(slice.end); ++t)
        setting.kernels->quantise_row(
            codes_.data() + t * xq.codes_stride, scales_.data() + t * xq.blocks_stride,
            sums_.data() + t * xq.blocks_stride, code_sums_.data() + t * xq.blocks_stride,
            x_.data() + t * c_.cols, c_.cols);
    });
  }

  MatrixView view(uint64_t copy) const {
    return matrix_view(c_.format, c_.rows, c_.cols,
                       {weights_.data() + copy * stride_, static_cast<size_t>(matrix_bytes_)});
  }

  KernelCase c_;
  uint64_t matrix_bytes_, stride_, copies_, next_ = 0;
  AlignedBuffer weights_, scratch_;
  std::vector<float> x_, y_, scales_, sums_;
  std::vector<int8_t> codes_;
  std::vector<int32_t> code_sums_;
};

}  // namespace

Status check_kernel_case(const KernelCase& c) {
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
  if (*bytes > kMaxCaseBytes || values > kMaxCaseBytes / sizeof(float))
    return invalid_argument_error("a shape of {} × {} for {} tokens takes more than {}", c.rows,
                                  c.cols, c.tokens, format_bytes(kMaxCaseBytes));
  return {};
}

std::vector<KernelCase> released_kernel_cases() {
  constexpr uint32_t kShapes[][2] = {{2880, 2880}, {5760, 2880}, {2048, 768}, {1536, 2048}};
  std::vector<KernelCase> cases;
  for (const DType dtype : {DType::mxfp4, DType::affine4, DType::affine8})
    for (const auto& [rows, cols] : kShapes)
      for (const uint32_t tokens : {1u, 16u, 128u})
        cases.push_back({"matmul", dtype, rows, cols, tokens});
  // A trunk that was not quantised.
  for (const uint32_t tokens : {1u, 16u})
    cases.push_back({"matmul", DType::bf16, 2880, 2880, tokens});
  for (const uint32_t tokens : {1u, 4u})
    cases.push_back({"matmul", DType::affine8, 151936, 2048, tokens});
  return cases;
}

Result<KernelRun> bench_kernel_case(const KernelCase& c, std::span<const KernelSetting> settings,
                                    uint32_t rounds, MachineRates& machine) {
  CHECK(!settings.empty() && rounds >= 1 && check_kernel_case(c).ok());
  int most_threads = 1;
  for (const KernelSetting& setting : settings)
    most_threads = std::max(most_threads, setting.threads->size());
  ASSIGN_OR_RETURN(Product product, Product::create(c, most_threads));
  KernelRun run;
  run.bytes = product.bytes();
  run.operations = 2.0 * c.rows * c.cols * c.tokens;
  run.seconds.resize(settings.size());
  std::vector<int> calls;
  for (const KernelSetting& setting : settings) {
    const double once = seconds_of([&] { product.multiply(setting); });
    calls.push_back(std::clamp(static_cast<int>(kSampleSeconds / once), 1, 1000));
  }
  for (uint32_t round = 0; round < rounds; ++round) {
    run.bandwidth.push_back(machine.read_bytes_per_second());
    if (const auto peak = machine.int8_operations_per_second()) run.int8_peak.push_back(*peak);
    for (size_t i = 0; i < settings.size(); ++i)
      run.seconds[i].push_back(seconds_of([&] {
                                 for (int call = 0; call < calls[i]; ++call)
                                   product.multiply(settings[i]);
                               }) /
                               calls[i]);
  }
  return run;
}

}  // namespace wader
