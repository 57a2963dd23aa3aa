#include "tensor/quantise.h"

#include <bit>
#include <cmath>
#include <cstring>
#include <limits>

#include "base/check.h"
#include "tensor/float_formats.h"
#include "tensor/wide.h"

// What a WADER_WIDE function calls must be part of it, or it would run with the baseline's vectors.
#define WADER_PART [[gnu::always_inline]] inline

namespace wader {
namespace {

constexpr uint32_t kLanes = 16;
constexpr uint32_t kMaxGroup = 128;

// To the nearest whole number, ties to even, for |x| < 2^22; a vector instruction everywhere, which
// nearbyint is not.
WADER_PART float round_even(float x) {
  return (x + 0x1.8p23f) - 0x1.8p23f;
}

template <typename T>
WADER_PART T sum_of(T (&lanes)[kLanes]) {
  for (uint32_t half = kLanes / 2; half > 0; half /= 2)
    for (uint32_t l = 0; l < half; ++l) lanes[l] += lanes[l + half];
  return lanes[0];
}

WADER_PART void store_bf16(float value, std::byte* to) {
  const uint16_t bits = f32_to_bf16(value);
  std::memcpy(to, &bits, sizeof bits);
}

WADER_PART float rounded_to_bf16(float value) {
  return bf16_to_f32(f32_to_bf16(value));
}

// ---- Affine groups: w = code · scale + bias ----

struct Line {
  float scale, bias;
};

struct Range {
  float low, high;
};

WADER_PART Range range_of(const float* w, uint32_t n) {
  float low[kLanes], high[kLanes];
  for (uint32_t l = 0; l < kLanes; ++l) low[l] = high[l] = w[l];
  for (uint32_t i = kLanes; i < n; i += kLanes)
    for (uint32_t l = 0; l < kLanes; ++l) {
      const float x = w[i + l];
      low[l] = x < low[l] ? x : low[l];
      high[l] = x > high[l] ? x : high[l];
    }
  for (uint32_t l = 1; l < kLanes; ++l) {
    low[0] = low[l] < low[0] ? low[l] : low[0];
    high[0] = high[l] > high[0] ? high[l] : high[0];
  }
  return {low[0], high[0]};
}

WADER_PART float held(float x, float top) {
  x = x < 0.0f ? 0.0f : x;
  return x < top ? x : top;
}

// Extremes mapped to the first and last code. The bias is rounded first and the scale made to reach
// the far end from there, so that rounding the bias costs at most its own half unit, not a shift of
// every code.
WADER_PART Line line_of_extremes(const Range& range, float top) {
  const float bias = rounded_to_bf16(range.low);
  return {rounded_to_bf16((range.high - bias) / top), bias};
}

// Nearest codes (n). Returns Σ (w − what a reader will decode)².
WADER_PART double encode(const float* w, uint32_t n, const Line& line, float top, uint8_t* codes) {
  double error[kLanes] = {};
  const float divisor = line.scale != 0 ? line.scale : std::numeric_limits<float>::infinity();
  for (uint32_t i = 0; i < n; i += kLanes)
    for (uint32_t l = 0; l < kLanes; ++l) {
      const float code = round_even(held((w[i + l] - line.bias) / divisor, top));
      const double difference = w[i + l] - (code * line.scale + line.bias);
      error[l] += difference * difference;
      codes[i + l] = static_cast<uint8_t>(code);
    }
  return sum_of(error);
}

// Sums over one group u (n), which spans [0, 1], and over the codes that a line gives it.
struct Moments {
  float code, code2, code_u;  // Σ q, Σ q², Σ q u
};

WADER_PART Moments moments_of(const float* u, uint32_t n, const Line& line, float top) {
  float code[kLanes] = {}, code2[kLanes] = {}, code_u[kLanes] = {};
  const float inverse = 1.0f / line.scale;
  for (uint32_t i = 0; i < n; i += kLanes)
    for (uint32_t l = 0; l < kLanes; ++l) {
      const float q = round_even(held((u[i + l] - line.bias) * inverse, top));
      code[l] += q;
      code2[l] += q * q;
      code_u[l] += q * u[i + l];
    }
  return {sum_of(code), sum_of(code2), sum_of(code_u)};
}

// Where the search starts: each end of the range moved inwards by 0, 1 or 2 steps. On Gaussian and
// Student-t(5) weights in groups of 64, steps of 1/30 come within 0.03 dB (0.10 dB) of what a
// search without limits finds.
constexpr uint32_t kStarts = 3;
constexpr float kStartStep = 1.0f / 30;
constexpr int kRefinements = 2;

// The line of least squared error for 4-bit codes, near enough: the best of nine clipped ranges by
// the error that its codes have under their own regression line; from there codes and line in turn,
// with the line rounded to bf16. Scale 0 when that leads nowhere. All of it in u = (w − low) /
// (high − low), whatever the weights' magnitude.
WADER_PART Line search_line(const float* w, uint32_t n, const Range& range, float top) {
  const float span = range.high - range.low, inverse_span = 1.0f / span;
  float u[kMaxGroup], sum[kLanes] = {};
  for (uint32_t i = 0; i < n; i += kLanes)
    for (uint32_t l = 0; l < kLanes; ++l) {
      u[i + l] = (w[i + l] - range.low) * inverse_span;
      sum[l] += u[i + l];
    }
  const double count = n, total = sum_of(sum);

  Moments moments[kStarts * kStarts];
  for (uint32_t s = 0; s < kStarts * kStarts; ++s) {
    const float from = kStartStep * static_cast<float>(s / kStarts);
    const float cut = kStartStep * static_cast<float>(s % kStarts);
    moments[s] = moments_of(u, n, {(1.0f - from - cut) / top, from}, top);
  }
  Line line{0, 0};
  double most = -1;
  for (const Moments& m : moments) {
    const double spread = count * m.code2 - double{m.code} * m.code;
    if (!(spread > 0)) continue;
    const double scale = (count * m.code_u - m.code * total) / spread;
    const double bias = (total - scale * m.code) / count;
    const double explained = bias * total + scale * m.code_u;  // Σ u² − Σ (u − scale · q − bias)²
    if (explained > most) {
      most = explained;
      line = {static_cast<float>(scale), static_cast<float>(bias)};
    }
  }
  Line stored{0, 0};
  for (int i = 0; i < kRefinements && line.scale > 0; ++i) {
    const Moments m = moments_of(u, n, line, top);
    const double spread = count * m.code2 - double{m.code} * m.code;
    if (!(spread > 0)) break;
    const double scale = (count * m.code_u - m.code * total) / spread;
    const double bias = (total - scale * m.code) / count;
    stored.bias = rounded_to_bf16(static_cast<float>(range.low + bias * span));
    line.bias = static_cast<float>((double{stored.bias} - range.low) * inverse_span);
    // The best scale for the bias as rounded.
    line.scale = (m.code_u - line.bias * m.code) / m.code2;
    stored.scale = rounded_to_bf16(line.scale * span);
    line.scale = stored.scale * inverse_span;
  }
  return stored;
}

// Beyond these spans the search's own numbers would leave f32; no weights are there.
constexpr float kLeastSpan = 0x1p-100f, kGreatestSpan = 0x1p100f;

// Codes of one group, a byte each. False when scale, bias or a decoded value is not finite.
WADER_PART bool quantise_group(const float* w, uint32_t n, bool four_bits, uint8_t* codes,
                               Line* out) {
  const float top = four_bits ? 15.0f : 255.0f;
  const Range range = range_of(w, n);
  *out = line_of_extremes(range, top);
  double error = encode(w, n, *out, top, codes);
  const float span = range.high - range.low;
  if (four_bits && span > kLeastSpan && span < kGreatestSpan) {
    const Line line = search_line(w, n, range, top);
    uint8_t better_codes[kMaxGroup];
    const double better = encode(w, n, line, top, better_codes);
    if (line.scale > 0 && better < error) {
      error = better;
      *out = line;
      std::memcpy(codes, better_codes, n);
    }
  }
  return std::isfinite(error);
}

WADER_WIDE bool quantise_affine_row(const MatrixFormat& format, const float* values, uint32_t cols,
                                    const RowPlanes& out) {
  const uint32_t n = format.group;
  const bool four_bits = format.dtype == DType::affine4;
  bool finite = true;
  for (uint32_t g = 0; g < cols / n; ++g) {
    uint8_t codes[kMaxGroup];
    Line line;
    finite = quantise_group(values + size_t{g} * n, n, four_bits, codes, &line) && finite;
    store_bf16(line.scale, out.scales.data() + 2 * size_t{g});
    store_bf16(line.bias, out.biases.data() + 2 * size_t{g});
    if (!four_bits) {
      std::memcpy(out.codes.data() + size_t{g} * n, codes, n);
      continue;
    }
    std::byte* packed = out.codes.data() + size_t{g} * (n / 2);
    for (uint32_t i = 0; i < n / 2; ++i)
      packed[i] = static_cast<std::byte>(codes[2 * i] | codes[2 * i + 1] << 4);
  }
  return finite;
}

// ---- MXFP4 blocks ----

// E8M0 byte s is 2^(s − 127). From 253 on, code 7 would decode to more than f32 holds.
constexpr int kOne = 127, kGreatestScale = 252;

// x >= 0 to the nearest of 0, 0.5, 1, 1.5, 2, 3, 4, 6; ties to the even code. From 2^e to 2^(e + 1)
// they go in steps of 2^(e − 1), below 1 in halves, which is the unit in the last place of 2^(e +
// 22).
WADER_PART float nearest_e2m1(float x) {
  // In integers: the compiler does not vectorise a choice that floating-point exceptions could see.
  const int32_t exponent = std::bit_cast<int32_t>(x) & 0x7f800000, one = 0x3f800000;
  const auto power = std::bit_cast<float>((exponent > one ? exponent : one) + (22 << 23));
  const float nearest = (x + power) - power;
  return nearest < 6.0f ? nearest : 6.0f;
}

// The code of what nearest_e2m1 gave, with the sign of w. There is no −0.
WADER_PART int32_t e2m1_code(float nearest, float w) {
  // From 1 on two codes a power of two, and 1.0f is 254 << 22; before that 0.5, and 0, which comes
  // out far below 0.
  const int32_t bits = std::bit_cast<int32_t>(nearest), half = bits == 0x3f000000 ? 1 : 0;
  const int32_t floating = (bits >> 22) - 252, code = floating > half ? floating : half;
  const int32_t sign = std::bit_cast<int32_t>(w) < 0 ? 8 : 0;
  return code + (code > 0 ? sign : 0);
}

WADER_PART float inverse_scale(int scale) {  // 2^(127 − scale), exact
  return std::bit_cast<float>(static_cast<uint32_t>(254 - scale) << 23);
}

// Σ (w − ŵ)² / 4^(scale − 127).
WADER_PART float scaled_error(const float* w, int scale) {
  float error[kLanes] = {};
  const float inverse = inverse_scale(scale);
  for (uint32_t i = 0; i < kMxfp4Block; i += kLanes)
    for (uint32_t l = 0; l < kLanes; ++l) {
      const float x = std::fabs(w[i + l]) * inverse;
      const float difference = x - nearest_e2m1(x);
      error[l] += difference * difference;
    }
  return sum_of(error);
}

// The power of two that puts the largest value into [4, 8), or the one below or above it.
WADER_PART int best_scale(const float* w) {
  float lanes[kLanes] = {};
  for (uint32_t i = 0; i < kMxfp4Block; i += kLanes)
    for (uint32_t l = 0; l < kLanes; ++l) {
      const float x = std::fabs(w[i + l]);
      lanes[l] = x > lanes[l] ? x : lanes[l];
    }
  float largest = 0;
  for (float lane : lanes) largest = lane > largest ? lane : largest;
  if (largest == 0) return kOne;  // any would do; the least is a denormal, slow to multiply with
  const int middle = static_cast<int>(std::bit_cast<uint32_t>(largest) >> 23) - 2;
  int best = -1;
  float least = 0, unit = 0.25f;  // of the errors: 4^(scale − middle)
  for (int scale = middle - 1; scale <= middle + 1; ++scale, unit *= 4) {
    if (scale < 0 || scale > kGreatestScale) continue;
    const float error = scaled_error(w, scale) * unit;
    if (best >= 0 && error >= least) continue;
    best = scale;
    least = error;
  }
  return best >= 0 ? best : 0;  // all below 2^-125: counted in the least unit there is
}

WADER_WIDE void quantise_mxfp4_row(const float* values, uint32_t cols, const RowPlanes& out) {
  for (uint32_t b = 0; b < cols / kMxfp4Block; ++b) {
    const float* w = values + size_t{b} * kMxfp4Block;
    const int scale = best_scale(w);
    out.scales[b] = static_cast<std::byte>(scale);
    const float inverse = inverse_scale(scale);
    uint8_t codes[kMxfp4Block];
    for (uint32_t i = 0; i < kMxfp4Block; ++i)
      codes[i] = static_cast<uint8_t>(e2m1_code(nearest_e2m1(std::fabs(w[i]) * inverse), w[i]));
    std::byte* packed = out.codes.data() + size_t{b} * (kMxfp4Block / 2);
    for (uint32_t i = 0; i < kMxfp4Block / 2; ++i)
      packed[i] = static_cast<std::byte>(codes[2 * i] | codes[2 * i + 1] << 4);
  }
}

WADER_WIDE bool round_row(const float* values, uint32_t cols, std::byte* out) {
  uint32_t infinite = 0;
  for (uint32_t i = 0; i < cols; ++i) {
    const uint16_t bits = f32_to_bf16(values[i]);
    infinite |= static_cast<uint32_t>((bits & 0x7fffu) == 0x7f80u);
    std::memcpy(out + 2 * size_t{i}, &bits, sizeof bits);
  }
  return infinite == 0;
}

}  // namespace

bool quantise_row(const MatrixFormat& format, const float* values, uint32_t cols,
                  const RowPlanes& out) {
  const auto bytes = row_bytes(format, cols);
  CHECK(bytes && out.codes.size() == bytes->codes && out.scales.size() == bytes->scales &&
        out.biases.size() == bytes->biases);
  if (is_affine(format.dtype)) {
    CHECK(format.scales == DType::bf16 && format.group % kLanes == 0 && format.group <= kMaxGroup);
    return quantise_affine_row(format, values, cols, out);
  }
  if (format.dtype == DType::mxfp4) {
    quantise_mxfp4_row(values, cols, out);
    return true;
  }
  CHECK(format.dtype == DType::bf16);
  return round_row(values, cols, out.codes.data());
}

}  // namespace wader
