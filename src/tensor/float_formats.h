// Conversions between f32 and the 16-bit and 8-bit formats of weights, exact to the bit.
#pragma once

#include <bit>
#include <cstdint>

namespace wader {

inline float bf16_to_f32(uint16_t bits) {
  return std::bit_cast<float>(static_cast<uint32_t>(bits) << 16);
}

// Round to nearest, ties to even; NaN stays NaN.
inline uint16_t f32_to_bf16(float value) {
  const auto bits = std::bit_cast<uint32_t>(value);
  if ((bits & 0x7fffffffu) > 0x7f800000u) return static_cast<uint16_t>((bits >> 16) | 0x40u);
  return static_cast<uint16_t>((bits + 0x7fffu + ((bits >> 16) & 1u)) >> 16);
}

float f16_to_f32(uint16_t bits);
uint16_t f32_to_f16(float value);  // round to nearest even; overflow to infinity

// OCP MX v1.0: E8M0 byte s is 2^(s − 127); 0 is 2^-127 (an f32 denormal), 255 is NaN.
inline float e8m0_to_f32(uint8_t scale) {
  if (scale == 0) return std::bit_cast<float>(0x00400000u);
  if (scale == 255) return std::bit_cast<float>(0x7fc00000u);
  return std::bit_cast<float>(static_cast<uint32_t>(scale) << 23);
}

// OCP MX v1.0: E2M1 codes, bit 3 is the sign.
inline constexpr float kE2M1[16] = {0.f,  0.5f,  1.f,  1.5f,  2.f,  3.f,  4.f,  6.f,
                                    -0.f, -0.5f, -1.f, -1.5f, -2.f, -3.f, -4.f, -6.f};

}  // namespace wader
