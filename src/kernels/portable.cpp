// The integer products in plain C++: what every other back end of them must equal to the bit, and
// what runs where there is no other.

#include <bit>
#include <cfloat>
#include <cmath>
#include <cstring>

#include "kernels/integer.h"
#include "tensor/float_formats.h"

namespace wader::portable {
namespace {

// 2 · E2M1.
constexpr int16_t kTwiceE2M1[16] = {0, 1, 2, 3, 4, 6, 8, 12, 0, -1, -2, -3, -4, -6, -8, -12};

void unpack_codes(const MatrixView& w, uint32_t row, int16_t* out) {
  const std::byte* codes = w.codes + row * code_bytes_of_row(w);
  if (w.format.dtype == DType::affine8) {
    for (uint32_t c = 0; c < w.cols; ++c) out[c] = static_cast<int16_t>(codes[c]);
    return;
  }
  const bool mxfp4 = w.format.dtype == DType::mxfp4;
  for (uint32_t c = 0; c < w.cols; c += 2) {
    const auto byte = static_cast<uint8_t>(codes[c / 2]);
    const int low = byte & 15, high = byte >> 4;
    out[c] = mxfp4 ? kTwiceE2M1[low] : static_cast<int16_t>(low);
    out[c + 1] = mxfp4 ? kTwiceE2M1[high] : static_cast<int16_t>(high);
  }
}

float load_16(const MatrixView& w, const std::byte* plane, size_t at) {
  uint16_t bits;
  std::memcpy(&bits, plane + 2 * at, sizeof bits);
  return w.format.scales == DType::f16 ? f16_to_f32(bits) : bf16_to_f32(bits);
}

// One a block of activations.
void unpack_scales(const MatrixView& w, uint32_t row, float* scales, float* biases) {
  const uint32_t width = activation_block(w.format), blocks = w.cols / width;
  for (uint32_t b = 0; b < blocks; ++b) {
    if (w.format.dtype == DType::mxfp4) {
      const std::byte scale = w.scales[static_cast<size_t>(row) * blocks + b];
      scales[b] = 0.5f * e8m0_to_f32(static_cast<uint8_t>(scale));
      continue;
    }
    const uint32_t group = w.format.group;
    const size_t at = static_cast<size_t>(row) * (w.cols / group) + b * width / group;
    scales[b] = load_16(w, w.scales, at);
    biases[b] = load_16(w, w.biases, at);
  }
}

float add_as_tree(float (&lanes)[kSumLanes]) {
  for (uint32_t half = kSumLanes / 2; half > 0; half /= 2)
    for (uint32_t l = 0; l < half; ++l) lanes[l] += lanes[l + half];
  return lanes[0];
}

}  // namespace

void matmul(const MatmulArgs& a) {
  const uint32_t width = activation_block(a.w.format), blocks = a.w.cols / width;
  const bool affine = is_affine(a.w.format.dtype);
  float* scales = a.scratch;
  float* biases = scales + blocks;
  auto* codes = reinterpret_cast<int16_t*>(biases + blocks);
  for (uint32_t r = a.row_begin; r < a.row_end; ++r) {
    unpack_codes(a.w, r, codes);
    unpack_scales(a.w, r, scales, biases);
    for (uint32_t t = 0; t < a.tokens; ++t) {
      const int8_t* x = a.xq->codes + t * a.xq->codes_stride;
      const float* x_scales = a.xq->scales + t * a.xq->blocks_stride;
      float lanes[kSumLanes] = {};
      for (uint32_t b = 0; b < blocks; ++b) {
        int32_t sum = 0, code_sum = 0;
        for (uint32_t c = b * width; c < (b + 1) * width; ++c) {
          sum += codes[c] * x[c];
          code_sum += x[c];
        }
        // A builtin, so that no file's build decides whether it is fused: without FMA in the
        // baseline it is the C library's, which rounds once all the same.
        float& lane = lanes[b % kSumLanes];
        const float x_scale = x_scales[b * width / kActivationBlock];
        lane = __builtin_fmaf(static_cast<float>(sum), scales[b] * x_scale, lane);
        if (affine) lane = __builtin_fmaf(biases[b], x_scale * static_cast<float>(code_sum), lane);
      }
      a.y[t * a.y_stride + r] = add_as_tree(lanes) + (a.bias ? a.bias[r] : 0.0f);
    }
  }
}

void quantise_row(int8_t* codes, float* scales, float* sums, int32_t* code_sums, const float* x,
                  uint32_t n, uint32_t block) {
  for (uint32_t begin = 0; begin < n; begin += block) {
    // Magnitudes order as their bits do, and a NaN's are the largest.
    uint32_t max_bits = 0;
    for (uint32_t c = begin; c < begin + block; ++c)
      max_bits = std::max(max_bits, std::bit_cast<uint32_t>(x[c]) & 0x7fffffffu);
    const bool finite = max_bits < 0x7f800000u;
    float scale = finite ? std::bit_cast<float>(max_bits) / 127.0f : NAN;
    if (scale < FLT_MIN) scale = 0;
    int32_t sum = 0;
    for (uint32_t b = begin / kActivationBlock; b < (begin + block) / kActivationBlock; ++b) {
      code_sums[b] = 0;
      for (uint32_t c = b * kActivationBlock; c < (b + 1) * kActivationBlock; ++c) {
        const long code = finite && scale > 0 ? std::lrint(x[c] / scale) : 0;
        codes[c] = static_cast<int8_t>(code);
        code_sums[b] += static_cast<int32_t>(code);
      }
      scales[b] = scale;
      sum += code_sums[b];
    }
    if (block == kWideBlock) sums[begin / kWideBlock] = scale * static_cast<float>(sum);
  }
}

}  // namespace wader::portable
