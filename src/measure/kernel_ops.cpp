#include "measure/kernel_ops.h"

#include <algorithm>
#include <cstring>
#include <numeric>
#include <random>
#include <vector>

#include "base/check.h"
#include "base/units.h"
#include "io/aligned_buffer.h"

namespace wader {
namespace {

constexpr uint32_t kRowsTogether = 32;  // of a thread, as in model/
constexpr uint32_t kDecodeTokens = 4;   // up to here weights come from memory, copy after copy

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
class Product final : public KernelOp {
 public:
  static Result<std::unique_ptr<KernelOp>> create(const KernelCase& c, int most_threads) {
    std::unique_ptr<Product> out(new Product(c));
    ASSIGN_OR_RETURN(out->weights_, AlignedBuffer::allocate(out->stride_ * out->copies_,
                                                            AlignedBuffer::Pages::huge));
    ASSIGN_OR_RETURN(out->scratch_, AlignedBuffer::allocate(
                                        static_cast<uint64_t>(most_threads) *
                                        matmul_scratch_floats(c.cols, c.tokens) * sizeof(float)));
    out->fill();
    return std::unique_ptr<KernelOp>(std::move(out));
  }

  // As model/ does it: quantise, then a slice of all matrices' rows a thread.
  void run(const KernelSetting& setting) override {
    const Kernels& k = *setting.kernels;
    const QuantisedRows xq = {codes_.data(),     scales_.data(), sums_.data(),
                              code_sums_.data(), c_.cols,        c_.cols / kActivationBlock};
    const bool integer = k.quantise_row != nullptr && !is_plain_float(c_.format.dtype);
    if (integer) quantise(setting, xq);
    const int64_t blocks = (c_.rows + kRowsTogether - 1) / kRowsTogether;
    setting.threads->parallel_for(blocks * c_.matrices, 1, [&](ThreadPool::Slice slice) {
      for (int64_t at = slice.begin; at < slice.end;) {
        const int64_t matrix = at / blocks, end = std::min(slice.end, (matrix + 1) * blocks);
        const auto row = static_cast<uint32_t>(at - matrix * blocks) * kRowsTogether;
        const auto rows = static_cast<uint32_t>(end - at) * kRowsTogether;
        multiply(k, integer ? &xq : nullptr, static_cast<uint32_t>(matrix), row,
                 std::min(row + rows, c_.rows), slice.worker);
        at = end;
      }
    });
    next_ += c_.matrices;
  }

  uint64_t bytes(const Kernels&) const override { return matrix_bytes_ * c_.matrices; }
  double operations() const override { return 2.0 * c_.rows * c_.cols * c_.tokens * c_.matrices; }

 private:
  explicit Product(const KernelCase& c)
      : c_(c),
        matrix_bytes_(*matrix_bytes(c.format, c.rows, c.cols)),
        stride_(align_up(matrix_bytes_, 4096)),
        copies_(c.tokens > kDecodeTokens
                    ? c.matrices
                    : std::max<uint64_t>(c.matrices, kBandwidthBytes / stride_)) {}

  void fill() {
    std::mt19937_64 random(1);
    fill_matrix(view(0), weights_.data(), random);
    for (uint64_t i = 1; i < copies_; ++i)
      std::memcpy(weights_.data() + i * stride_, weights_.data(), matrix_bytes_);
    x_.resize(static_cast<size_t>(c_.tokens) * c_.cols);
    for (float& value : x_) value = static_cast<float>(random() % 2001) / 1000 - 1;
    y_.resize(static_cast<size_t>(c_.tokens) * c_.rows * c_.matrices);
    // Like slots of a cache: a call's matrices do not lie in their order.
    order_.resize(copies_);
    std::iota(order_.begin(), order_.end(), 0);
    std::shuffle(order_.begin(), order_.end(), random);
    codes_.resize(x_.size());
    scales_.resize(x_.size() / kActivationBlock);
    sums_.resize(scales_.size());
    code_sums_.resize(scales_.size());
  }

  void multiply(const Kernels& kernels, const QuantisedRows* xq, uint32_t matrix,
                uint32_t row_begin, uint32_t row_end, int worker) {
    const size_t scratch = matmul_scratch_floats(c_.cols, c_.tokens) * static_cast<size_t>(worker);
    kernels.matmul({.y = y_.data() + size_t{matrix} * c_.tokens * c_.rows,
                    .y_stride = c_.rows,
                    .x = x_.data(),
                    .x_stride = c_.cols,
                    .tokens = c_.tokens,
                    .w = view(order_[(next_ + matrix) % copies_]),
                    .bias = nullptr,
                    .row_begin = row_begin,
                    .row_end = row_end,
                    .scratch = reinterpret_cast<float*>(scratch_.data()) + scratch,
                    .xq = xq});
  }

  void quantise(const KernelSetting& setting, const QuantisedRows& xq) {
    setting.threads->parallel_for(c_.tokens, 4, [&](ThreadPool::Slice slice) {
      for (auto t = static_cast<size_t>(slice.begin); t < static_cast<size_t>(slice.end); ++t)
        setting.kernels->quantise_row(
            codes_.data() + t * xq.codes_stride, scales_.data() + t * xq.blocks_stride,
            sums_.data() + t * xq.blocks_stride, code_sums_.data() + t * xq.blocks_stride,
            x_.data() + t * c_.cols, c_.cols, activation_block(c_.format));
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
  std::vector<uint32_t> order_;
};

}  // namespace

Result<std::unique_ptr<KernelOp>> make_kernel_op(const KernelCase& c, int most_threads) {
  switch (c.op) {
    case KernelOpKind::matmul:
      return Product::create(c, most_threads);
    case KernelOpKind::attend:
      return make_attend_op(c, most_threads);
    case KernelOpKind::delta:
      return make_delta_op(c);
  }
  UNREACHABLE("no such case");
}

}  // namespace wader
