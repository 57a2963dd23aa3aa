#include "install/row_store.h"

#include <gtest/gtest.h>

#include <cmath>
#include <cstring>
#include <random>
#include <vector>

#include "tensor/float_formats.h"
#include "tensor/matrix.h"

namespace wader {
namespace {

constexpr uint32_t kCols = 256;
using Bytes = std::vector<std::byte>;

// A row with planes of its own, of random bits that mean finite values.
struct TestRow {
  SourceRows piece;
  Bytes codes, scales, biases;

  SourceRow source() const { return {&piece, codes.data(), scales.data(), biases.data()}; }
};

void put16(Bytes& bytes, size_t i, uint16_t value) {
  std::memcpy(&bytes[2 * i], &value, 2);
}

TestRow random_row(const MatrixFormat& format, uint32_t seed = 1) {
  std::mt19937 random(seed);
  std::normal_distribution<float> normal(0, 0.05f);
  const auto narrow = [](DType dtype, float value) {
    return dtype == DType::f16 ? f32_to_f16(value) : f32_to_bf16(value);
  };
  const RowBytes bytes = *row_bytes(format, kCols);
  TestRow row;
  row.piece.format = format;
  row.codes.resize(bytes.codes), row.scales.resize(bytes.scales), row.biases.resize(bytes.biases);
  for (std::byte& b : row.codes) b = static_cast<std::byte>(random() % 256);
  if (format.dtype == DType::f32)
    for (uint32_t i = 0; i < kCols; ++i) {
      const float value = normal(random);
      std::memcpy(&row.codes[4 * i], &value, 4);
    }
  else if (is_plain_float(format.dtype))
    for (uint32_t i = 0; i < kCols; ++i) put16(row.codes, i, narrow(format.dtype, normal(random)));
  for (size_t i = 0; is_affine(format.dtype) && i < bytes.scales / 2; ++i) {
    put16(row.scales, i, narrow(format.scales, normal(random)));
    put16(row.biases, i, narrow(format.scales, normal(random)));
  }
  if (format.dtype == DType::mxfp4)
    for (std::byte& b : row.scales) b = static_cast<std::byte>(118 + random() % 5);
  return row;
}

std::vector<float> values_of(const MatrixFormat& format, const Bytes& codes, const Bytes& scales,
                             const Bytes& biases) {
  std::vector<float> out(kCols);
  dequantise_row({format, 1, kCols, codes.data(), scales.data(), biases.data()}, 0, out.data());
  return out;
}

struct Stored {
  RowFault fault;
  RowLoss loss;
  Bytes codes, scales, biases;
  std::vector<float> values;
};

Stored store(const SourceRow& row, const MatrixFormat& target, float add = 0) {
  const RowBytes bytes = *row_bytes(target, kCols);
  Stored out;
  out.codes.resize(bytes.codes), out.scales.resize(bytes.scales), out.biases.resize(bytes.biases);
  RowScratch scratch(kCols);
  out.fault =
      store_row(row, kCols, add, target, {out.codes, out.scales, out.biases}, scratch, out.loss);
  out.values = values_of(target, out.codes, out.scales, out.biases);
  return out;
}

double snr_db(const RowLoss& loss) {
  return 10 * std::log10(loss.signal / loss.noise);
}

const MatrixFormat kSources[] = {DType::f32,
                                 DType::f16,
                                 DType::bf16,
                                 DType::mxfp4,
                                 DType::affine4,
                                 DType::affine8,
                                 {DType::affine4, 32, DType::f16},
                                 {DType::affine8, 128, DType::f16},
                                 {DType::affine4, 128}};

TEST(RowStore, CopiesItsOwnFormat) {
  for (const MatrixFormat& format : kSources) {
    const TestRow row = random_row(format);
    const Stored stored = store(row.source(), format);
    EXPECT_EQ(stored.fault.kind, RowFault::Kind::none) << format_name(format);
    EXPECT_EQ(stored.codes, row.codes) << format_name(format);
    EXPECT_EQ(stored.scales, row.scales) << format_name(format);
    EXPECT_EQ(stored.biases, row.biases) << format_name(format);
    EXPECT_EQ(stored.loss.noise, 0);
  }
}

TEST(RowStore, TakesPairsApart) {
  for (const MatrixFormat& format :
       {MatrixFormat(DType::affine8), MatrixFormat(DType::affine4, 32)}) {
    TestRow row = random_row(format);
    const Stored want = store(row.source(), format);
    Bytes pairs(row.scales.size() + row.biases.size());
    for (size_t g = 0; g < row.scales.size() / 2; ++g) {
      std::memcpy(&pairs[4 * g], &row.scales[2 * g], 2);
      std::memcpy(&pairs[4 * g + 2], &row.biases[2 * g], 2);
    }
    row.piece.paired_scales = true;
    row.scales = pairs;
    row.biases.clear();
    for (const MatrixFormat& target : {format, MatrixFormat(DType::f32)}) {
      const Stored stored = store(row.source(), target);
      EXPECT_EQ(stored.values, want.values) << format_name(target);
    }
    EXPECT_EQ(store(row.source(), format).scales, want.scales);
    EXPECT_EQ(store(row.source(), format).biases, want.biases);
  }
}

// Every pair of affine formats with room for all values: the same values to the bit.
TEST(RowStore, WidensWithoutLoss) {
  int pairs = 0;
  for (const uint16_t group : {64, 128})
    for (const uint16_t to_group : {32, 64})
      for (const DType scales : {DType::bf16, DType::f16})
        for (const auto& [from, to] : {std::pair(DType::affine4, DType::affine4),
                                       {DType::affine4, DType::affine8},
                                       {DType::affine8, DType::affine8}}) {
          const TestRow row = random_row({from, group, scales});
          const auto want = values_of(row.piece.format, row.codes, row.scales, row.biases);
          const Stored stored = store(row.source(), {to, to_group, scales});
          EXPECT_EQ(stored.fault.kind, RowFault::Kind::none);
          EXPECT_EQ(stored.values, want);
          EXPECT_EQ(stored.loss.noise, 0);
          ++pairs;
        }
  EXPECT_EQ(pairs, 24);
}

// Any format into those that the installer makes, and what it says of the loss.
TEST(RowStore, ConvertsByWayOfF32) {
  for (const MatrixFormat& format : kSources) {
    const TestRow row = random_row(format);
    const auto exact = values_of(format, row.codes, row.scales, row.biases);
    EXPECT_EQ(store(row.source(), DType::f32).values, exact) << format_name(format);
    for (const auto& [target, least_db] : {std::pair(MatrixFormat(DType::bf16), 50.0),
                                           {MatrixFormat(DType::affine8), 39.0},
                                           {MatrixFormat(DType::affine4), 14.0},
                                           {MatrixFormat(DType::affine4, 32), 14.0},
                                           {MatrixFormat(DType::mxfp4), 12.0}}) {
      const Stored stored = store(row.source(), target);
      RowLoss loss;
      for (uint32_t i = 0; i < kCols; ++i) {
        const double difference = double{exact[i]} - stored.values[i];
        loss.signal += double{exact[i]} * exact[i];
        loss.noise += difference * difference;
      }
      EXPECT_EQ(stored.fault.kind, RowFault::Kind::none);
      if (stored.loss.signal == 0) {  // copied or widened
        EXPECT_EQ(loss.noise, 0) << format_name(format) << " " << format_name(target);
        continue;
      }
      EXPECT_NEAR(stored.loss.signal, loss.signal, 1e-9 * loss.signal);
      EXPECT_NEAR(stored.loss.noise, loss.noise, 1e-9 * loss.signal);
      if (loss.noise > 0)
        EXPECT_GE(snr_db(loss), least_db) << format_name(format) << " " << format_name(target);
    }
  }
  // Two significant bits at any power of two.
  EXPECT_EQ(store(random_row(DType::mxfp4).source(), DType::bf16).loss.noise, 0);
}

TEST(RowStore, AddsInF32) {
  const TestRow row = random_row(DType::bf16);
  const auto exact = values_of(DType::bf16, row.codes, row.scales, row.biases);
  const Stored stored = store(row.source(), DType::f32, 1);
  for (uint32_t i = 0; i < kCols; ++i) ASSERT_EQ(stored.values[i], exact[i] + 1.0f);
  EXPECT_EQ(store(row.source(), DType::bf16, 1).values[0],
            bf16_to_f32(f32_to_bf16(exact[0] + 1.0f)));
}

// Found in every way that a row can go, at its place.
TEST(RowStore, FindsWhatIsNoNumber) {
  const auto expect = [](const TestRow& row, RowFault::Kind kind, uint64_t at) {
    for (const MatrixFormat& target :
         {row.piece.format, MatrixFormat(DType::f32), MatrixFormat(DType::bf16)}) {
      const RowFault fault = store(row.source(), target).fault;
      EXPECT_EQ(fault.kind, kind) << format_name(row.piece.format);
      EXPECT_EQ(fault.at, at) << format_name(row.piece.format);
    }
  };
  for (const uint16_t bits : {0x7f80, 0xff80, 0x7fc0, 0xff81}) {
    TestRow row = random_row(DType::bf16);
    put16(row.codes, 77, bits);
    expect(row, RowFault::Kind::value, 77);
    row = random_row(DType::affine4);
    put16(row.scales, 3, bits);
    expect(row, RowFault::Kind::scale, 3);
    row = random_row(DType::affine8);
    put16(row.biases, 2, bits);
    expect(row, RowFault::Kind::bias, 2);
  }
  for (const uint16_t bits : {0x7c00, 0xfc00, 0x7e00}) {
    TestRow row = random_row(DType::f16);
    put16(row.codes, 255, bits);
    expect(row, RowFault::Kind::value, 255);
    row = random_row({DType::affine8, 32, DType::f16});
    put16(row.scales, 7, bits);
    expect(row, RowFault::Kind::scale, 7);
  }
  TestRow row = random_row(DType::mxfp4);
  row.scales[5] = std::byte{255};
  expect(row, RowFault::Kind::e8m0_nan, 5);
  row = random_row(DType::affine8);
  put16(row.scales, 1, f32_to_bf16(2e36f));  // 255 of it are beyond f32
  expect(row, RowFault::Kind::scale, 1);
}

TEST(RowStore, SaysWhatTheTargetCannotHold) {
  TestRow row = random_row(DType::f32);
  const float most = std::numeric_limits<float>::max();
  std::memcpy(row.codes.data(), &most, 4);
  EXPECT_EQ(store(row.source(), DType::f32).fault.kind, RowFault::Kind::none);
  EXPECT_EQ(store(row.source(), DType::bf16).fault.kind, RowFault::Kind::out_of_range);
  row = random_row(DType::mxfp4);
  row.scales[0] = std::byte{254}, row.codes[0] = std::byte{0x70};  // 6 · 2^127
  EXPECT_EQ(store(row.source(), DType::mxfp4).fault.kind, RowFault::Kind::none);
  EXPECT_EQ(store(row.source(), DType::bf16).fault.kind, RowFault::Kind::value);
}

}  // namespace
}  // namespace wader
