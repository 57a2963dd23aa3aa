#include <gtest/gtest.h>

#include "arch/spec.h"
#include "arch/tensors.h"

namespace wader {
namespace {

ArchitectureSpec gpt_oss_20b() {
  ArchitectureSpec spec{};
  spec.family = "gpt_oss";
  spec.vocab_rows = 201088;
  spec.hidden = 2880;
  spec.query_heads = 64;
  spec.kv_heads = 8;
  spec.head_dim = 64;
  spec.experts = 32;
  spec.experts_per_token = 4;
  spec.expert_inner = 2880;
  spec.sliding_window = 128;
  spec.max_context = 131072;
  spec.norm_eps = 1e-5;
  spec.rope = {150000, Yarn{32, 4096, 32, 1, false, 1.3465735902799727}};
  for (int i = 0; i < 24; ++i)
    spec.layers.push_back(i % 2 == 0 ? LayerKind::sliding_attention : LayerKind::full_attention);
  spec.activation = Activation::swiglu_clamped;
  spec.swiglu_limit = 7;
  spec.router = RouterRule::topk_then_softmax;
  spec.attention_bias = spec.attention_sinks = spec.router_bias = spec.expert_bias = true;
  return spec;
}

TEST(ArchitectureSpec, SurvivesItsJson) {
  const ArchitectureSpec spec = gpt_oss_20b();
  const auto back = spec_from_json(spec_to_json(spec));
  ASSERT_TRUE(back.ok()) << back.error().message;
  EXPECT_EQ(spec_to_json(*back), spec_to_json(spec));
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
  EXPECT_TRUE(refused([](auto& s) { s.hidden = 2881; }));
  EXPECT_TRUE(refused([](auto& s) { s.kv_heads = 7; }));
  EXPECT_TRUE(refused([](auto& s) { s.kv_heads = 0; }));
  EXPECT_TRUE(refused([](auto& s) { s.head_dim = 63; }));
  EXPECT_TRUE(refused([](auto& s) { s.experts_per_token = 33; }));
  EXPECT_TRUE(refused([](auto& s) { s.experts_per_token = 0; }));
  EXPECT_TRUE(refused([](auto& s) { s.expert_inner = 1u << 31; }));
  EXPECT_TRUE(refused([](auto& s) { s.layers.clear(); }));
  EXPECT_TRUE(refused([](auto& s) { s.sliding_window = 0; }));
  EXPECT_TRUE(refused([](auto& s) { s.rope.theta = 0; }));
  EXPECT_TRUE(refused([](auto& s) { s.rope.yarn->factor = -1; }));
  EXPECT_TRUE(refused([](auto& s) { s.norm_eps = 0; }));
}

// Sizes of a released GPT-OSS expert: 8,294,400 / 518,400 / 11,520 / 4,147,200 / 259,200 / 5,760
// bytes.
TEST(ExpertLayout, HasTheReleasedSizes) {
  const ExpertLayout layout = expert_layout(gpt_oss_20b());
  EXPECT_EQ(layout.section("gate_up.blocks").bytes, 8'294'400u);
  EXPECT_EQ(layout.section("gate_up.scales").bytes, 518'400u);
  EXPECT_EQ(layout.section("gate_up.bias").bytes, 11'520u);
  EXPECT_EQ(layout.section("down.blocks").bytes, 4'147'200u);
  EXPECT_EQ(layout.section("down.scales").bytes, 259'200u);
  EXPECT_EQ(layout.section("down.bias").bytes, 5'760u);
  EXPECT_EQ(layout.stride_bytes % kRecordAlignment, 0u);
  uint64_t end = 0;
  for (const ExpertSection& section : layout.sections) {
    EXPECT_EQ(section.offset_bytes % kSectionAlignment, 0u);
    EXPECT_GE(section.offset_bytes, end);
    end = section.offset_bytes + section.bytes;
  }
  EXPECT_LE(end, layout.stride_bytes);
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
