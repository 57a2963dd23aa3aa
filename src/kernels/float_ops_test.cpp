// The float operations of all back ends: each against ref within what rounding allows, and all to
// the same bits. Every array ends where the next page cannot be touched.
#include <gtest/gtest.h>
#include <sys/mman.h>
#include <unistd.h>

#include <bit>
#include <cmath>
#include <cstring>
#include <functional>
#include <limits>
#include <memory>
#include <random>
#include <vector>

#include "kernels/ops.h"
#include "tensor/float_formats.h"

namespace wader {
namespace {

constexpr float kInfinity = std::numeric_limits<float>::infinity();
constexpr float kUlp = 0x1p-23f;

// An array whose end is the end of readable memory.
template <typename T>
class Guarded {
 public:
  explicit Guarded(size_t count) : count_(count) {
    const size_t page = static_cast<size_t>(sysconf(_SC_PAGESIZE));
    bytes_ = (count * sizeof(T) + page - 1) / page * page + page;
    void* mapped =
        mmap(nullptr, bytes_, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);
    if (mapped == MAP_FAILED) std::abort();
    base_ = static_cast<char*>(mapped);
    if (mprotect(base_ + bytes_ - page, page, PROT_NONE) != 0) std::abort();
    data_ = reinterpret_cast<T*>(base_ + bytes_ - page) - count;
  }
  ~Guarded() { munmap(base_, bytes_); }
  Guarded(const Guarded&) = delete;
  Guarded& operator=(const Guarded&) = delete;

  T* data() { return data_; }
  T& operator[](size_t i) { return data_[i]; }
  std::vector<T> copy() const { return {data_, data_ + count_}; }

 private:
  size_t count_, bytes_;
  char* base_;
  T* data_;
};

// Draws what an operation is given; the same draws for every back end.
class Draw {
 public:
  Draw(uint32_t seed, bool extremes) : rng_(seed), extremes_(extremes) {}

  uint32_t below(uint32_t n) { return static_cast<uint32_t>(rng_() % n); }
  // Mostly ragged, some whole.
  uint32_t size() { return below(3) == 0 ? 16 * (1 + below(8)) : 1 + below(150); }
  float value(float scale = 1) {
    constexpr float kExtremes[] = {0.0f,  -0.0f,   0x1p-149f,  -0x1.8p-130f, 3e38f,      -3e38f,
                                   88.8f, -103.9f, 0x1p-126f,  kInfinity,    -kInfinity, NAN,
                                   1e-7f, 65520,   -87.33654f, 1e9f};
    if (extremes_ && below(12) == 0) return kExtremes[below(std::size(kExtremes))];
    return normal_(rng_) * scale;
  }
  std::shared_ptr<Guarded<float>> values(size_t n, float scale = 1) {
    auto all = std::make_shared<Guarded<float>>(n);
    for (size_t i = 0; i < n; ++i) (*all)[i] = value(scale);
    return all;
  }

 private:
  std::mt19937 rng_;
  std::normal_distribution<float> normal_;
  bool extremes_;
};

// What an operation gave, and by how much each value may differ from ref's.
struct Outcome {
  std::vector<float> values;
  std::vector<float> bounds;
};

struct Operation {
  const char* name;
  std::function<Outcome(const Kernels&, Draw&)> run;

  friend void PrintTo(const Operation& operation, std::ostream* out) { *out << operation.name; }
};

// Each value within `ulps` of its own size.
Outcome relative(std::vector<float> values, float ulps) {
  std::vector<float> bounds;
  for (const float v : values) bounds.push_back(std::fabs(v) * ulps * kUlp + 0x1p-126f);
  return {std::move(values), std::move(bounds)};
}

Outcome rms_norm(const Kernels& k, Draw& draw) {
  const uint32_t n = draw.size();
  const auto x = draw.values(n, 5), weight = draw.values(n);
  Guarded<float> out(n);
  k.rms_norm(out.data(), x->data(), weight->data(), n, 1e-5f);
  k.rms_norm(x->data(), x->data(), weight->data(), n, 1e-5f);  // in place
  EXPECT_EQ(std::memcmp(out.data(), x->data(), n * sizeof(float)), 0);
  return relative(out.copy(), 6);
}

Outcome l2_norm(const Kernels& k, Draw& draw) {
  const uint32_t n = draw.size();
  const auto x = draw.values(n, 3);
  k.l2_norm(x->data(), n, 1e-6f, 0.125f);
  return relative(x->copy(), 6);
}

Outcome rope(const Kernels& k, Draw& draw) {
  const uint32_t half = draw.size();
  const auto head = draw.values(2 * half), cos = draw.values(half), sin = draw.values(half);
  k.rope(head->data(), cos->data(), sin->data(), 2 * half);
  return relative(head->copy(), 0);
}

Outcome swiglu(const Kernels& k, Draw& draw) {
  const uint32_t n = draw.size();
  const auto pairs = draw.values(2 * n, 8);
  Guarded<float> out(n);
  k.swiglu(out.data(), pairs->data(), n);
  return relative(out.copy(), 6);
}

Outcome swiglu_clamped(const Kernels& k, Draw& draw) {
  const uint32_t n = draw.size();
  const auto pairs = draw.values(2 * n, 8);
  Guarded<float> out(n);
  k.swiglu_clamped(out.data(), pairs->data(), n, 7);
  return relative(out.copy(), 6);
}

Outcome add_scaled(const Kernels& k, Draw& draw) {
  const uint32_t n = draw.size();
  const auto x = draw.values(n), y = draw.values(n);
  const float scale = draw.value();
  std::vector<float> bounds;
  for (uint32_t i = 0; i < n; ++i)
    bounds.push_back((std::fabs((*x)[i]) + std::fabs(scale * (*y)[i])) * kUlp);
  k.add_scaled(x->data(), y->data(), scale, n);
  return {x->copy(), bounds};
}

Outcome sigmoid_gate(const Kernels& k, Draw& draw) {
  const uint32_t n = draw.size();
  const auto x = draw.values(n), gate = draw.values(n, 30);
  k.sigmoid_gate(x->data(), gate->data(), n);
  return relative(x->copy(), 6);
}

Outcome silu_gate(const Kernels& k, Draw& draw) {
  const uint32_t n = draw.size();
  const auto x = draw.values(n), gate = draw.values(n, 30);
  k.silu_gate(x->data(), gate->data(), n);
  return relative(x->copy(), 6);
}

Outcome conv_silu(const Kernels& k, Draw& draw) {
  const uint32_t channels = draw.size(), kernel = draw.below(2) == 0 ? 4 : 1 + draw.below(6);
  const uint32_t begin = draw.below(channels), end = begin + 1 + draw.below(channels - begin);
  const auto taps = draw.values(size_t{channels} * kernel);
  std::vector<std::shared_ptr<Guarded<float>>> inputs;
  std::vector<const float*> rows;
  for (uint32_t i = 0; i < kernel; ++i) {
    inputs.push_back(draw.values(channels));
    rows.push_back(inputs.back()->data());
  }
  Guarded<float> out(channels);
  k.conv_silu(out.data(), rows.data(), taps->data(), kernel, begin, end);
  std::vector<float> bounds;
  for (uint32_t c = 0; c < channels; ++c) {
    float magnitude = 0;
    for (uint32_t i = 0; i < kernel; ++i)
      magnitude += std::fabs((*taps)[c * kernel + i] * rows[i][c]);
    bounds.push_back(magnitude * static_cast<float>(kernel + 6) * kUlp);
  }
  return {out.copy(), bounds};
}

using Route =
    std::function<void(uint32_t* ids, float* weights, const float* logits, uint32_t n, uint32_t k)>;

// The ids are part of the outcome, with no room for difference.
Outcome router(Draw& draw, const Route& route) {
  const uint32_t n = draw.below(2) == 0 ? 128u << draw.below(3) : 1 + draw.below(600);
  const uint32_t kept = 1 + draw.below(std::min(n, draw.below(8) == 0 ? n : 16u));
  const auto logits = draw.values(n, 4);
  if (draw.below(3) == 0)  // ties
    for (uint32_t i = 0; i < n; ++i) (*logits)[i] = std::round((*logits)[i]);
  Guarded<uint32_t> ids(kept);
  Guarded<float> weights(kept);
  route(ids.data(), weights.data(), logits->data(), n, kept);
  Outcome outcome = relative(weights.copy(), static_cast<float>(n) / 4 + 8);
  for (uint32_t i = 0; i < kept; ++i) {
    outcome.values.push_back(static_cast<float>(ids[i]));
    outcome.bounds.push_back(0);
  }
  return outcome;
}

Outcome topk_softmax(const Kernels& k, Draw& draw) {
  return router(draw, k.topk_softmax);
}

Outcome softmax_topk(const Kernels& k, Draw& draw) {
  const bool renormalise = draw.below(2) == 0;
  return router(draw,
                [&](uint32_t* ids, float* weights, const float* logits, uint32_t n, uint32_t kept) {
                  k.softmax_topk(ids, weights, logits, n, kept, renormalise);
                });
}

Outcome attend(const Kernels& k, Draw& draw) {
  const uint32_t head_dim = 2 * (1 + draw.below(70)), capacity = 64 * (1 + draw.below(5));
  const uint32_t first = draw.below(1000), count = 1 + draw.below(capacity);
  const uint32_t last = first + count - 1;
  const uint32_t queries = 1 + draw.below(17);
  const auto q = draw.values(size_t{queries} * head_dim), sinks = draw.values(queries);
  const size_t plane = size_t{capacity} * head_dim * (k.kv_dtype == DType::f32 ? 4 : 2);
  Guarded<std::byte> keys(plane), values(plane);
  std::memset(keys.data(), 0xff, plane);  // NaN wherever nothing is stored
  std::memset(values.data(), 0xff, plane);
  for (uint32_t p = first; p <= last; ++p) {
    const auto key = draw.values(head_dim), value = draw.values(head_dim);
    for (uint32_t d = 0; d < head_dim; ++d) {  // what f16 holds exactly
      (*key)[d] = f16_to_f32(f32_to_f16((*key)[d]));
      (*value)[d] = f16_to_f32(f32_to_f16((*value)[d]));
    }
    k.store_kv({keys.data(), values.data(), head_dim, capacity, p, key->data(), value->data()});
  }
  Guarded<float> out(q->copy().size()), scratch(attend_scratch_floats(queries));
  k.attend({.out = out.data(),
            .q = q->data(),
            .queries = queries,
            .k = keys.data(),
            .v = values.data(),
            .head_dim = head_dim,
            .capacity = capacity,
            .first = first,
            .last = last,
            .scale = 1 / std::sqrt(static_cast<float>(head_dim)),
            .sinks = draw.below(2) == 0 ? nullptr : sinks->data(),
            .scratch = scratch.data()});
  return {out.copy(), std::vector<float>(out.copy().size(), 4e-6f)};
}

// Of rows [begin, end): Σ |x w| + |bias| times the roundings of a sum.
std::vector<float> bounds_of(const MatrixView& w, Guarded<float>& x, Guarded<float>* bias,
                             uint32_t tokens, uint32_t begin, uint32_t end) {
  std::vector<float> row(w.cols), bounds(size_t{tokens} * w.rows);
  for (uint32_t r = begin; r < end; ++r) {
    dequantise_row(w, r, row.data());
    for (uint32_t t = 0; t < tokens; ++t) {
      float magnitude = bias ? std::fabs((*bias)[r]) : 0;
      for (uint32_t c = 0; c < w.cols; ++c) magnitude += std::fabs(x[t * w.cols + c] * row[c]);
      bounds[t * w.rows + r] = magnitude * static_cast<float>(w.cols / 16 + 8) * kUlp;
    }
  }
  return bounds;
}

Outcome matmul(const Kernels& k, Draw& draw) {
  constexpr DType kDTypes[] = {DType::bf16, DType::f16, DType::f32};
  const DType dtype = kDTypes[draw.below(3)];
  const uint32_t rows = 1 + draw.below(12), cols = draw.size(), tokens = 1 + draw.below(20);
  const uint32_t begin = draw.below(rows), end = begin + 1 + draw.below(rows - begin);
  const size_t bytes = *matrix_bytes(dtype, rows, cols);
  Guarded<std::byte> weights(bytes);
  for (size_t i = 0; i < size_t{rows} * cols; ++i) {
    const float value = draw.value();
    const uint16_t half = dtype == DType::bf16 ? f32_to_bf16(value) : f32_to_f16(value);
    if (dtype == DType::f32)
      std::memcpy(weights.data() + 4 * i, &value, 4);
    else
      std::memcpy(weights.data() + 2 * i, &half, 2);
  }
  const MatrixView w = matrix_view(dtype, rows, cols, {weights.data(), bytes});
  const auto x = draw.values(size_t{tokens} * cols), bias = draw.values(rows);
  const bool with_bias = draw.below(2) == 0;
  Guarded<float> y(size_t{tokens} * rows), scratch(matmul_scratch_floats(cols, tokens));
  k.matmul({y.data(), rows, x->data(), cols, tokens, w, with_bias ? bias->data() : nullptr, begin,
            end, scratch.data()});
  return {y.copy(), bounds_of(w, *x, with_bias ? bias.get() : nullptr, tokens, begin, end)};
}

// Quantised weights without quantised activations.
Outcome matmul_of_codes(const Kernels& k, Draw& draw) {
  const bool mxfp4 = draw.below(2) == 0;
  const MatrixFormat format = mxfp4 ? MatrixFormat(DType::mxfp4) : MatrixFormat(DType::affine4, 32);
  const uint32_t rows = 1 + draw.below(12), cols = 32 * (1 + draw.below(6));
  const uint32_t tokens = 1 + draw.below(9);
  const size_t bytes = *matrix_bytes(format, rows, cols);
  Guarded<std::byte> weights(bytes);
  for (size_t i = 0; i < bytes; ++i)  // scales and biases near 1, in either format
    weights[i] = static_cast<std::byte>(i < size_t{rows} * cols / 2 ? draw.below(256)
                                        : mxfp4                     ? 126 + draw.below(3)
                                                                    : 0x3f);
  const MatrixView w = matrix_view(format, rows, cols, {weights.data(), bytes});
  const auto x = draw.values(size_t{tokens} * cols);
  Guarded<float> y(size_t{tokens} * rows), scratch(matmul_scratch_floats(cols, tokens));
  k.matmul({y.data(), rows, x->data(), cols, tokens, w, nullptr, 0, rows, scratch.data()});
  return {y.copy(), bounds_of(w, *x, nullptr, tokens, 0, rows)};
}

struct DeltaInputs {
  uint32_t key_dim, value_dim;
  std::shared_ptr<Guarded<float>> state, keys, deltas;
  Guarded<double> log_decay{kDeltaBlock};
};

void draw_delta(DeltaInputs& in, Draw& draw) {
  in.key_dim = draw.size();
  in.value_dim = draw.size();
  const float unit = 1 / std::sqrt(static_cast<float>(in.key_dim));
  in.state = draw.values(size_t{in.key_dim} * in.value_dim);
  in.keys = draw.values(size_t{kDeltaBlock} * in.key_dim, unit);
  in.deltas = draw.values(size_t{kDeltaBlock} * in.value_dim);
  const double strongest = draw.below(3) == 0 ? 90 : 0.2;
  double decay = 0;
  for (uint32_t i = 0; i < kDeltaBlock; ++i)
    in.log_decay[i] = decay -= strongest * draw.below(1000) / 1000;
}

Outcome delta_block(const Kernels& k, Draw& draw) {
  DeltaInputs in;
  draw_delta(in, draw);
  const uint32_t begin = draw.below(kDeltaBlock), end = begin + 1 + draw.below(kDeltaBlock - begin);
  const uint32_t rows = end - begin;
  const auto q = draw.values(size_t{rows} * in.key_dim, 1 / static_cast<float>(in.key_dim));
  const auto v = draw.values(size_t{rows} * in.value_dim), beta = draw.values(rows, 0.3f);
  Guarded<float> y(size_t{rows} * in.value_dim);
  k.delta_block({in.key_dim, in.value_dim, begin, end, in.state->data(), in.keys->data(),
                 in.log_decay.data(), in.deltas->data(), q->data(), in.key_dim, v->data(),
                 in.value_dim, beta->data(), 1, y.data(), in.value_dim});
  Outcome outcome{y.copy(), {}};
  const auto deltas = in.deltas->copy();
  outcome.values.insert(outcome.values.end(), deltas.begin(), deltas.end());
  outcome.bounds.assign(outcome.values.size(), 2e-4f);
  return outcome;
}

Outcome delta_fold(const Kernels& k, Draw& draw) {
  DeltaInputs in;
  draw_delta(in, draw);
  k.delta_fold({in.key_dim, in.value_dim, in.state->data(), in.keys->data(), in.log_decay.data(),
                in.deltas->data()});
  return {in.state->copy(), std::vector<float>(in.state->copy().size(), 1e-4f)};
}

const Operation kOperations[] = {
    {"rms_norm", rms_norm},
    {"l2_norm", l2_norm},
    {"rope", rope},
    {"swiglu", swiglu},
    {"swiglu_clamped", swiglu_clamped},
    {"add_scaled", add_scaled},
    {"sigmoid_gate", sigmoid_gate},
    {"silu_gate", silu_gate},
    {"conv_silu", conv_silu},
    {"topk_softmax", topk_softmax},
    {"softmax_topk", softmax_topk},
    {"attend", attend},
    {"matmul", matmul},
    {"matmul_of_codes", matmul_of_codes},
    {"delta_block", delta_block},
    {"delta_fold", delta_fold},
};

class FloatOpsTest : public ::testing::TestWithParam<Operation> {};
INSTANTIATE_TEST_SUITE_P(All, FloatOpsTest, ::testing::ValuesIn(kOperations),
                         [](const auto& suite) { return std::string(suite.param.name); });

TEST_P(FloatOpsTest, IsRefsWithinRounding) {
  for (uint32_t seed = 0; seed < 40; ++seed) {
    Draw draw(seed, false);
    const Outcome want = GetParam().run(kRefKernels, draw);
    for (const Kernels* k : available_kernels()) {
      Draw same(seed, false);
      const Outcome got = GetParam().run(*k, same);
      ASSERT_EQ(got.values.size(), want.values.size());
      for (size_t i = 0; i < want.values.size(); ++i)
        ASSERT_NEAR(got.values[i], want.values[i], want.bounds[i])
            << k->name << ", seed " << seed << ", value " << i;
    }
  }
}

// The bits of a result; one for all NaN, whose sign and payload IEEE 754 leaves open.
uint32_t bits_of(float value) {
  return std::isnan(value) ? 0x7fc00000u : std::bit_cast<uint32_t>(value);
}

TEST_P(FloatOpsTest, HasTheSameBitsInEveryBackEnd) {
  const Kernels& portable = **select_kernels("portable");
  for (uint32_t seed = 0; seed < 60; ++seed) {
    const bool extremes = seed % 2 == 1;
    Draw draw(seed, extremes);
    const Outcome want = GetParam().run(portable, draw);
    for (const Kernels* k : available_kernels()) {
      if (k == &kRefKernels) continue;
      Draw same(seed, extremes);
      const Outcome got = GetParam().run(*k, same);
      ASSERT_EQ(got.values.size(), want.values.size());
      for (size_t i = 0; i < want.values.size(); ++i)
        ASSERT_EQ(bits_of(got.values[i]), bits_of(want.values[i]))
            << k->name << ", seed " << seed << ", value " << i << ": " << got.values[i] << " for "
            << want.values[i];
    }
  }
}

TEST(StoreKv, RoundsToEvenAndSaturates) {
  const std::vector<float> values = {1e6f,    -1e6f,   65519.0f, 65520.0f,   kInfinity, -kInfinity,
                                     2049.0f, 2051.0f, 0x1p-25f, 0x1.8p-24f, -0.0f,     NAN};
  const std::vector<uint16_t> want = {0x7bff, 0xfbff, 0x7bff, 0x7bff, 0x7bff, 0xfbff,
                                      0x6800, 0x6802, 0x0000, 0x0002, 0x8000};
  const auto head_dim = static_cast<uint32_t>(values.size());
  for (const Kernels* k : available_kernels()) {
    if (k->kv_dtype != DType::f16) continue;
    std::vector<uint16_t> keys(64 * head_dim), out(64 * head_dim);
    k->store_kv({reinterpret_cast<std::byte*>(keys.data()),
                 reinterpret_cast<std::byte*>(out.data()), head_dim, 64, 64 + 19, values.data(),
                 values.data()});
    for (uint32_t d = 0; d < head_dim; ++d) {
      const uint16_t key = keys[(head_dim + d) * 16 + 3], value = out[19 * head_dim + d];
      EXPECT_EQ(key, value);
      if (d < want.size())
        EXPECT_EQ(value, want[d]) << k->name << ", " << values[d];
      else
        EXPECT_GT(value & 0x7fff, 0x7c00) << k->name;
    }
    EXPECT_EQ(std::count(keys.begin(), keys.end(), 0) + 11, keys.size());  // 1 of 12 is +0
    EXPECT_EQ(std::count(out.begin(), out.end(), 0) + 11, out.size());
  }
}

}  // namespace
}  // namespace wader
