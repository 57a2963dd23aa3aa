// Gated DeltaNet's block and fold (ops.h has the formulas), written once over sixteen lanes
// (lanes_portable.h) of the value dimension. Sᵀk and Sᵀq are chains of fused multiply-adds over the
// key axis from +0, then times e^G; the earlier rows of the block follow in order, each fused, and
// a row's own delta last. Keys meet each other and q in LaneMath::dot.
#pragma once

#include "kernels/lane_math.h"
#include "kernels/ops.h"

namespace wader {
namespace {

template <typename L>
struct DeltaOps {
  using M = LaneMath<L>;
  using Vec = typename L::Vec;
  static constexpr uint32_t kLanes = L::kCount;
  // Rows that share one pass over S: two sums of each stay in registers.
  static constexpr uint32_t kRows = L::kAccumulators >= 16 ? 4 : 2;
  static_assert(L::kAccumulators >= 4);

  static void delta_block(const DeltaBlockArgs& a) {
    uint32_t i = a.begin;
    for (; i + kRows <= a.end; i += kRows) ask_state<kRows>(a, i);
    for (; i < a.end; ++i) ask_state<1>(a, i);
    for (i = a.begin; i < a.end; ++i) finish_row(a, i);
  }

  static void delta_fold(const DeltaFoldArgs& a) {
    constexpr uint32_t kStateRows = 4;
    constexpr uint32_t kWide = power_of_two(L::kAccumulators / kStateRows);
    const double last = a.log_decay[kDeltaBlock - 1];
    float since[kDeltaBlock];
    for (uint32_t j = 0; j < kDeltaBlock; ++j) since[j] = static_cast<float>(last - a.log_decay[j]);
    for (uint32_t j = 0; j < kDeltaBlock; j += kLanes)
      L::store(since + j, M::exp(L::load(since + j)));
    const float decay = exp_of(last);
    float keys[kDeltaBlock][kLanes];  // sixteen columns of the keys, decayed
    for (uint32_t c = 0; c < a.key_dim; c += kLanes) {
      const uint32_t left = a.key_dim - c, columns = left < kLanes ? left : kLanes;
      for (uint32_t j = 0; j < kDeltaBlock; ++j) {
        const Vec key = M::load(a.keys + size_t{j} * a.key_dim + c, left);
        L::store(keys[j], L::mul(L::set1(since[j]), key));
      }
      uint32_t column = 0;
      for (; column + kStateRows <= columns; column += kStateRows)
        M::template in_stripes<kWide>(0, a.value_dim, [&](auto count, uint32_t at) {
          fold_rows<kStateRows, decltype(count)::value>(a, keys, c, column, decay, at);
        });
      for (; column < columns; ++column)
        M::template in_stripes<kWide>(0, a.value_dim, [&](auto count, uint32_t at) {
          fold_rows<1, decltype(count)::value>(a, keys, c, column, decay, at);
        });
    }
  }

 private:
  static constexpr uint32_t power_of_two(uint32_t n) { return n < 2 ? n : 2 * power_of_two(n / 2); }

  static float exp_of(double log_decay) {
    float e[kLanes];
    L::store(e, M::exp(L::set1(static_cast<float>(log_decay))));
    return e[0];
  }

  // Sᵀk to the deltas and Sᵀq to y, of rows [i, i + kAsked).
  template <uint32_t kAsked>
  static void ask_state(const DeltaBlockArgs& a, uint32_t i) {
    constexpr uint32_t kWide = power_of_two(L::kAccumulators / (2 * kAsked));
    M::template in_stripes <
        kWide<8 ? kWide : 8>(
            0, a.value_dim,
            [&](auto count, uint32_t at) { ask_stripe<kAsked, decltype(count)::value>(a, i, at); });
  }

  template <uint32_t kAsked, uint32_t kCount>
  static void ask_stripe(const DeltaBlockArgs& a, uint32_t i, uint32_t at) {
    constexpr uint32_t kVectors = M::vectors_of(kCount);
    const float* k = a.keys + size_t{i} * a.key_dim;
    const float* q = a.q + (i - a.begin) * a.q_stride;
    Vec to_k[kAsked][kVectors], to_q[kAsked][kVectors], s[kVectors];
    WADER_UNROLL for (uint32_t r = 0; r < kAsked; ++r)
        WADER_UNROLL for (uint32_t v = 0; v < kVectors; ++v) to_k[r][v] = to_q[r][v] = L::zero();
    const float* state = a.state;
    for (uint32_t c = 0; c < a.key_dim; ++c, state += a.value_dim) {
      WADER_UNROLL for (uint32_t v = 0; v < kVectors; ++v) s[v] =
          M::template stripe_load<kCount>(state, at, v, a.value_dim);
      WADER_UNROLL for (uint32_t r = 0; r < kAsked; ++r) {
        const Vec key = L::set1(k[r * size_t{a.key_dim} + c]);
        const Vec query = L::set1(q[r * a.q_stride + c]);
        WADER_UNROLL for (uint32_t v = 0; v < kVectors; ++v) {
          to_k[r][v] = L::fma(key, s[v], to_k[r][v]);
          to_q[r][v] = L::fma(query, s[v], to_q[r][v]);
        }
      }
    }
    WADER_UNROLL for (uint32_t r = 0; r < kAsked; ++r)
        WADER_UNROLL for (uint32_t v = 0; v < kVectors; ++v) {
      float* delta = a.deltas + size_t{i + r} * a.value_dim;
      float* y = a.y + (i + r - a.begin) * a.y_stride;
      M::template stripe_store<kCount>(delta, at, v, a.value_dim, to_k[r][v]);
      M::template stripe_store<kCount>(y, at, v, a.value_dim, to_q[r][v]);
    }
  }

  // What the earlier rows of the block and the row's own delta add.
  struct Row {
    uint32_t i;
    float decay;
    float by_key[kDeltaBlock], by_query[kDeltaBlock];  // e^{G_i − G_j} times k_j·k_i and k_j·q_i
    float own;                                         // k_i·q_i
  };

  static void finish_row(const DeltaBlockArgs& a, uint32_t i) {
    const float* k = a.keys + size_t{i} * a.key_dim;
    const float* q = a.q + (i - a.begin) * a.q_stride;
    Row row;
    row.i = i;
    row.decay = exp_of(a.log_decay[i]);
    row.own = M::dot(k, q, a.key_dim);
    for (uint32_t begin = 0; begin < i; begin += kLanes) {
      const uint32_t count = i - begin < kLanes ? i - begin : kLanes;
      float since[kLanes] = {}, with_k[kLanes] = {}, with_q[kLanes] = {};
      for (uint32_t l = 0; l < count; ++l) {
        const float* earlier = a.keys + size_t{begin + l} * a.key_dim;
        since[l] = static_cast<float>(a.log_decay[i] - a.log_decay[begin + l]);
        with_k[l] = M::dot(earlier, k, a.key_dim);
        with_q[l] = M::dot(earlier, q, a.key_dim);
      }
      const Vec factor = M::exp(L::load(since));
      L::store(row.by_key + begin, L::mul(factor, L::load(with_k)));
      L::store(row.by_query + begin, L::mul(factor, L::load(with_q)));
    }
    constexpr uint32_t kWide = power_of_two(L::kAccumulators / 2);
    M::template in_stripes <
        kWide<8 ? kWide : 8>(
            0, a.value_dim,
            [&](auto count, uint32_t at) { finish_stripe<decltype(count)::value>(a, row, at); });
  }

  template <uint32_t kCount>
  static void finish_stripe(const DeltaBlockArgs& a, const Row& row, uint32_t at) {
    constexpr uint32_t kVectors = M::vectors_of(kCount);
    const size_t r = row.i - a.begin;
    float* own_delta = a.deltas + size_t{row.i} * a.value_dim;
    float* y = a.y + r * a.y_stride;
    Vec answer[kVectors], out[kVectors];
    WADER_UNROLL for (uint32_t v = 0; v < kVectors; ++v) {
      const Vec decay = L::set1(row.decay);
      answer[v] = L::mul(M::template stripe_load<kCount>(own_delta, at, v, a.value_dim), decay);
      out[v] = L::mul(M::template stripe_load<kCount>(y, at, v, a.value_dim), decay);
    }
    const float* earlier = a.deltas;
    for (uint32_t j = 0; j < row.i; ++j, earlier += a.value_dim) {
      const Vec by_key = L::set1(row.by_key[j]), by_query = L::set1(row.by_query[j]);
      WADER_UNROLL for (uint32_t v = 0; v < kVectors; ++v) {
        const Vec delta = M::template stripe_load<kCount>(earlier, at, v, a.value_dim);
        answer[v] = L::fma(by_key, delta, answer[v]);
        out[v] = L::fma(by_query, delta, out[v]);
      }
    }
    const Vec beta = L::set1(a.beta[r * a.beta_stride]), own = L::set1(row.own);
    const float* value = a.v + r * a.v_stride;
    WADER_UNROLL for (uint32_t v = 0; v < kVectors; ++v) {
      const Vec wanted = M::template stripe_load<kCount>(value, at, v, a.value_dim);
      const Vec delta = L::mul(beta, L::sub(wanted, answer[v]));
      M::template stripe_store<kCount>(own_delta, at, v, a.value_dim, delta);
      M::template stripe_store<kCount>(y, at, v, a.value_dim, L::fma(own, delta, out[v]));
    }
  }

  // Rows [c + column, + kFolded) of S.
  template <uint32_t kFolded, uint32_t kCount>
  static void fold_rows(const DeltaFoldArgs& a, const float (&keys)[kDeltaBlock][kLanes],
                        uint32_t c, uint32_t column, float decay, uint32_t at) {
    constexpr uint32_t kVectors = M::vectors_of(kCount);
    float* state = a.state + size_t{c + column} * a.value_dim;
    Vec acc[kFolded][kVectors], delta[kVectors];
    WADER_UNROLL for (uint32_t r = 0; r < kFolded;
                      ++r) WADER_UNROLL for (uint32_t v = 0; v < kVectors; ++v) acc[r][v] =
        L::mul(M::template stripe_load<kCount>(state + r * size_t{a.value_dim}, at, v, a.value_dim),
               L::set1(decay));
    const float* earlier = a.deltas;
    for (uint32_t j = 0; j < kDeltaBlock; ++j, earlier += a.value_dim) {
      WADER_UNROLL for (uint32_t v = 0; v < kVectors; ++v) delta[v] =
          M::template stripe_load<kCount>(earlier, at, v, a.value_dim);
      WADER_UNROLL for (uint32_t r = 0; r < kFolded; ++r) {
        const Vec key = L::set1(keys[j][column + r]);
        WADER_UNROLL for (uint32_t v = 0; v < kVectors; ++v) acc[r][v] =
            L::fma(key, delta[v], acc[r][v]);
      }
    }
    WADER_UNROLL for (uint32_t r = 0; r < kFolded; ++r)
        WADER_UNROLL for (uint32_t v = 0; v < kVectors; ++v) M::template stripe_store<kCount>(
            state + r * size_t{a.value_dim}, at, v, a.value_dim, acc[r][v]);
  }
};

}  // namespace
}  // namespace wader
