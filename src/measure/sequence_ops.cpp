// What mixes positions: attention over a context, DeltaNet's blocks.
#include <algorithm>
#include <cmath>
#include <cstring>
#include <random>
#include <vector>

#include "base/units.h"
#include "io/aligned_buffer.h"
#include "measure/kernel_ops.h"

namespace wader {
namespace {

constexpr uint64_t kCopiesBytes = 128 * kMiB;  // copies in turn come from memory
constexpr uint32_t kDecodeTokens = 4;

std::vector<float> random_floats(size_t count, uint64_t seed) {
  std::mt19937_64 random(seed);
  std::vector<float> values(count);
  for (float& value : values) value = static_cast<float>(random() % 2001) / 1000 - 1;
  return values;
}

uint64_t copies_of(uint64_t bytes, uint32_t tokens) {
  return tokens > kDecodeTokens ? 1 : std::max<uint64_t>(1, kCopiesBytes / bytes);
}

// `tokens` rows, each with eight query heads to each of eight KV heads (as GPT-OSS and Qwen3 have
// it), over a context of `rows` positions with heads of `cols`.
class AttendOp final : public KernelOp {
 public:
  static Result<std::unique_ptr<KernelOp>> create(const KernelCase& c, int most_threads) {
    std::unique_ptr<AttendOp> op(new AttendOp(c));
    ASSIGN_OR_RETURN(op->scratch_, AlignedBuffer::allocate(static_cast<uint64_t>(most_threads) *
                                                           op->scratch_floats() * sizeof(float)));
    for (const Kernels* kernels : available_kernels())
      if (!op->planes_of(*kernels).memory.size()) RETURN_IF_ERROR(op->fill(*kernels));
    return std::unique_ptr<KernelOp>(std::move(op));
  }

  void run(const KernelSetting& setting) override {
    const Kernels& k = *setting.kernels;
    Planes& planes = planes_of(k);
    const std::byte* keys = planes.memory.data() + planes.next++ % planes.copies * cache_bytes(k);
    const std::byte* values = keys + kKvHeads * head_bytes(k);
    setting.threads->parallel_for(int64_t{c_.tokens} * kKvHeads, 1, [&](ThreadPool::Slice slice) {
      for (auto i = static_cast<size_t>(slice.begin); i < static_cast<size_t>(slice.end); ++i)
        k.attend({.out = out_.data() + i * kQueries * c_.cols,
                  .q = q_.data() + i * kQueries * c_.cols,
                  .queries = kQueries,
                  .k = keys + i % kKvHeads * head_bytes(k),
                  .v = values + i % kKvHeads * head_bytes(k),
                  .head_dim = c_.cols,
                  .capacity = capacity_,
                  .first = 0,
                  .last = c_.rows - 1,
                  .scale = 1.0f / std::sqrt(static_cast<float>(c_.cols)),
                  .sinks = nullptr,
                  .scratch = reinterpret_cast<float*>(scratch_.data()) +
                             static_cast<size_t>(slice.worker) * scratch_floats()});
    });
  }

  uint64_t bytes(const Kernels& k) const override {
    return 2 * uint64_t{kKvHeads} * c_.rows * c_.cols * dtype_bytes(k.kv_dtype);
  }
  double operations() const override {
    return 4.0 * c_.rows * c_.cols * kKvHeads * kQueries * c_.tokens;
  }

 private:
  static constexpr uint32_t kKvHeads = 8, kQueries = 8;
  struct Planes {  // of one kv_dtype: copies of (k and v, kv heads, capacity, head_dim)
    AlignedBuffer memory;
    uint64_t copies = 0, next = 0;
  };

  explicit AttendOp(const KernelCase& c)
      : c_(c),
        capacity_(static_cast<uint32_t>(align_up(c.rows, kAttentionBlock))),
        q_(random_floats(size_t{c.tokens} * kKvHeads * kQueries * c.cols, 2)),
        out_(q_.size()) {}

  Status fill(const Kernels& k) {
    Planes& planes = planes_of(k);
    planes.copies = copies_of(cache_bytes(k), c_.tokens);
    ASSIGN_OR_RETURN(planes.memory, AlignedBuffer::allocate(planes.copies * cache_bytes(k)));
    const std::vector<float> row = random_floats(size_t{c_.cols} * 97, 3);
    std::byte* const keys = planes.memory.data();
    std::byte* const values = keys + kKvHeads * head_bytes(k);
    for (uint32_t position = 0; position < c_.rows * kKvHeads; ++position)
      k.store_kv({.k = keys + position / c_.rows * head_bytes(k),
                  .v = values + position / c_.rows * head_bytes(k),
                  .head_dim = c_.cols,
                  .capacity = capacity_,
                  .position = position % c_.rows,
                  .key = row.data() + position % 97 * size_t{c_.cols},
                  .value = row.data() + position % 89 * size_t{c_.cols}});
    for (uint64_t copy = 1; copy < planes.copies; ++copy)
      std::memcpy(keys + copy * cache_bytes(k), keys, cache_bytes(k));
    return {};
  }

  Planes& planes_of(const Kernels& k) { return planes_[k.kv_dtype == DType::f32 ? 0 : 1]; }
  uint64_t head_bytes(const Kernels& k) const {
    return uint64_t{capacity_} * c_.cols * dtype_bytes(k.kv_dtype);
  }
  uint64_t cache_bytes(const Kernels& k) const { return 2 * kKvHeads * head_bytes(k); }
  size_t scratch_floats() const { return (attend_scratch_floats(kQueries) + 15) / 16 * 16; }

  KernelCase c_;
  uint32_t capacity_;
  std::vector<float> q_, out_;
  AlignedBuffer scratch_;
  Planes planes_[2];
};

// `tokens` rows through `rows` value heads with a state of cols × cols each: in whole blocks, each
// with the fold before it; fewer rows than a block stand in its middle.
class DeltaOp final : public KernelOp {
 public:
  static Result<std::unique_ptr<KernelOp>> create(const KernelCase& c) {
    std::unique_ptr<DeltaOp> op(new DeltaOp(c));
    const uint64_t bytes = op->state_floats() * sizeof(float);
    op->copies_ = copies_of(bytes, c.tokens);
    ASSIGN_OR_RETURN(op->states_, AlignedBuffer::allocate(op->copies_ * bytes));
    const std::vector<float> values = random_floats(op->state_floats(), 4);
    for (uint64_t copy = 0; copy < op->copies_; ++copy)
      std::memcpy(op->states_.data() + copy * bytes, values.data(), bytes);
    return std::unique_ptr<KernelOp>(std::move(op));
  }

  void run(const KernelSetting& setting) override {
    const Kernels& k = *setting.kernels;
    float* const states =
        reinterpret_cast<float*>(states_.data()) + next_++ % copies_ * state_floats();
    setting.threads->parallel_for(c_.rows, 1, [&](ThreadPool::Slice slice) {
      for (auto head = static_cast<size_t>(slice.begin); head < static_cast<size_t>(slice.end);
           ++head)
        run_head(k, states + head * c_.cols * c_.cols, head);
    });
  }

  uint64_t bytes(const Kernels&) const override { return state_floats() * sizeof(float); }
  double operations() const override {
    const double state = static_cast<double>(state_floats());
    // Two products with the state a row; with the pairs before it, two dots and two sums each.
    const double pairs = kDeltaBlock / 2 * 8.0 * c_.cols * c_.rows;
    const double folds = whole_blocks() * 2.0 * kDeltaBlock * state;
    return c_.tokens * (4 * state + pairs) + folds;
  }

 private:
  explicit DeltaOp(const KernelCase& c)
      : c_(c),
        keys_(random_floats(size_t{kDeltaBlock} * c.cols, 5)),
        deltas_(random_floats(size_t{c.rows} * kDeltaBlock * c.cols, 6)),
        y_(size_t{c.rows} * kDeltaBlock * c.cols),
        beta_(kDeltaBlock, 0.5f),
        log_decay_(kDeltaBlock) {
    // Unit keys keep the recurrence from growing.
    for (uint32_t i = 0; i < kDeltaBlock; ++i) {
      float* key = keys_.data() + size_t{i} * c.cols;
      kRefKernels.l2_norm(key, c.cols, 1e-6f, 1.0f);
      log_decay_[i] = -0.01 * (i + 1);
    }
  }

  void run_head(const Kernels& k, float* state, size_t head) {
    const size_t at = head * kDeltaBlock * c_.cols;
    const auto block = [&](uint32_t begin, uint32_t end) {
      k.delta_block({.key_dim = c_.cols,
                     .value_dim = c_.cols,
                     .begin = begin,
                     .end = end,
                     .state = state,
                     .keys = keys_.data(),
                     .log_decay = log_decay_.data(),
                     .deltas = deltas_.data() + at,
                     .q = keys_.data(),
                     .q_stride = c_.cols,
                     .v = keys_.data(),
                     .v_stride = c_.cols,
                     .beta = beta_.data(),
                     .beta_stride = 1,
                     .y = y_.data() + at,
                     .y_stride = c_.cols});
    };
    for (uint32_t i = 0; i < whole_blocks(); ++i) {
      k.delta_fold({c_.cols, c_.cols, state, keys_.data(), log_decay_.data(), deltas_.data() + at});
      block(0, kDeltaBlock);
    }
    const uint32_t rest = c_.tokens % kDeltaBlock, begin = (kDeltaBlock - rest) / 2;
    if (rest > 0) block(begin, begin + rest);
  }

  uint32_t whole_blocks() const { return c_.tokens / kDeltaBlock; }
  size_t state_floats() const { return size_t{c_.rows} * c_.cols * c_.cols; }

  KernelCase c_;
  uint64_t copies_ = 1, next_ = 0;
  AlignedBuffer states_;
  std::vector<float> keys_, deltas_, y_, beta_;
  std::vector<double> log_decay_;
};

}  // namespace

Result<std::unique_ptr<KernelOp>> make_attend_op(const KernelCase& c, int most_threads) {
  return AttendOp::create(c, most_threads);
}

Result<std::unique_ptr<KernelOp>> make_delta_op(const KernelCase& c) {
  return DeltaOp::create(c);
}

}  // namespace wader
