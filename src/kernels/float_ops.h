// The elementwise operations, norms and routers of the Kernels table, written once over sixteen
// lanes (lanes_portable.h). Sums run in sixteen lanes by index mod 16 with fused multiply-adds, the
// lanes are added as a tree. Nothing is read or written beyond the arrays.
#pragma once

#include "kernels/lane_math.h"
#include "kernels/ops.h"

namespace wader {
namespace {

template <typename L>
struct FloatOps {
  using M = LaneMath<L>;
  using Vec = typename L::Vec;
  static constexpr uint32_t kLanes = L::kCount;

  static void rms_norm(float* out, const float* x, const float* weight, uint32_t n, float eps) {
    const float root = L::sqrt(M::dot(x, x, n) / static_cast<float>(n) + eps);
    const Vec inverse = L::set1(1.0f / root);
    for (uint32_t i = 0; i < n; i += kLanes) {
      const Vec normalised = L::mul(M::load(x + i, n - i), inverse);
      M::store(out + i, L::mul(normalised, M::load(weight + i, n - i)), n - i);
    }
  }

  static void l2_norm(float* x, uint32_t n, float eps, float scale) {
    const Vec factor = L::set1(scale / L::sqrt(M::dot(x, x, n) + eps));
    for (uint32_t i = 0; i < n; i += kLanes)
      M::store(x + i, L::mul(M::load(x + i, n - i), factor), n - i);
  }

  static void rope(float* head, const float* cos, const float* sin, uint32_t dim) {
    const uint32_t half = dim / 2;
    for (uint32_t i = 0; i < half; i += kLanes) {
      const uint32_t left = half - i;
      const Vec a = M::load(head + i, left), b = M::load(head + half + i, left);
      const Vec c = M::load(cos + i, left), s = M::load(sin + i, left);
      M::store(head + i, L::sub(L::mul(a, c), L::mul(b, s)), left);
      M::store(head + half + i, L::add(L::mul(b, c), L::mul(a, s)), left);
    }
  }

  static void swiglu(float* out, const float* gate_up, uint32_t n) {
    each_pair(out, gate_up, n, [](Vec gate, Vec up) { return L::mul(M::silu(gate), up); });
  }

  static void swiglu_clamped(float* out, const float* gate_up, uint32_t n, float limit) {
    const Vec most = L::set1(limit), least = L::set1(-limit);
    each_pair(out, gate_up, n, [=](Vec gate, Vec up) {
      // The second operand stays where it is NaN.
      const Vec g = L::min(most, gate);
      const Vec u = L::min(most, L::max(least, up));
      const Vec swish = L::div(g, M::one_plus_exp_of_minus(L::mul(L::set1(1.702f), g)));
      return L::mul(L::add(u, L::set1(1.0f)), swish);
    });
  }

  static void add_scaled(float* x, const float* y, float scale, uint32_t n) {
    const Vec factor = L::set1(scale);
    for (uint32_t i = 0; i < n; i += kLanes)
      M::store(x + i, L::fma(factor, M::load(y + i, n - i), M::load(x + i, n - i)), n - i);
  }

  static void sigmoid_gate(float* x, const float* gate, uint32_t n) {
    for (uint32_t i = 0; i < n; i += kLanes)
      M::store(x + i, L::mul(M::load(x + i, n - i), M::sigmoid(M::load(gate + i, n - i))), n - i);
  }

  static void silu_gate(float* x, const float* gate, uint32_t n) {
    for (uint32_t i = 0; i < n; i += kLanes)
      M::store(x + i, L::mul(M::load(x + i, n - i), M::silu(M::load(gate + i, n - i))), n - i);
  }

  static void conv_silu(float* out, const float* const* rows, const float* taps, uint32_t kernel,
                        uint32_t begin, uint32_t end) {
    for (uint32_t c = begin; c < end; c += kLanes) {
      const uint32_t left = end - c;
      const float* tap = taps + static_cast<size_t>(c) * kernel;
      Vec sum = L::zero();
      if (kernel == 4 && left >= kLanes) {  // every released model's
        Vec four[4];
        split_fours(tap, four);
        for (uint32_t k = 0; k < 4; ++k) sum = L::fma(four[k], L::load(rows[k] + c), sum);
      } else {
        const uint32_t count = left < kLanes ? left : kLanes;
        for (uint32_t k = 0; k < kernel; ++k) {
          float column[kLanes] = {};
          for (uint32_t l = 0; l < count; ++l) column[l] = tap[l * kernel + k];
          sum = L::fma(L::load(column), M::load(rows[k] + c, left), sum);
        }
      }
      M::store(out + c, M::silu(sum), left);
    }
  }

  static void topk_softmax(uint32_t* ids, float* weights, const float* logits, uint32_t n,
                           uint32_t k) {
    top_k(ids, weights, logits, n, k);
    const float sum = exp_of_differences(weights, weights, weights[0], k);
    divide(weights, sum, k);
  }

  static void softmax_topk(uint32_t* ids, float* weights, const float* logits, uint32_t n,
                           uint32_t k, bool renormalise) {
    top_k(ids, weights, logits, n, k);
    const float most = weights[0];
    const float all = exp_of_differences(nullptr, logits, most, n);
    exp_of_differences(weights, weights, most, k);
    divide(weights, all, k);
    if (!renormalise) return;
    Vec kept = L::zero();
    for (uint32_t i = 0; i < k; i += kLanes) kept = L::add(kept, M::load(weights + i, k - i));
    divide(weights, L::add_as_tree(kept), k);
  }

 private:
  // out(i) = fn(pairs(2i), pairs(2i + 1)).
  template <typename Fn>
  static void each_pair(float* out, const float* pairs, uint32_t n, Fn fn) {
    Vec first, second;
    uint32_t i = 0;
    for (; i + kLanes <= n; i += kLanes) {
      L::load_pairs(pairs + 2 * size_t{i}, first, second);
      L::store(out + i, fn(first, second));
    }
    if (i == n) return;
    float last[2 * kLanes] = {};
    __builtin_memcpy(last, pairs + 2 * size_t{i}, 2 * size_t{n - i} * sizeof(float));
    L::load_pairs(last, first, second);
    L::store_n(out + i, fn(first, second), n - i);
  }

  // Sixteen fours → the first of each, the second, third and fourth.
  static void split_fours(const float* from, Vec (&to)[4]) {
    float even[2 * kLanes], odd[2 * kLanes];
    for (uint32_t half = 0; half < 2; ++half) {
      L::load_pairs(from + half * 2 * kLanes, to[0], to[1]);
      L::store(even + half * kLanes, to[0]);
      L::store(odd + half * kLanes, to[1]);
    }
    L::load_pairs(even, to[0], to[2]);
    L::load_pairs(odd, to[1], to[3]);
  }

  // Insertion into a sorted list of k: strictly greater moves up, so equal logits keep index order;
  // a NaN is never greater. Sixteen at once are passed over when none belongs into a full list.
  static void top_k(uint32_t* ids, float* values, const float* logits, uint32_t n, uint32_t k) {
    uint32_t kept = 0;
    const auto insert = [&](uint32_t i) {
      const float value = logits[i];
      uint32_t place = kept;
      while (place > 0 && value > values[place - 1]) --place;
      if (place == k) return;
      if (kept < k) ++kept;
      for (uint32_t j = kept - 1; j > place; --j) {
        ids[j] = ids[j - 1];
        values[j] = values[j - 1];
      }
      ids[place] = i;
      values[place] = value;
    };
    for (uint32_t i = 0; i < k; ++i) insert(i);
    for (uint32_t i = k; i < n; i += kLanes) {
      const uint32_t count = n - i < kLanes ? n - i : kLanes;
      // Lanes beyond the end are 0, which costs a look at worst.
      const Vec greater = L::select_less(L::set1(values[k - 1]), M::load(logits + i, n - i),
                                         L::set1(1.0f), L::zero());
      if (L::max_of(greater) == 0.0f) continue;
      for (uint32_t l = 0; l < count; ++l) insert(i + l);
    }
  }

  // Σ e^(x(i) − most), and the terms to `out` unless it is null.
  static float exp_of_differences(float* out, const float* x, float most, uint32_t n) {
    Vec sum = L::zero();
    for (uint32_t i = 0; i < n; i += kLanes) {
      Vec e = M::exp(L::sub(M::load(x + i, n - i), L::set1(most)));
      if (n - i < kLanes) {
        float terms[kLanes];
        L::store(terms, e);
        e = L::load_n(terms, n - i);
      }
      if (out != nullptr) M::store(out + i, e, n - i);
      sum = L::add(sum, e);
    }
    return L::add_as_tree(sum);
  }

  static void divide(float* x, float by, uint32_t n) {
    for (uint32_t i = 0; i < n; i += kLanes)
      M::store(x + i, L::div(M::load(x + i, n - i), L::set1(by)), n - i);
  }
};

}  // namespace
}  // namespace wader
