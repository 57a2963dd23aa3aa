#include "measure/active_work.h"

#include <gtest/gtest.h>

#include "container/container_testing.h"

namespace wader {
namespace {

Manifest manifest_of(ArchitectureSpec spec, MatrixFormat trunk, const ExpertFormat& experts) {
  Manifest manifest;
  manifest.spec = std::move(spec);
  std::vector<MatrixFormat> formats;
  for (const TrunkTensorSpec& tensor : trunk_tensors(manifest.spec))
    formats.push_back(tensor.role == TrunkRole::exact ? MatrixFormat(DType::f32) : trunk);
  manifest.trunk = place_trunk(manifest.spec, formats);
  manifest.experts = expert_layout(manifest.spec, experts);
  return manifest;
}

// Counted by hand from the small spec: hidden 64, 4 query and 2 KV heads of 16, 8 experts of 32.
TEST(ActiveWork, AttentionLayersByHand) {
  const Manifest m =
      manifest_of(testing::small_attention_spec(), DType::bf16, {DType::mxfp4, DType::mxfp4});
  const uint64_t matrices = 2 * (64 * 64 + 2 * 32 * 64 + 64 * 64);  // q, k, v, o in bf16
  const uint64_t exact = 4 * (64 + 64 + 32 + 32 + 4 + 64 + 64 + 8 * 64 + 8);
  const uint64_t head = 2 * 96 * 64 + 4 * 64;  // and the final norm
  const ActiveBytes at_start = active_bytes(m, 0, DType::f32);
  EXPECT_EQ(at_start.trunk, 2 * (matrices + exact) + head);
  const uint64_t expert = 64 * 64 / 2 + 64 * 2 + 64 * 2     // gate_up: codes, scales, bias
                          + 64 * 32 / 2 + 64 * 1 + 64 * 2;  // down
  EXPECT_EQ(at_start.experts, 2 * 2 * expert);
  EXPECT_EQ(at_start.state, 2 * (1 * 2 * 32 * 4));
  EXPECT_EQ(at_start.total(), at_start.trunk + at_start.experts + at_start.state);
}

TEST(ActiveWork, ASlidingLayerReadsItsWindowOnly) {
  const Manifest m =
      manifest_of(testing::small_attention_spec(), DType::bf16, {DType::mxfp4, DType::mxfp4});
  constexpr uint64_t kPosition = 2 * 32 * 4;  // keys and values of two heads, f32
  EXPECT_EQ(active_bytes(m, 7, DType::f32).state, (8 + 8) * kPosition);
  EXPECT_EQ(active_bytes(m, 99, DType::f32).state, (8 + 100) * kPosition);
  EXPECT_EQ(active_bytes(m, 99, DType::f16).state, (8 + 100) * kPosition / 2);
}

TEST(ActiveWork, DeltaStatesDoNotGrow) {
  const MatrixFormat four(DType::affine4, 32);
  const Manifest m = manifest_of(testing::small_hybrid_spec(), DType::bf16, {four, four});
  const uint64_t delta = 4 * (4 * 16 * 16 + 3 * 128 + 16 * (32 + 64));
  constexpr uint64_t kPosition = 2 * 32 * 4;
  EXPECT_EQ(active_bytes(m, 0, DType::f32).state, 2 * delta + kPosition);
  EXPECT_EQ(active_bytes(m, 9, DType::f32).state, 2 * delta + 10 * kPosition);
  // Two of three layers have experts.
  EXPECT_EQ(active_bytes(m, 0, DType::f32).experts, 2 * 2 * m.experts.payload_bytes);
}

TEST(ActiveWork, ATiedHeadIsTheEmbedding) {
  ArchitectureSpec spec = testing::small_attention_spec();
  const ExpertFormat experts = {DType::mxfp4, DType::mxfp4};
  const uint64_t apart = active_bytes(manifest_of(spec, DType::bf16, experts), 0, DType::f32).trunk;
  spec.tied_head = true;
  EXPECT_EQ(active_bytes(manifest_of(spec, DType::bf16, experts), 0, DType::f32).trunk, apart);
  EXPECT_EQ(matrix_operations(spec, 3), matrix_operations(testing::small_attention_spec(), 3));
}

TEST(ActiveWork, OperationsByHand) {
  const double layer = 64 * 64 + 2 * 32 * 64 + 64 * 64 + 8 * 64  // q, k, v, o, router
                       + 2 * (64 * 64 + 64 * 32);                // two experts
  EXPECT_EQ(matrix_operations(testing::small_attention_spec(), 5), 2 * (5 * 2 * layer + 96 * 64));
}

}  // namespace
}  // namespace wader
