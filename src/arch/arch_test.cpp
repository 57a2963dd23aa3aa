#include <gtest/gtest.h>

#include "arch/arch_testing.h"

namespace wader {
namespace {

ArchitectureSpec gpt_oss_20b() {
  ArchitectureSpec spec = testing::small_attention_spec();
  spec.vocab_rows = 201088;
  spec.hidden = spec.expert_inner = 2880;
  spec.query_heads = 64;
  spec.kv_heads = 8;
  spec.head_dim = spec.rotary_dim = 64;
  spec.experts = 32;
  spec.experts_per_token = 4;
  spec.sliding_window = 128;
  spec.max_context = 131072;
  spec.rope.yarn->original_context = 4096;
  spec.layers.clear();
  for (int i = 0; i < 24; ++i)
    spec.layers.push_back(i % 2 == 0 ? LayerKind::sliding_attention : LayerKind::full_attention);
  return spec;
}

const ExpertSection& section(const ExpertLayout& layout, std::string_view name) {
  for (const ExpertSection& section : layout.sections)
    if (section.name == name) return section;
  ADD_FAILURE() << "no section " << name;
  return layout.sections.front();
}

TEST(ArchitectureSpec, SurvivesItsJson) {
  for (const ArchitectureSpec& spec :
       {gpt_oss_20b(), testing::small_attention_spec(), testing::small_hybrid_spec()}) {
    const auto back = spec_from_json(spec_to_json(spec));
    ASSERT_TRUE(back.ok()) << back.error().message;
    EXPECT_EQ(spec_to_json(*back), spec_to_json(spec));
    EXPECT_EQ(back->layers, spec.layers);
    EXPECT_EQ(back->delta, spec.delta);
  }
}

TEST(ArchitectureSpec, CountsMoeLayers) {
  const ArchitectureSpec spec = testing::small_hybrid_spec();
  EXPECT_EQ(spec.moe_layer_count(), 2u);
  EXPECT_EQ(spec.moe_layers_before(0), 0u);
  EXPECT_EQ(spec.moe_layers_before(1), 0u);
  EXPECT_EQ(spec.moe_layers_before(2), 1u);
}

TEST(ArchitectureSpec, RefusesAnUnknownKeyByName) {
  Json json = spec_to_json(gpt_oss_20b());
  json["logit_softcap"] = 30;
  const auto spec = spec_from_json(json);
  ASSERT_FALSE(spec.ok());
  EXPECT_NE(spec.error().message.find("logit_softcap"), std::string::npos);
}

TEST(ArchitectureSpec, RefusesDimsThatBreakLater) {
  const auto refused = [](auto change) {
    ArchitectureSpec spec = gpt_oss_20b();
    change(spec);
    return !validate_spec(spec).ok();
  };
  EXPECT_FALSE(refused([](auto&) {}));
  EXPECT_TRUE(refused([](auto& s) { s.hidden = 0; }));
  EXPECT_TRUE(refused([](auto& s) { s.kv_heads = 7; }));
  EXPECT_TRUE(refused([](auto& s) { s.kv_heads = 0; }));
  EXPECT_TRUE(refused([](auto& s) { s.head_dim = 63; }));
  EXPECT_TRUE(refused([](auto& s) { s.rotary_dim = 63; }));
  EXPECT_TRUE(refused([](auto& s) { s.rotary_dim = 66; }));
  EXPECT_TRUE(refused([](auto& s) { s.layers[3] = {LayerKind::full_attention, FfnKind::dense}; }));
  EXPECT_TRUE(refused([](auto& s) { s.layers[3] = LayerKind::delta_net; }));
  EXPECT_TRUE(refused([](auto& s) { s.experts_per_token = 33; }));
  EXPECT_TRUE(refused([](auto& s) { s.experts_per_token = 0; }));
  EXPECT_TRUE(refused([](auto& s) { s.expert_inner = 1u << 31; }));
  EXPECT_TRUE(refused([](auto& s) { s.layers.clear(); }));
  EXPECT_TRUE(refused([](auto& s) { s.sliding_window = 0; }));
  EXPECT_TRUE(refused([](auto& s) { s.rope.theta = 0; }));
  EXPECT_TRUE(refused([](auto& s) { s.rope.yarn->factor = -1; }));
  EXPECT_TRUE(refused([](auto& s) { s.norm_eps = 0; }));
}

TEST(ArchitectureSpec, RefusesDeltaNetDimsThatBreakLater) {
  const auto refused = [](auto change) {
    ArchitectureSpec spec = testing::small_hybrid_spec();
    change(spec);
    return !validate_spec(spec).ok();
  };
  EXPECT_FALSE(refused([](auto&) {}));
  EXPECT_TRUE(refused([](auto& s) { s.delta.value_heads = 3; }));
  EXPECT_TRUE(refused([](auto& s) { s.delta.key_heads = 0; }));
  EXPECT_TRUE(refused([](auto& s) { s.delta.conv_kernel = 1; }));
  EXPECT_TRUE(refused([](auto& s) { s.delta.key_dim = 1u << 20; }));
  EXPECT_TRUE(refused([](auto& s) { s.dense_inner = 0; }));
  EXPECT_TRUE(refused([](auto& s) {
    for (LayerSpec& layer : s.layers) layer.ffn = FfnKind::dense;
  }));
}

// Sizes of a released GPT-OSS expert: 8,294,400 / 518,400 / 11,520 / 4,147,200 / 259,200 / 5,760
// bytes.
TEST(ExpertLayout, HasTheReleasedSizes) {
  const ExpertLayout layout = expert_layout(gpt_oss_20b(), {DType::mxfp4, DType::mxfp4});
  EXPECT_EQ(section(layout, "gate_up.blocks").bytes, 8'294'400u);
  EXPECT_EQ(section(layout, "gate_up.scales").bytes, 518'400u);
  EXPECT_EQ(section(layout, "gate_up.bias").bytes, 11'520u);
  EXPECT_EQ(section(layout, "down.blocks").bytes, 4'147'200u);
  EXPECT_EQ(section(layout, "down.scales").bytes, 259'200u);
  EXPECT_EQ(section(layout, "down.bias").bytes, 5'760u);
  EXPECT_EQ(layout.stride_bytes % kRecordAlignment, 0u);
  uint64_t end = 0;
  for (const ExpertSection& section : layout.sections) {
    EXPECT_EQ(section.offset_bytes % kSectionAlignment, 0u);
    EXPECT_GE(section.offset_bytes, end);
    end = section.offset_bytes + section.bytes;
  }
  EXPECT_LE(end, layout.stride_bytes);
}

TEST(ExpertLayout, PlanesAreItsSections) {
  const ArchitectureSpec spec = testing::small_attention_spec();
  const ExpertLayout layout =
      expert_layout(spec, {MatrixFormat(DType::affine4), MatrixFormat(DType::affine8, 32)});
  EXPECT_EQ(layout.gate_up.codes, section(layout, "gate_up.codes").offset_bytes);
  EXPECT_EQ(layout.gate_up.scales, section(layout, "gate_up.scales").offset_bytes);
  EXPECT_EQ(layout.gate_up.biases, section(layout, "gate_up.group_biases").offset_bytes);
  EXPECT_EQ(layout.gate_up.linear_bias, section(layout, "gate_up.bias").offset_bytes);
  EXPECT_EQ(layout.down.codes, section(layout, "down.codes").offset_bytes);
  EXPECT_EQ(section(layout, "gate_up.codes").bytes, 64u * 32);
  EXPECT_EQ(section(layout, "gate_up.scales").bytes, 64u * 1 * 2);
  EXPECT_EQ(section(layout, "down.codes").bytes, 64u * 32);
}

TEST(ExpertLayout, RefusesFormatsThatDoNotFit) {
  const ArchitectureSpec spec = testing::small_attention_spec();  // down has 32 columns
  EXPECT_FALSE(check_expert_format(spec, {DType::affine4, DType::affine4}).ok());
  EXPECT_FALSE(check_expert_format(spec, {DType::f32, DType::bf16}).ok());
  EXPECT_TRUE(check_expert_format(spec, {DType::bf16, MatrixFormat(DType::affine4, 32)}).ok());
}

TEST(TrunkTensors, HybridNamesAndShapes) {
  ArchitectureSpec spec = testing::small_hybrid_spec();
  const auto find = [&](std::string_view name) -> std::vector<uint64_t> {
    for (const TrunkTensorSpec& tensor : trunk_tensors(spec))
      if (tensor.name == name) return tensor.shape;
    return {};
  };
  using Shape = std::vector<uint64_t>;
  EXPECT_EQ(find("layers.0.delta.qkv.weight"), (Shape{2 * 2 * 16 + 4 * 16, 64}));
  EXPECT_EQ(find("layers.0.delta.conv"), (Shape{128, 4}));
  EXPECT_EQ(find("layers.0.dense.gate_up.weight"), (Shape{128, 64}));
  EXPECT_EQ(find("layers.0.router.weight"), Shape{});
  EXPECT_EQ(find("layers.1.shared.gate.weight"), (Shape{1, 64}));
  EXPECT_EQ(find("layers.2.attn.gate.weight"), (Shape{64, 64}));
  EXPECT_EQ(find("layers.2.attn.q_norm"), Shape{16});
  EXPECT_EQ(find("layers.2.attn.q.bias"), Shape{});
  EXPECT_EQ(find("head"), (Shape{96, 64}));
  spec.tied_head = true;
  EXPECT_EQ(find("head"), Shape{});
}

TEST(TrunkTensors, NamesAndShapes) {
  const auto tensors = trunk_tensors(gpt_oss_20b());
  EXPECT_EQ(tensors.size(), 3 + 24 * 13u);
  EXPECT_EQ(tensors.front().name, "embed");
  EXPECT_EQ(tensors.back().name, "head");
  EXPECT_EQ(tensors[2].name, "layers.0.attn.q.weight");
  EXPECT_EQ(tensors[2].shape, (std::vector<uint64_t>{4096, 2880}));
  EXPECT_EQ(tensors[3].name, "layers.0.attn.q.bias");
  EXPECT_EQ(tensors[3].role, TrunkRole::exact);
}

}  // namespace
}  // namespace wader
