// The sixteen lanes of lanes_portable.h in four registers of NEON, as every processor of Armv8.0
// has it.
#pragma once

#include <arm_neon.h>

#include <cstdint>

namespace wader::neon {
namespace {

struct Lanes {
  static constexpr uint32_t kCount = 16;
  static constexpr uint32_t kAccumulators = 4;  // 16 of 32 registers

  struct Vec {
    float32x4_t v[4];
  };

  static Vec set1(float x) {
    return map([&](uint32_t) { return vdupq_n_f32(x); });
  }
  static Vec zero() { return set1(0.0f); }

  static Vec load(const float* from) {
    return map([&](uint32_t i) { return vld1q_f32(from + 4 * i); });
  }
  static Vec load_n(const float* from, uint32_t n) {
    float all[kCount] = {};
    __builtin_memcpy(all, from, n * sizeof(float));
    return load(all);
  }
  static Vec load_f16(const uint16_t* from) {
    return map(
        [&](uint32_t i) { return vcvt_f32_f16(vreinterpret_f16_u16(vld1_u16(from + 4 * i))); });
  }
  static Vec load_f16_n(const uint16_t* from, uint32_t n) {
    uint16_t all[kCount] = {};
    __builtin_memcpy(all, from, n * sizeof(uint16_t));
    return load_f16(all);
  }
  static Vec load_bf16(const uint16_t* from) {
    return map(
        [&](uint32_t i) { return vreinterpretq_f32_u32(vshll_n_u16(vld1_u16(from + 4 * i), 16)); });
  }
  static Vec load_bf16_n(const uint16_t* from, uint32_t n) {
    uint16_t all[kCount] = {};
    __builtin_memcpy(all, from, n * sizeof(uint16_t));
    return load_bf16(all);
  }
  static void load_pairs(const float* from, Vec& first, Vec& second) {
    for (uint32_t i = 0; i < 4; ++i) {
      const float32x4x2_t pairs = vld2q_f32(from + 8 * i);
      first.v[i] = pairs.val[0];
      second.v[i] = pairs.val[1];
    }
  }
  static void store(float* to, Vec a) {
    for (uint32_t i = 0; i < 4; ++i) vst1q_f32(to + 4 * i, a.v[i]);
  }
  static void store_n(float* to, Vec a, uint32_t n) {
    float all[kCount];
    store(all, a);
    __builtin_memcpy(to, all, n * sizeof(float));
  }
  static void store_f16(uint16_t* to, Vec a) {
    for (uint32_t i = 0; i < 4; ++i)
      vst1_u16(to + 4 * i, vreinterpret_u16_f16(vcvt_f16_f32(a.v[i])));
  }
  static void store_f16_n(uint16_t* to, Vec a, uint32_t n) {
    uint16_t all[kCount];
    store_f16(all, a);
    __builtin_memcpy(to, all, n * sizeof(uint16_t));
  }

  static Vec add(Vec a, Vec b) {
    return map([&](uint32_t i) { return vaddq_f32(a.v[i], b.v[i]); });
  }
  static Vec sub(Vec a, Vec b) {
    return map([&](uint32_t i) { return vsubq_f32(a.v[i], b.v[i]); });
  }
  static Vec mul(Vec a, Vec b) {
    return map([&](uint32_t i) { return vmulq_f32(a.v[i], b.v[i]); });
  }
  static Vec div(Vec a, Vec b) {
    return map([&](uint32_t i) { return vdivq_f32(a.v[i], b.v[i]); });
  }
  static Vec fma(Vec a, Vec b, Vec c) {
    return map([&](uint32_t i) { return vfmaq_f32(c.v[i], a.v[i], b.v[i]); });
  }
  // FMAX and FMIN would give NaN where either is NaN.
  static Vec max(Vec a, Vec b) { return select_less(b, a, a, b); }
  static Vec min(Vec a, Vec b) { return select_less(a, b, a, b); }
  static Vec select_less(Vec a, Vec b, Vec x, Vec y) {
    return map([&](uint32_t i) { return vbslq_f32(vcltq_f32(a.v[i], b.v[i]), x.v[i], y.v[i]); });
  }
  static Vec round(Vec a) {
    return map([&](uint32_t i) { return vrndnq_f32(a.v[i]); });
  }
  static Vec scale_by_power(Vec a, Vec n) {
    return map([&](uint32_t i) {
      const int32x4_t exponent = vaddq_s32(vcvtq_s32_f32(n.v[i]), vdupq_n_s32(127));
      return vmulq_f32(a.v[i], vreinterpretq_f32_s32(vshlq_n_s32(exponent, 23)));
    });
  }
  static float sqrt(float x) { return vget_lane_f32(vsqrt_f32(vdup_n_f32(x)), 0); }

  static float add_as_tree(Vec a) {
    const float32x4_t four = vaddq_f32(vaddq_f32(a.v[0], a.v[2]), vaddq_f32(a.v[1], a.v[3]));
    const float32x2_t two = vadd_f32(vget_low_f32(four), vget_high_f32(four));
    return vget_lane_f32(two, 0) + vget_lane_f32(two, 1);
  }
  static float max_of(Vec a) {
    return vmaxvq_f32(vmaxq_f32(vmaxq_f32(a.v[0], a.v[1]), vmaxq_f32(a.v[2], a.v[3])));
  }

 private:
  template <typename Fn>
  static Vec map(Fn&& fn) {
    return {{fn(0), fn(1), fn(2), fn(3)}};
  }
};

}  // namespace
}  // namespace wader::neon
