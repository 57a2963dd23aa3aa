// What the sampler does to 64 logits at a time: loops of fixed length that compilers turn into
// vector instructions on any machine. Each adds in the order that it writes down, so vectorised or
// not the bits are the same. Internal to sampler/. Pure: any thread.
#pragma once

#include <algorithm>
#include <array>
#include <bit>
#include <cstdint>
#include <limits>

namespace wader {

inline constexpr uint32_t kLogitBlock = 64;
using LogitBlock = std::array<float, kLogitBlock>;

// The largest of 64 logits; `clean` if none is NaN or +infinite, without which `max` means nothing.
struct BlockMax {
  float max;
  bool clean;
};

inline BlockMax block_max(const float* logits) {
  uint32_t unclean = 0;
  for (uint32_t i = 0; i < kLogitBlock; ++i) {
    unclean |= logits[i] <= std::numeric_limits<float>::max() ? 0u : 1u;  // NaN is not <= either
  }
  std::array<float, kLogitBlock / 2> half;
  for (uint32_t i = 0; i < half.size(); ++i) {
    half[i] = logits[i] > logits[i + 32] ? logits[i] : logits[i + 32];
  }
  for (uint32_t i = 0; i < 16; ++i) half[i] = half[i] > half[i + 16] ? half[i] : half[i + 16];
  for (uint32_t i = 0; i < 8; ++i) half[i] = half[i] > half[i + 8] ? half[i] : half[i + 8];
  for (uint32_t i = 0; i < 4; ++i) half[i] = half[i] > half[i + 4] ? half[i] : half[i + 4];
  return {std::max(std::max(half[0], half[1]), std::max(half[2], half[3])), unclean == 0};
}

// Below e^-87 a weight is under FLT_MIN: no draw of 53 bits can tell it from zero.
inline constexpr float kLowestExponent = -87;

// e^x of -88 <= x <= 0, and 0 below -87. Over all these floats within 0.99 ulp, and it never falls
// where x rises. libm's differs between libraries, and is a call a token. Polynomial and the split
// of ln 2 are those of Cephes' expf (Moshier 1992).
inline float exp_of_nonpositive(float x) {
  constexpr float kRound = 0x1.8p23f;  // x + kRound has the integer nearest to x in its low bits
  constexpr float kLog2E = 1.44269504088896341f;
  constexpr float kLn2High = 0.693359375f, kLn2Low = -2.12194440e-4f;
  const float rounded = x * kLog2E + kRound;
  const float n = rounded - kRound;
  const float r = x - n * kLn2High - n * kLn2Low;
  float p = 1.9875691500e-4f;
  p = p * r + 1.3981999507e-3f;
  p = p * r + 8.3334519073e-3f;
  p = p * r + 4.1665795894e-2f;
  p = p * r + 1.6666665459e-1f;
  p = p * r + 5.0000001201e-1f;
  p = p * (r * r) + r + 1.0f;
  const uint32_t exponent = std::bit_cast<uint32_t>(rounded) << 23;  // n, modulo 2^9
  const uint32_t mask =
      x < kLowestExponent ? 0u : ~0u;  // compilers would make `? 0 : value` a jump
  return std::bit_cast<float>((std::bit_cast<uint32_t>(p) + exponent) & mask);
}

// weights[i] = e^((logits[i] − max) / temperature). The difference is divided, not each logit: at a
// denormal temperature it is −infinity or 0, never NaN. `weights` may not overlap `logits`.
inline void weigh_block(const float* logits, double max, double temperature, float* weights) {
  std::array<double, kLogitBlock> exact;
  for (uint32_t i = 0; i < kLogitBlock; ++i) exact[i] = (double{logits[i]} - max) / temperature;
  for (uint32_t i = 0; i < kLogitBlock; ++i) exact[i] = exact[i] > -88.0 ? exact[i] : -88.0;
  LogitBlock x;
  for (uint32_t i = 0; i < kLogitBlock; ++i) x[i] = static_cast<float>(exact[i]);
  for (uint32_t i = 0; i < kLogitBlock; ++i) weights[i] = exp_of_nonpositive(x[i]);
}

// The last token that a filter keeps. Every filter but min-p keeps a prefix of the order (logit
// descending, id ascending), so this one token says which are kept.
struct Cut {
  float logit;
  int32_t id;
};

// Sets to 0 the weights of tokens after `cut` and those under min_weight; returns the sum of the
// rest, added as a binary tree. `id`: of the block's first token.
inline double keep_in_block(const float* logits, int32_t id, Cut cut, float min_weight,
                            float* weights) {
  const int32_t last = cut.id - id;  // in the block, of the tokens that tie with the cut
  for (int32_t i = 0; i < int32_t{kLogitBlock}; ++i) {
    const float tie = i <= last ? weights[i] : 0.0f;
    const float at_least = logits[i] == cut.logit ? tie : 0.0f;
    const float weight = logits[i] > cut.logit ? weights[i] : at_least;
    weights[i] = weight >= min_weight ? weight : 0.0f;
  }
  std::array<double, kLogitBlock / 2> sum;
  for (uint32_t i = 0; i < 32; ++i) sum[i] = double{weights[i]} + double{weights[i + 32]};
  for (uint32_t i = 0; i < 16; ++i) sum[i] += sum[i + 16];
  for (uint32_t i = 0; i < 8; ++i) sum[i] += sum[i + 8];
  for (uint32_t i = 0; i < 4; ++i) sum[i] += sum[i + 4];
  return (sum[0] + sum[2]) + (sum[1] + sum[3]);
}

}  // namespace wader
