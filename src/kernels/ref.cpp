// The reference back end. Clarity first; what speed it has comes from sums in sixteen fixed lanes,
// which the compiler turns into vectors without changing their order.

#include <algorithm>
#include <cmath>
#include <cstring>

#include "kernels/ops.h"
#include "tensor/wide.h"

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

void l2_norm(float* x, uint32_t n, float eps, float scale) {
  const float factor = scale / std::sqrt(dot(x, x, n) + eps);
  for (uint32_t i = 0; i < n; ++i) x[i] *= factor;
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

void store_kv(const StoreKvArgs& a) {
  const uint32_t index = a.position % a.capacity;
  float* k = reinterpret_cast<float*>(a.k) +
             static_cast<size_t>(index / kKeyTile) * kKeyTile * a.head_dim + index % kKeyTile;
  for (uint32_t d = 0; d < a.head_dim; ++d) k[size_t{d} * kKeyTile] = a.key[d];
  std::memcpy(reinterpret_cast<float*>(a.v) + static_cast<size_t>(index) * a.head_dim, a.value,
              a.head_dim * sizeof(float));
}

// A tile of sixteen keys against q; those outside the sequence give what they give.
WADER_WIDE void score_tile(float (&scores)[kKeyTile], const float* q, const float* k,
                           uint32_t head_dim, float scale) {
  for (float& score : scores) score = 0;
  for (uint32_t d = 0; d < head_dim; ++d)
    for (uint32_t j = 0; j < kKeyTile; ++j) scores[j] += q[d] * k[d * kKeyTile + j];
  for (float& score : scores) score *= scale;
}

void attend_query(const AttendArgs& a, uint32_t query) {
  float* out = a.out + static_cast<size_t>(query) * a.head_dim;
  const float* q = a.q + static_cast<size_t>(query) * a.head_dim;
  float max = a.sinks ? a.sinks[query] : -INFINITY, sum = a.sinks ? 1.0f : 0.0f;
  std::fill_n(out, a.head_dim, 0.0f);
  uint32_t end;  // of the block, a position
  for (uint32_t begin = a.first; begin <= a.last; begin = end) {
    end = std::min((begin / kAttentionBlock + 1) * kAttentionBlock, a.last + 1);
    float scores[kAttentionBlock / kKeyTile][kKeyTile];
    const uint32_t base = begin / kAttentionBlock * kAttentionBlock;
    const size_t index = base % a.capacity;
    float block_max = max;
    for (uint32_t p = begin; p < end; ++p) {
      const uint32_t tile = (p - base) / kKeyTile, lane = (p - base) % kKeyTile;
      if (p == begin || lane == 0)
        score_tile(scores[tile], q,
                   reinterpret_cast<const float*>(a.k) + (index + tile * kKeyTile) * a.head_dim,
                   a.head_dim, a.scale);
      block_max = std::max(block_max, scores[tile][lane]);
    }
    const float factor = std::exp(max - block_max);
    for (uint32_t d = 0; d < a.head_dim; ++d) out[d] *= factor;
    sum *= factor;
    for (uint32_t p = begin; p < end; ++p) {
      const float weight =
          std::exp(scores[(p - base) / kKeyTile][(p - base) % kKeyTile] - block_max);
      sum += weight;
      add_scaled(out, reinterpret_cast<const float*>(a.v) + (index + p - base) * a.head_dim, weight,
                 a.head_dim);
    }
    max = block_max;
  }
  for (uint32_t d = 0; d < a.head_dim; ++d) out[d] /= sum;
}

void attend(const AttendArgs& a) {
  for (uint32_t query = 0; query < a.queries; ++query) attend_query(a, query);
}

float sigmoid(float x) {
  return 1.0f / (1.0f + std::exp(-x));
}

void swiglu(float* out, const float* gate_up, uint32_t n) {
  for (uint32_t i = 0; i < n; ++i)
    out[i] = gate_up[2 * i] * sigmoid(gate_up[2 * i]) * gate_up[2 * i + 1];
}

void swiglu_clamped(float* out, const float* gate_up, uint32_t n, float limit) {
  for (uint32_t i = 0; i < n; ++i) {
    const float gate = std::min(gate_up[2 * i], limit);
    const float up = std::clamp(gate_up[2 * i + 1], -limit, limit);
    out[i] = (up + 1.0f) * (gate / (1.0f + std::exp(-1.702f * gate)));
  }
}

// Insertion into a sorted list of k: strictly greater moves up, so equal logits keep index order.
// A NaN is never greater; the list is filled all the same and the NaN shows in the weights.
void top_k(uint32_t* ids, const float* logits, uint32_t n, uint32_t k) {
  uint32_t kept = 0;
  for (uint32_t i = 0; i < n; ++i) {
    uint32_t place = kept;
    while (place > 0 && logits[i] > logits[ids[place - 1]]) --place;
    if (place == k) continue;
    if (kept < k) ++kept;
    for (uint32_t j = kept - 1; j > place; --j) ids[j] = ids[j - 1];
    ids[place] = i;
  }
}

void topk_softmax(uint32_t* ids, float* weights, const float* logits, uint32_t n, uint32_t k) {
  top_k(ids, logits, n, k);
  float sum = 0;
  for (uint32_t i = 0; i < k; ++i) {
    weights[i] = std::exp(logits[ids[i]] - logits[ids[0]]);
    sum += weights[i];
  }
  for (uint32_t i = 0; i < k; ++i) weights[i] /= sum;
}

void softmax_topk(uint32_t* ids, float* weights, const float* logits, uint32_t n, uint32_t k,
                  bool renormalise) {
  top_k(ids, logits, n, k);
  const float max = logits[ids[0]];
  float all = 0, kept = 0;
  for (uint32_t i = 0; i < n; ++i) all += std::exp(logits[i] - max);
  for (uint32_t i = 0; i < k; ++i) {
    weights[i] = std::exp(logits[ids[i]] - max) / all;
    kept += weights[i];
  }
  if (!renormalise) return;
  for (uint32_t i = 0; i < k; ++i) weights[i] /= kept;
}

void sigmoid_gate(float* x, const float* gate, uint32_t n) {
  for (uint32_t i = 0; i < n; ++i) x[i] *= sigmoid(gate[i]);
}

void silu_gate(float* x, const float* gate, uint32_t n) {
  for (uint32_t i = 0; i < n; ++i) x[i] *= gate[i] * sigmoid(gate[i]);
}

void conv_silu(float* out, const float* const* rows, const float* taps, uint32_t kernel,
               uint32_t begin, uint32_t end) {
  for (uint32_t c = begin; c < end; ++c) {
    float sum = 0;
    for (uint32_t k = 0; k < kernel; ++k) sum += taps[c * kernel + k] * rows[k][c];
    out[c] = sum * sigmoid(sum);
  }
}

// out (value_dim) = scale · Sᵀ x, summed over the key axis in order.
WADER_WIDE void state_times(float* out, const float* state, const float* x, float scale,
                            uint32_t key_dim, uint32_t value_dim) {
  std::fill_n(out, value_dim, 0.0f);
  for (uint32_t c = 0; c < key_dim; ++c, state += value_dim)
    for (uint32_t d = 0; d < value_dim; ++d) out[d] += x[c] * state[d];
  for (uint32_t d = 0; d < value_dim; ++d) out[d] *= scale;
}

float exp_of(double log_decay) {
  return std::exp(static_cast<float>(log_decay));
}

void delta_block(const DeltaBlockArgs& a) {
  for (uint32_t i = a.begin; i < a.end; ++i) {
    const size_t row = i - a.begin;
    const float* k = a.keys + static_cast<size_t>(i) * a.key_dim;
    const float* q = a.q + row * a.q_stride;
    const float* v = a.v + row * a.v_stride;
    const float beta = a.beta[row * a.beta_stride];
    float* delta = a.deltas + static_cast<size_t>(i) * a.value_dim;
    float* y = a.y + row * a.y_stride;
    const float decay = exp_of(a.log_decay[i]);

    // delta holds what the state, decayed so far, would answer to k.
    state_times(delta, a.state, k, decay, a.key_dim, a.value_dim);
    state_times(y, a.state, q, decay, a.key_dim, a.value_dim);
    for (uint32_t j = 0; j < i; ++j) {
      const float* earlier_k = a.keys + static_cast<size_t>(j) * a.key_dim;
      const float* earlier_delta = a.deltas + static_cast<size_t>(j) * a.value_dim;
      const float since = exp_of(a.log_decay[i] - a.log_decay[j]);
      add_scaled(delta, earlier_delta, since * dot(earlier_k, k, a.key_dim), a.value_dim);
      add_scaled(y, earlier_delta, since * dot(earlier_k, q, a.key_dim), a.value_dim);
    }
    for (uint32_t d = 0; d < a.value_dim; ++d) delta[d] = beta * (v[d] - delta[d]);
    add_scaled(y, delta, dot(k, q, a.key_dim), a.value_dim);
  }
}

WADER_WIDE void delta_fold(const DeltaFoldArgs& a) {
  const double last = a.log_decay[kDeltaBlock - 1];
  const float decay = exp_of(last);
  float since[kDeltaBlock];
  for (uint32_t j = 0; j < kDeltaBlock; ++j) since[j] = exp_of(last - a.log_decay[j]);
  for (uint32_t c = 0; c < a.key_dim; ++c) {
    float* row = a.state + static_cast<size_t>(c) * a.value_dim;
    for (uint32_t d = 0; d < a.value_dim; ++d) row[d] *= decay;
    for (uint32_t j = 0; j < kDeltaBlock; ++j) {
      const float key = since[j] * a.keys[static_cast<size_t>(j) * a.key_dim + c];
      const float* delta = a.deltas + static_cast<size_t>(j) * a.value_dim;
      for (uint32_t d = 0; d < a.value_dim; ++d) row[d] += key * delta[d];
    }
  }
}

}  // namespace

const Kernels kRefKernels = {.name = "ref",
                             .matmul = matmul,
                             .quantise_row = nullptr,
                             .rms_norm = rms_norm,
                             .l2_norm = l2_norm,
                             .rope = rope,
                             .kv_dtype = DType::f32,
                             .store_kv = store_kv,
                             .attend = attend,
                             .swiglu = swiglu,
                             .swiglu_clamped = swiglu_clamped,
                             .topk_softmax = topk_softmax,
                             .softmax_topk = softmax_topk,
                             .add_scaled = add_scaled,
                             .sigmoid_gate = sigmoid_gate,
                             .silu_gate = silu_gate,
                             .conv_silu = conv_silu,
                             .delta_block = delta_block,
                             .delta_fold = delta_fold};

}  // namespace wader
