// The engine against the oracle (oracle.h, double precision, no shared code) on checkpoints whose
// settings depart from the fixtures': head ratios, rotated part, router rules, layer orders, dense
// layers, tied embeddings, layouts.

#include <gtest/gtest.h>

#include <cmath>

#include "oracle.h"
#include "oracle_variants.h"
#include "test_models.h"

namespace wader {
namespace {

using testing::all_variants;
using testing::Oracle;
using testing::Variant;

// f32 arithmetic against double: 1e-4 was seen; the limit is what tests/data/ gives.
constexpr double kLogitLimit = 2e-3, kWeightLimit = 1e-4;
// A router may choose otherwise where two logits are closer than f32 tells apart after some layers.
constexpr double kNearTie = 3e-5;

struct Computed {
  std::vector<std::vector<float>> logits;
  Capture capture;
};

Computed compute(const std::filesystem::path& container, const std::vector<TokenId>& tokens) {
  EngineOptions options;
  options.memory_bytes = 4ull << 30;  // sanitizers keep freed memory, which counts
  options.kernels = "ref";
  options.context = 512;
  options.chunk = 48;
  options.threads = 2;
  const auto engine = testing::open_engine(container, options);
  Computed out;
  if (engine == nullptr) return out;
  const auto session = testing::open_session(*engine);
  const Status status = session->evaluate(
      tokens, 0,
      [&](uint32_t, std::span<const float> logits) {
        out.logits.emplace_back(logits.begin(), logits.end());
      },
      &out.capture);
  EXPECT_TRUE(status.ok()) << status.error().message;
  return out;
}

class Variants : public ::testing::TestWithParam<Variant> {};
INSTANTIATE_TEST_SUITE_P(All, Variants, ::testing::ValuesIn(all_variants()),
                         [](const auto& variant) {
                           return testing::test_name(variant.param.name);
                         });

TEST_P(Variants, EngineEqualsOracle) {
  const Variant& variant = GetParam();
  const auto parent = testing::scratch_directory() / "variants";
  std::filesystem::create_directories(parent);
  const auto checkpoint = testing::write_checkpoint(variant, parent);
  const bool mxfp4 = variant.name.starts_with("gpt-oss");
  const auto& container =
      testing::installed(checkpoint, {DType::bf16, mxfp4 ? std::optional<DType>() : DType::bf16});
  const ArchitectureSpec spec = std::move(Container::open(container)).value().spec();
  const auto tokens = testing::random_tokens(testing::kSanitized ? 40 : 160, spec.vocab_rows, 77);

  const Computed got = compute(container, tokens);
  const Oracle::Output want = Oracle::load(checkpoint).forward(tokens);
  ASSERT_EQ(got.logits.size(), tokens.size());
  double worst_logit = 0, worst_weight = 0;
  const size_t k = spec.experts_per_token;
  for (size_t t = 0; t < tokens.size(); ++t) {
    for (size_t layer = 0; layer < spec.layer_count(); ++layer) {
      const int32_t* ids = &got.capture.router_indices[(layer * tokens.size() + t) * k];
      const float* weights = &got.capture.router_weights[(layer * tokens.size() + t) * k];
      if (want.router_ids[layer].empty()) {
        EXPECT_EQ(ids[0], -1);  // a dense layer
        continue;
      }
      ASSERT_GT(want.router_margins[layer][t], kNearTie) << "choose another seed";
      for (size_t j = 0; j < k; ++j) {
        const auto& expected = want.router_ids[layer][t];
        const auto at = std::find(expected.begin(), expected.end(), ids[j]);
        ASSERT_NE(at, expected.end()) << "layer " << layer << " token " << t;
        const double weight =
            want.router_weights[layer][t][static_cast<size_t>(at - expected.begin())];
        worst_weight = std::max(worst_weight, std::fabs(weight - weights[j]));
      }
    }
    ASSERT_EQ(got.logits[t].size(), want.logits[t].size());
    for (size_t i = 0; i < got.logits[t].size(); ++i)
      worst_logit = std::max(worst_logit, std::fabs(got.logits[t][i] - want.logits[t][i]));
  }
  std::printf("%-32s logits %.2g, router weights %.2g\n", variant.name.c_str(), worst_logit,
              worst_weight);
  EXPECT_LE(worst_logit, kLogitLimit);
  EXPECT_LE(worst_weight, kWeightLimit);
}

}  // namespace
}  // namespace wader
