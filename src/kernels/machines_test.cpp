// The bits of every back end but ref, written down: the same on every machine. Inputs are whole
// numbers scaled by powers of two, which no C library can round otherwise. A change of the
// arithmetic changes these figures and must say so.

#include <gtest/gtest.h>

#include <bit>
#include <cstring>
#include <random>
#include <span>
#include <vector>

#include "base/hash.h"
#include "kernels/ops.h"

namespace wader {
namespace {

class Machines : public ::testing::TestWithParam<const Kernels*> {
 protected:
  std::vector<float> values(size_t n, float scale = 1) {
    std::vector<float> all(n);
    for (float& v : all) v = scale * (static_cast<float>(rng_() >> 8) * 0x1p-23f - 1);  // [−1, 1)
    return all;
  }
  std::vector<std::byte> bytes(size_t n) {
    std::vector<std::byte> all(n);
    for (std::byte& b : all) b = static_cast<std::byte>(rng_());
    return all;
  }

  const Kernels& k = *GetParam();

 private:
  std::mt19937 rng_{17};
};

std::vector<const Kernels*> all_but_ref() {
  std::vector<const Kernels*> list;
  for (const Kernels* k : available_kernels())
    if (k != &kRefKernels) list.push_back(k);
  return list;
}
INSTANTIATE_TEST_SUITE_P(Backends, Machines, ::testing::ValuesIn(all_but_ref()),
                         [](const auto& suite) { return std::string(suite.param->name); });

template <typename T>
std::string digest(const std::vector<T>& values) {
  return digest_to_hex(xxh3_64(std::as_bytes(std::span(values))));
}

// Scales between 2^-10 and 2^-3, biases of either sign.
void fill_scales(const MatrixView& w, std::span<std::byte> all) {
  const size_t codes = static_cast<size_t>(w.scales - all.data());
  for (size_t i = codes; i < all.size(); ++i) {
    const auto random = static_cast<uint32_t>(all[i]);
    if (w.format.dtype == DType::mxfp4)
      all[i] = static_cast<std::byte>(118 + random % 7);
    else if ((i - codes) % 2 == 1)  // the high byte of a bf16
      all[i] = static_cast<std::byte>(0x3b + random % 3 + (random & 0x80));
  }
}

TEST_P(Machines, IntegerProducts) {
  struct Case {
    MatrixFormat format;
    const char* one_token;
    const char* seven;
  };
  const Case cases[] = {
      {DType::mxfp4, "8bf1d1fbd46a944b", "69b516a9689fd8c3"},
      {{DType::affine4, 64, DType::bf16}, "78952da74d648bae", "425be2bb6eec5aa5"},
      {{DType::affine8, 32, DType::bf16}, "1e0b4c9c54a634d0", "53d00b201579582b"},
  };
  const uint32_t rows = 21, cols = 1088, blocks = cols / kActivationBlock;
  for (const Case& c : cases)
    for (const uint32_t tokens : {1u, 7u}) {
      auto planes = bytes(*matrix_bytes(c.format, rows, cols));
      const MatrixView w = matrix_view(c.format, rows, cols, planes);
      fill_scales(w, planes);
      const auto x = values(size_t{tokens} * cols, 3), bias = values(rows);
      std::vector<int8_t> codes(x.size());
      std::vector<float> scales(tokens * blocks), sums(tokens * blocks), y(tokens * rows);
      std::vector<int32_t> code_sums(tokens * blocks);
      for (uint32_t t = 0; t < tokens; ++t)
        k.quantise_row(&codes[t * cols], &scales[t * blocks], &sums[t * blocks],
                       &code_sums[t * blocks], &x[t * cols], cols, activation_block(w.format));
      const QuantisedRows xq = {codes.data(),     scales.data(), sums.data(),
                                code_sums.data(), cols,          blocks};
      std::vector<float> scratch(matmul_scratch_floats(cols, tokens));
      k.matmul(
          {y.data(), rows, x.data(), cols, tokens, w, bias.data(), 0, rows, scratch.data(), &xq});
      EXPECT_EQ(digest(y), tokens == 1 ? c.one_token : c.seven)
          << format_name(c.format) << ", " << tokens << " tokens";
    }
}

TEST_P(Machines, PlainProducts) {
  const uint32_t rows = 9, cols = 300, tokens = 5;
  const auto weights = values(size_t{rows} * cols), x = values(size_t{tokens} * cols);
  std::vector<float> y(tokens * rows), scratch(matmul_scratch_floats(cols, tokens));
  const MatrixView w = matrix_view(DType::f32, rows, cols, std::as_bytes(std::span(weights)));
  k.matmul({y.data(), rows, x.data(), cols, tokens, w, nullptr, 0, rows, scratch.data()});
  EXPECT_EQ(digest(y), "72a0441d6ca1ba7d");
}

TEST_P(Machines, FloatOperations) {
  const uint32_t n = 300;
  std::vector<float> out(n);
  const auto x = values(n, 4), weight = values(n);
  k.rms_norm(out.data(), x.data(), weight.data(), n, 0x1p-17f);
  EXPECT_EQ(digest(out), "b0be01f344f63226") << "rms_norm";
  k.swiglu(out.data(), values(2 * n, 12).data(), n);
  EXPECT_EQ(digest(out), "9f6b096bb9ffc941") << "swiglu";
  k.swiglu_clamped(out.data(), values(2 * n, 12).data(), n, 7);
  EXPECT_EQ(digest(out), "de7d2666b8a3541b") << "swiglu_clamped";
  std::vector<uint32_t> ids(8);
  std::vector<float> weights(8);
  k.softmax_topk(ids.data(), weights.data(), values(n, 6).data(), n, 8, true);
  EXPECT_EQ(digest(ids) + digest(weights), "f7eaba179bfe34d1b330369ef2669304") << "softmax_topk";
}

TEST_P(Machines, Attention) {
  const uint32_t head_dim = 64, capacity = 128, rows = 100, queries = 3;
  std::vector<std::byte> keys(capacity * head_dim * 2), kept(keys.size());
  for (uint32_t p = 0; p < rows; ++p) {
    const auto key = values(head_dim), value = values(head_dim);
    k.store_kv({keys.data(), kept.data(), head_dim, capacity, p, key.data(), value.data()});
  }
  const auto q = values(queries * head_dim, 4), sinks = values(queries);
  std::vector<float> out(q.size()), scratch(attend_scratch_floats(queries));
  k.attend({.out = out.data(),
            .q = q.data(),
            .queries = queries,
            .k = keys.data(),
            .v = kept.data(),
            .head_dim = head_dim,
            .capacity = capacity,
            .first = 5,
            .last = rows - 1,
            .scale = 0.125f,
            .sinks = sinks.data(),
            .scratch = scratch.data()});
  EXPECT_EQ(digest(out), "251363c6d9e1baf9");
}

TEST_P(Machines, DeltaNet) {
  const uint32_t dim = 48;
  auto state = values(dim * dim), deltas = values(kDeltaBlock * dim);
  const auto keys = values(kDeltaBlock * dim, 0.25f), q = values(kDeltaBlock * dim, 0.25f);
  const auto v = values(kDeltaBlock * dim), beta = values(kDeltaBlock);
  std::vector<double> log_decay(kDeltaBlock);
  for (uint32_t i = 0; i < kDeltaBlock; ++i) log_decay[i] = -0.09375 * (i + 1);
  std::vector<float> y(kDeltaBlock * dim);
  k.delta_block({dim, dim, 3, kDeltaBlock, state.data(), keys.data(), log_decay.data(),
                 deltas.data(), q.data(), dim, v.data(), dim, beta.data(), 1, y.data(), dim});
  k.delta_fold({dim, dim, state.data(), keys.data(), log_decay.data(), deltas.data()});
  EXPECT_EQ(digest(y) + digest(deltas) + digest(state),
            "8c0df26e5235e4baf92d72b07c7a21b850f79fb03a6123b5");
}

}  // namespace
}  // namespace wader
