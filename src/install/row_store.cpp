#include "install/row_store.h"

#include <cmath>
#include <cstring>
#include <optional>

#include "base/check.h"
#include "tensor/float_formats.h"
#include "tensor/matrix.h"

namespace wader {
namespace {

using Kind = RowFault::Kind;

template <typename T>
T load(const std::byte* from, size_t i) {
  T value;
  std::memcpy(&value, from + i * sizeof value, sizeof value);
  return value;
}

// Index of the first value with all bits of the exponent set. Counted first: nearly always there is
// none, and a loop that cannot end early runs at the speed of memory.
template <typename T>
std::optional<uint64_t> first_not_finite(const std::byte* from, size_t count, T exponent) {
  T found = 0;
  for (size_t i = 0; i < count; ++i)
    found |= static_cast<T>((load<T>(from, i) & exponent) == exponent);
  for (size_t i = 0; found != 0 && i < count; ++i)
    if ((load<T>(from, i) & exponent) == exponent) return i;
  return std::nullopt;
}

std::optional<uint64_t> first_not_finite(DType dtype, const std::byte* from, size_t count) {
  switch (dtype) {
    case DType::bf16:
      return first_not_finite<uint16_t>(from, count, 0x7f80);
    case DType::f16:
      return first_not_finite<uint16_t>(from, count, 0x7c00);
    case DType::f32:
      return first_not_finite<uint32_t>(from, count, 0x7f800000);
    default:
      UNREACHABLE("not a plain float format");
  }
}

float widen(DType dtype, uint16_t bits) {
  return dtype == DType::f16 ? f16_to_f32(bits) : bf16_to_f32(bits);
}

RowFault check_affine(const MatrixFormat& format, const SourceRow& row, uint32_t cols) {
  const uint32_t groups = cols / format.group;
  if (const auto at = first_not_finite(format.scales, row.biases, groups)) return {Kind::bias, *at};
  if (const auto at = first_not_finite(format.scales, row.scales, groups))
    return {Kind::scale, *at};
  if (format.scales == DType::f16) return {};
  const float top = format.dtype == DType::affine4 ? 15.0f : 255.0f;
  bool finite = true;
  const auto reaches = [&](uint32_t g) {
    return std::isfinite(top * widen(format.scales, load<uint16_t>(row.scales, g)) +
                         widen(format.scales, load<uint16_t>(row.biases, g)));
  };
  for (uint32_t g = 0; g < groups; ++g) finite = finite && reaches(g);
  for (uint32_t g = 0; !finite && g < groups; ++g)
    if (!reaches(g)) return {Kind::scale, g};
  return {};
}

// What the source's format forbids, whatever becomes of the row.
RowFault check_row(const MatrixFormat& format, const SourceRow& row, uint32_t cols) {
  if (is_affine(format.dtype)) return check_affine(format, row, cols);
  if (format.dtype == DType::mxfp4) {
    const void* found = std::memchr(row.scales, 255, cols / kMxfp4Block);
    if (found == nullptr) return {};
    return {Kind::e8m0_nan,
            static_cast<uint64_t>(static_cast<const std::byte*>(found) - row.scales)};
  }
  if (const auto at = first_not_finite(format.dtype, row.codes, cols)) return {Kind::value, *at};
  return {};
}

// (scale, bias), (scale, bias) … → a plane of each.
SourceRow split_pairs(const SourceRow& row, uint32_t cols, RowScratch& scratch) {
  const uint32_t groups = cols / row.piece->format.group;
  for (uint32_t g = 0; g < groups; ++g) {
    scratch.scales[g] = load<uint16_t>(row.scales, 2 * size_t{g});
    scratch.biases[g] = load<uint16_t>(row.scales, 2 * size_t{g} + 1);
  }
  return {row.piece, row.codes, std::as_bytes(std::span(scratch.scales)).data(),
          std::as_bytes(std::span(scratch.biases)).data()};
}

void copy_row(const SourceRow& row, const RowPlanes& out) {
  std::memcpy(out.codes.data(), row.codes, out.codes.size());
  if (!out.scales.empty()) std::memcpy(out.scales.data(), row.scales, out.scales.size());
  if (!out.biases.empty()) std::memcpy(out.biases.data(), row.biases, out.biases.size());
}

// Whether every row of `from` is one of `to` with the same values: as many bits or more, groups
// that are parts of the old ones.
bool widens_to(const MatrixFormat& from, const MatrixFormat& to) {
  return is_affine(from.dtype) && is_affine(to.dtype) && from.scales == to.scales &&
         (from.dtype == to.dtype || to.dtype == DType::affine8) && from.group % to.group == 0;
}

void widen_row(const MatrixFormat& from, const SourceRow& row, uint32_t cols,
               const MatrixFormat& to, const RowPlanes& out) {
  if (from.dtype == to.dtype) {
    std::memcpy(out.codes.data(), row.codes, out.codes.size());
  } else {
    for (uint32_t i = 0; i < cols / 2; ++i) {
      out.codes[2 * i] = row.codes[i] & std::byte{15};
      out.codes[2 * i + 1] = row.codes[i] >> 4;
    }
  }
  const uint32_t parts = from.group / to.group;
  for (uint32_t g = 0; g < cols / to.group; ++g) {
    std::memcpy(out.scales.data() + 2 * size_t{g}, row.scales + 2 * size_t{g / parts}, 2);
    std::memcpy(out.biases.data() + 2 * size_t{g}, row.biases + 2 * size_t{g / parts}, 2);
  }
}

// In eight lanes, so that the compiler need not wait for one sum before the next.
RowLoss loss_of(const float* exact, const float* stored, uint32_t cols) {
  constexpr uint32_t kLanes = 8;
  double signal[kLanes] = {}, noise[kLanes] = {};
  const auto add = [&](uint32_t i, uint32_t lane) {
    const double value = exact[i], difference = value - stored[i];
    signal[lane] += value * value;
    noise[lane] += difference * difference;
  };
  const uint32_t whole = cols / kLanes * kLanes;
  for (uint32_t i = 0; i < whole; i += kLanes)
    for (uint32_t l = 0; l < kLanes; ++l) add(i + l, l);
  for (uint32_t i = whole; i < cols; ++i) add(i, 0);
  RowLoss sum;
  for (uint32_t l = 0; l < kLanes; ++l) {
    sum.signal += signal[l];
    sum.noise += noise[l];
  }
  return sum;
}

// By way of f32.
RowFault convert_row(const SourceRow& row, uint32_t cols, float add, const MatrixFormat& target,
                     const RowPlanes& out, RowScratch& scratch, RowLoss& loss) {
  float* values = scratch.values.data();
  dequantise_row({row.piece->format, 1, cols, row.codes, row.scales, row.biases}, 0, values);
  if (add != 0)
    for (uint32_t i = 0; i < cols; ++i) values[i] += add;
  const auto bytes = std::as_bytes(std::span(scratch.values));
  if (const auto at = first_not_finite(DType::f32, bytes.data(), cols)) return {Kind::value, *at};
  if (target.dtype == DType::f32) {
    std::memcpy(out.codes.data(), values, out.codes.size());
    return {};
  }
  if (!quantise_row(target, values, cols, out)) return {Kind::out_of_range, 0};
  dequantise_row({target, 1, cols, out.codes.data(), out.scales.data(), out.biases.data()}, 0,
                 scratch.stored.data());
  const RowLoss sum = loss_of(values, scratch.stored.data(), cols);
  loss.signal += sum.signal;
  loss.noise += sum.noise;
  return {};
}

}  // namespace

RowFault store_row(const SourceRow& source, uint32_t cols, float add, const MatrixFormat& target,
                   const RowPlanes& out, RowScratch& scratch, RowLoss& loss) {
  const MatrixFormat& format = source.piece->format;
  const SourceRow row = source.piece->paired_scales ? split_pairs(source, cols, scratch) : source;
  if (const RowFault fault = check_row(format, row, cols); fault.kind != Kind::none) return fault;
  if (add == 0 && format == target) {
    copy_row(row, out);
    return {};
  }
  if (add == 0 && widens_to(format, target)) {
    widen_row(format, row, cols, target, out);
    return {};
  }
  return convert_row(row, cols, add, target, out, scratch, loss);
}

}  // namespace wader
