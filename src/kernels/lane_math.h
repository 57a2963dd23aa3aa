// What the float operations share, over any struct of the interface in lanes_portable.h: the
// exponential and what is made of it, ragged ends, dot products. The same bits in every back end.
//
// Templates over an internal type, and nothing of the standard library that is not inlined for
// sure: in a file compiled for a wide instruction set, an inline function could become the
// program's only copy.
#pragma once

#include <cstddef>
#include <cstdint>

#if defined(__clang__)
#define WADER_UNROLL _Pragma("unroll")
#else
#define WADER_UNROLL _Pragma("GCC unroll 16")
#endif

namespace wader {
namespace {

template <uint32_t kValue>
struct Count {
  static constexpr uint32_t value = kValue;
};

template <typename L>
struct LaneMath {
  using Vec = typename L::Vec;
  static constexpr uint32_t kLanes = L::kCount;

  // The next sixteen of an array that has `left` more, or those.
  static Vec load(const float* from, size_t left) {
    return left >= kLanes ? L::load(from) : L::load_n(from, static_cast<uint32_t>(left));
  }
  static void store(float* to, Vec a, size_t left) {
    if (left >= kLanes)
      L::store(to, a);
    else
      L::store_n(to, a, static_cast<uint32_t>(left));
  }

  // fn(Count<V>, i) for all of [from, n), V vectors at i, the most first; Count<0> is the ragged
  // end, less than one vector.
  template <uint32_t kVectors, typename Fn>
  static void in_stripes(uint32_t from, uint32_t n, Fn&& fn) {
    for (; n - from >= kVectors * kLanes; from += kVectors * kLanes) fn(Count<kVectors>{}, from);
    if constexpr (kVectors > 1)
      in_stripes<kVectors / 2>(from, n, fn);
    else if (from < n)
      fn(Count<0>{}, from);
  }
  static constexpr uint32_t vectors_of(uint32_t count) { return count == 0 ? 1 : count; }
  // Vector v of a stripe of kCount at `at`, in an array of n.
  template <uint32_t kCount>
  static Vec stripe_load(const float* array, uint32_t at, uint32_t v, uint32_t n) {
    if constexpr (kCount == 0)
      return L::load_n(array + at, n - at);
    else
      return L::load(array + at + v * kLanes);
  }
  template <uint32_t kCount>
  static void stripe_store(float* array, uint32_t at, uint32_t v, uint32_t n, Vec a) {
    if constexpr (kCount == 0)
      L::store_n(array + at, a, n - at);
    else
      L::store(array + at + v * kLanes, a);
  }

  // e^x within 1 ulp of the true value; 0 where that is below 2^-126, ∞ where it rounds to it.
  // x = n ln 2 + r with |r| <= ln 2 / 2 (Cody & Waite 1980), e^r = 1 + r + r² P(r), P of degree 4
  // fitted to the relative error: 2^-27.9 beside the roundings.
  static Vec exp(Vec x) {
    constexpr float kLowest = -0x1.5d589ep6f;  // the least f32 with e^x >= 2^-126
    constexpr float kHighest = 89.0f;          // e^89 > 2^128
    // NaN stays: max and min give their second where either is one.
    const Vec within = L::min(L::set1(kHighest), L::max(L::set1(kLowest), x));
    const Vec n = L::round(L::mul(within, L::set1(0x1.715476p0f)));  // log2 e
    Vec r = L::fma(n, L::set1(-0x1.62e43p-1f), within);              // ln 2 in two parts
    r = L::fma(n, L::set1(0x1.05c61p-29f), r);
    Vec p = L::fma(L::set1(0x1.687c02p-10f), r, L::set1(0x1.123b9ap-7f));
    p = L::fma(p, r, L::set1(0x1.555b58p-5f));
    p = L::fma(p, r, L::set1(0x1.55548ep-3f));
    p = L::fma(p, r, L::set1(0x1.fffff8p-2f));
    const Vec e = L::add(L::set1(1.0f), L::fma(L::mul(r, r), p, r));
    // n = 128 takes its last doubling by itself: 2^128 is not an f32.
    const Vec most = L::set1(127.0f);
    Vec y = L::scale_by_power(e, L::min(n, most));
    y = L::select_less(most, n, L::add(y, y), y);
    return L::select_less(x, L::set1(kLowest), L::zero(), y);
  }
  static Vec one_plus_exp_of_minus(Vec x) {
    return L::add(L::set1(1.0f), exp(L::sub(L::zero(), x)));
  }
  static Vec sigmoid(Vec x) { return L::div(L::set1(1.0f), one_plus_exp_of_minus(x)); }
  static Vec silu(Vec x) { return L::div(x, one_plus_exp_of_minus(x)); }

  static float dot(const float* a, const float* b, uint32_t n) {
    Vec sum = L::zero();
    uint32_t i = 0;
    for (; i + kLanes <= n; i += kLanes) sum = L::fma(L::load(a + i), L::load(b + i), sum);
    if (i < n) sum = L::fma(L::load_n(a + i, n - i), L::load_n(b + i, n - i), sum);
    return L::add_as_tree(sum);
  }
};

}  // namespace
}  // namespace wader
