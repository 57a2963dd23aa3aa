// The reference back end. Clarity first; what speed it has comes from sums in sixteen fixed lanes,
// which the compiler turns into vectors without changing their order.

#include <algorithm>
#include <cmath>

#include "kernels/ops.h"

// The same source compiled for wider vectors, chosen by the loader. Bits are the same in all of
// them: the lanes are spelt out below and contraction to fused multiply-add is off. Sanitizers
// cannot start before such resolvers run, so their builds keep the baseline.
#if defined(__x86_64__) && defined(__GNUC__) && !defined(__clang__) && \
    !defined(__SANITIZE_THREAD__) && !defined(__SANITIZE_ADDRESS__)
#define WADER_WIDE __attribute__((target_clones("default", "avx2", "avx512f")))
#else
#define WADER_WIDE
#endif

namespace wader {
namespace {

constexpr uint32_t kLanes = 16;

// Lane l sums the products of columns l, l + 16, l + 32 …; the lanes are added as a balanced tree,
// then the tail.
#define WADER_REDUCE(lanes, total)                                                \
  do {                                                                            \
    for (uint32_t half_ = kLanes / 2; half_ > 0; half_ /= 2)                      \
      for (uint32_t l_ = 0; l_ < half_; ++l_) (lanes)[l_] += (lanes)[l_ + half_]; \
    (total) += (lanes)[0];                                                        \
  } while (false)

WADER_WIDE float dot(const float* a, const float* b, uint32_t n) {
  float lanes[kLanes] = {};
  const uint32_t whole = n / kLanes * kLanes;
  for (uint32_t i = 0; i < whole; i += kLanes)
    for (uint32_t l = 0; l < kLanes; ++l) lanes[l] += a[i + l] * b[i + l];
  float tail = 0;
  for (uint32_t i = whole; i < n; ++i) tail += a[i] * b[i];
  WADER_REDUCE(lanes, tail);
  return tail;
}

// Four rows of x against one row of w: w is loaded once for four, each sum is dot()'s to the bit.
WADER_WIDE void dot4(float* y, size_t y_stride, const float* x, size_t x_stride, const float* w,
                     uint32_t n, float bias) {
  float lanes[4][kLanes] = {};
  const uint32_t whole = n / kLanes * kLanes;
  for (uint32_t i = 0; i < whole; i += kLanes)
    for (uint32_t t = 0; t < 4; ++t)
      for (uint32_t l = 0; l < kLanes; ++l) lanes[t][l] += x[t * x_stride + i + l] * w[i + l];
  for (uint32_t t = 0; t < 4; ++t) {
    float tail = 0;
    for (uint32_t i = whole; i < n; ++i) tail += x[t * x_stride + i] * w[i];
    WADER_REDUCE(lanes[t], tail);
    y[t * y_stride] = tail + bias;
  }
}

void matmul(const MatmulArgs& a) {
  for (uint32_t r = a.row_begin; r < a.row_end; ++r) {
    dequantise_row(a.w, r, a.scratch);
    const float bias = a.bias ? a.bias[r] : 0.0f;
    uint32_t t = 0;
    for (; t + 4 <= a.tokens; t += 4)
      dot4(a.y + t * a.y_stride + r, a.y_stride, a.x + t * a.x_stride, a.x_stride, a.scratch,
           a.w.cols, bias);
    for (; t < a.tokens; ++t)
      a.y[t * a.y_stride + r] = dot(a.x + t * a.x_stride, a.scratch, a.w.cols) + bias;
  }
}

void rms_norm(float* out, const float* x, const float* weight, uint32_t n, float eps) {
  const float inverse = 1.0f / std::sqrt(dot(x, x, n) / static_cast<float>(n) + eps);
  for (uint32_t i = 0; i < n; ++i) out[i] = x[i] * inverse * weight[i];
}

void rope(float* head, const float* cos, const float* sin, uint32_t dim) {
  const uint32_t half = dim / 2;
  for (uint32_t i = 0; i < half; ++i) {
    const float a = head[i], b = head[i + half];
    head[i] = a * cos[i] - b * sin[i];
    head[i + half] = b * cos[i] + a * sin[i];
  }
}

WADER_WIDE void add_scaled(float* x, const float* y, float scale, uint32_t n) {
  for (uint32_t i = 0; i < n; ++i) x[i] += scale * y[i];
}

void attend(const AttendArgs& a) {
  const uint32_t count = a.last - a.first + 1;
  float max = a.sink ? *a.sink : -INFINITY;
  uint32_t index = a.first % a.capacity;
  for (uint32_t j = 0; j < count; ++j) {
    a.scores[j] = dot(a.q, a.k + static_cast<size_t>(index) * a.head_dim, a.head_dim) * a.scale;
    max = std::max(max, a.scores[j]);
    if (++index == a.capacity) index = 0;
  }
  float sum = 0;
  for (uint32_t j = 0; j < count; ++j) {
    a.scores[j] = std::exp(a.scores[j] - max);
    sum += a.scores[j];
  }
  // The sink takes its share of the probability and adds no value vector.
  if (a.sink) sum += std::exp(*a.sink - max);
  std::fill_n(a.out, a.head_dim, 0.0f);
  index = a.first % a.capacity;
  for (uint32_t j = 0; j < count; ++j) {
    add_scaled(a.out, a.v + static_cast<size_t>(index) * a.head_dim, a.scores[j] / sum, a.head_dim);
    if (++index == a.capacity) index = 0;
  }
}

void swiglu_clamped(float* out, const float* gate_up, uint32_t n, float limit) {
  for (uint32_t i = 0; i < n; ++i) {
    const float gate = std::min(gate_up[2 * i], limit);
    const float up = std::clamp(gate_up[2 * i + 1], -limit, limit);
    out[i] = (up + 1.0f) * (gate / (1.0f + std::exp(-1.702f * gate)));
  }
}

void topk_softmax(uint32_t* ids, float* weights, const float* logits, uint32_t n, uint32_t k) {
  // Insertion into a sorted list of k: strictly greater moves up, so equal logits keep index order.
  // A NaN is never greater; the list is filled all the same and the NaN shows in the weights.
  uint32_t kept = 0;
  for (uint32_t i = 0; i < n; ++i) {
    uint32_t place = kept;
    while (place > 0 && logits[i] > logits[ids[place - 1]]) --place;
    if (place == k) continue;
    if (kept < k) ++kept;
    for (uint32_t j = kept - 1; j > place; --j) ids[j] = ids[j - 1];
    ids[place] = i;
  }
  float sum = 0;
  for (uint32_t i = 0; i < k; ++i) {
    weights[i] = std::exp(logits[ids[i]] - logits[ids[0]]);
    sum += weights[i];
  }
  for (uint32_t i = 0; i < k; ++i) weights[i] /= sum;
}

}  // namespace

const Kernels kRefKernels = {"ref",  matmul,         rms_norm,     rope,
                             attend, swiglu_clamped, topk_softmax, add_scaled};

}  // namespace wader
