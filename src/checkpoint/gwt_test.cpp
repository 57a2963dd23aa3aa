#include "checkpoint/gwt.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <functional>

#include "checkpoint/family_testing.h"
#include "checkpoint/gwt_manifest.h"
#include "checkpoint/gwt_testing.h"
#include "checkpoint/qwen_testing.h"

namespace wader {
namespace {

namespace fs = std::filesystem;
using ::testing::HasSubstr;
using namespace wader::testing;  // NOLINT

class Gwt : public ::testing::Test {
 protected:
  void SetUp() override {
    const Json config = small_qwen_config("qwen3_moe");
    write_raw(scratch_.path() / "plain", config, small_qwen_tensors(config));
    values_ = write_gwt(scratch_.path() / "plain", path());
  }
  fs::path path() const { return scratch_.path() / "small.gwt"; }

  std::string message() const {
    const auto checkpoint = Checkpoint::open(path());
    if (checkpoint.ok()) return "opened";
    EXPECT_THAT(checkpoint.error().message, HasSubstr(path().string()));
    return checkpoint.error().message;
  }
  // The manifest with something changed, and what opening then says.
  std::string with(const std::function<void(Json&)>& change) const {
    const std::string whole = read_bytes(path() / "manifest.json");
    Json manifest = Json::parse(whole);
    change(manifest);
    write_bytes(path() / "manifest.json", manifest.dump());
    const std::string text = message();
    write_bytes(path() / "manifest.json", whole);
    return text;
  }
  static Json& trunk_section(Json& manifest, const std::string& name) {
    for (Json& section : manifest["trunkSections"])
      if (section["name"] == name) return section;
    return manifest["none"];
  }

  TempDirectory scratch_;
  ValuesByName values_;
};

TEST_F(Gwt, Qwen3HasTheValuesOfItsCodes) {
  const auto opened = Checkpoint::open(path());
  ASSERT_TRUE(opened.ok()) << opened.error().message;
  const Checkpoint& checkpoint = **opened;
  EXPECT_EQ(checkpoint.kind(), "gwt");
  expect_values(checkpoint, ExpectedQwen(checkpoint.spec(), values_, true));
  EXPECT_EQ(checkpoint.expert_format(), (ExpertFormat{DType::mxfp4, DType::mxfp4}));
  const auto q = checkpoint.trunk_source({"layers.0.attn.q.weight", {128, 128}, TrunkRole::matrix});
  EXPECT_TRUE(q->pieces.at(0).paired_scales);
  EXPECT_EQ(q->format, MatrixFormat(DType::affine8, 64));
  EXPECT_EQ(q->pieces[0].scales.stride_bytes, 8u);  // 2 groups of 4 bytes a row
  // Zeros in the file, not biases of the model.
  EXPECT_FALSE(checkpoint.expert_bias_source(0, 0, ExpertMatrix::down).ok());

  const ArchitectureSpec& spec = checkpoint.spec();
  EXPECT_EQ(spec.family, "qwen3_moe");
  EXPECT_EQ(spec.router, RouterRule::softmax_then_topk_renormalised);
  EXPECT_EQ(spec.rope.theta, 1e6);
  EXPECT_EQ(spec.norm_eps, 1e-6);  // written as the float nearest to it
  EXPECT_EQ(spec.head_dim, 32u);
  EXPECT_EQ(spec.kv_heads, 2u);
  EXPECT_EQ(spec.expert_inner, 64u);
  EXPECT_EQ(spec.experts_per_token, 2u);
  EXPECT_EQ(spec.max_context, 40960u);
}

// Copied bit for bit, so equal to the released checkpoint; the spec is the released config's.
TEST_F(Gwt, GptOssIsTheReleasedModel) {
  const fs::path gwt = scratch_.path() / "oss.gwt";
  const ValuesByName trunk = write_gwt(fixture("tiny-gpt-oss"), gwt);
  const auto released = Checkpoint::open(fixture("tiny-gpt-oss")).value();
  const auto opened = Checkpoint::open(gwt);
  ASSERT_TRUE(opened.ok()) << opened.error().message;
  EXPECT_EQ(spec_to_json((*opened)->spec()), spec_to_json(released->spec()));
  EXPECT_FALSE((*opened)->spec().rope.yarn->truncate);
  // Shapes and family alone give the same.
  Json manifest = file_json(gwt / "manifest.json");
  manifest.erase("spec");
  const auto parsed = parse_gwt_manifest(manifest.dump());
  ASSERT_TRUE(parsed.ok()) << parsed.error().message;
  EXPECT_EQ(spec_to_json(parsed->spec), spec_to_json(released->spec()));
  for (const ExpertMatrix matrix : {ExpertMatrix::gate_up, ExpertMatrix::down})
    for (uint32_t expert : {0u, 5u, 15u}) {
      expect_same(materialise(**opened, (*opened)->expert_source(2, expert, matrix).value()),
                  materialise(*released, released->expert_source(2, expert, matrix).value()),
                  "weights");
      expect_same(materialise(**opened, (*opened)->expert_bias_source(2, expert, matrix).value()),
                  materialise(*released, released->expert_bias_source(2, expert, matrix).value()),
                  "bias");
    }
  for (const auto& [canonical, name, shape] :
       {std::tuple("layers.3.attn.sinks", "model.layers.3.self_attn.sinks",
                   std::vector<uint64_t>{6}),
        std::tuple("layers.3.attn.o.bias", "model.layers.3.self_attn.o_proj.bias",
                   std::vector<uint64_t>{192}),
        std::tuple("layers.0.router.bias", "model.layers.0.mlp.router.bias",
                   std::vector<uint64_t>{16}),
        std::tuple("layers.0.attn.v.weight", "model.layers.0.self_attn.v_proj.weight",
                   std::vector<uint64_t>{128, 192}),
        std::tuple("head", "lm_head.weight", std::vector<uint64_t>{1024, 192})})
    expect_same(materialise(**opened, (*opened)->trunk_source({canonical, shape, {}}).value()),
                trunk.at(name).values, canonical);
}

// Godwit's older installs lack some keys of the spec; the tensors and the family have them.
TEST_F(Gwt, WhatTheSpecLacksComesFromShapesAndFamily) {
  const Json whole = file_json(path() / "manifest.json");
  const Json full = spec_to_json(Checkpoint::open(path()).value()->spec());
  for (const auto& [key, value] : whole["spec"].items()) {
    if (key == "layers") continue;  // without them 8 experts a token are used, of 4
    Json manifest = whole;
    manifest["spec"].erase(key);
    const auto parsed = parse_gwt_manifest(manifest.dump());
    ASSERT_TRUE(parsed.ok()) << parsed.error().message;
    EXPECT_EQ(spec_to_json(parsed->spec), full) << key;
  }
  Json manifest = whole;
  manifest.erase("spec");
  EXPECT_EQ(parse_gwt_manifest(manifest.dump()).error().message,
            "manifest.json: experts_per_token is 8; it must be from 1 to 4");
}

TEST_F(Gwt, AnswersEndByTheFamilysTokens) {
  const auto checkpoint = Checkpoint::open(path()).value();
  EXPECT_TRUE(checkpoint->small_files().empty());  // 96 tokens have none of Qwen's
  Json manifest = file_json(path() / "manifest.json");
  const uint64_t rows = 151936, at = 1 << 24;
  for (const char* name : {"embed", "head"}) {
    Json& section = trunk_section(manifest, name);
    section["shape"][0] = rows;
    section["offset"] = at + (std::string(name) == "head" ? 1 << 25 : 0);
    section["length"] = rows * (128 + 2 * 4);
  }
  manifest["spec"]["vocabularySize"] = rows;
  write_bytes(path() / "manifest.json", manifest.dump());
  fs::resize_file(path() / "trunk.bin", uint64_t{1} << 27);  // sparse
  const auto large = Checkpoint::open(path());
  ASSERT_TRUE(large.ok()) << large.error().message;
  const std::vector<SmallFile> files = (*large)->small_files();
  ASSERT_EQ(files.size(), 1u);
  EXPECT_EQ(files[0].name, "generation_config.json");
  EXPECT_EQ(Json::parse(files[0].text.value()), Json({{"eos_token_id", {151645, 151643}}}));
}

// Makes both layers slide, by these windows.
void slide(Json& spec, uint32_t first, uint32_t second) {
  spec["layers"][0].update({{"attention", "sliding"}, {"window", first}});
  spec["layers"][1].update({{"attention", "sliding"}, {"window", second}});
}

TEST_F(Gwt, SpecsThatContradictTheTensors) {
  struct Refused {
    const char* says;
    std::function<void(Json&)> change;
  };
  const Refused cases[] = {
      {"spec's hiddenSize is 256, the tensors say 128", [](Json& s) { s["hiddenSize"] = 256; }},
      {"intermediateSize is 6144, the tensors say 64",
       [](Json& s) { s["intermediateSize"] = 6144; }},
      {"attentionHeads is 8, the tensors say 4", [](Json& s) { s["attentionHeads"] = 8; }},
      {"keyValueHeads is 1", [](Json& s) { s["keyValueHeads"] = 1; }},
      {"headDimension is 64", [](Json& s) { s["headDimension"] = 64; }},
      {"vocabularySize is 97", [](Json& s) { s["vocabularySize"] = 97; }},
      {"'hiddenSize'", [](Json& s) { s["hiddenSize"] = -1; }},
      {"tiedEmbedding is true", [](Json& s) { s["tiedEmbedding"] = true; }},
      {"attentionSinks is true", [](Json& s) { s["attentionSinks"] = true; }},
      {"queryKeyNorm is false", [](Json& s) { s["queryKeyNorm"] = false; }},
      {"expertBias is true", [](Json& s) { s["expertBias"] = true; }},
      {"activation is 'geluTanh', a qwen3_moe model's is 'silu'",
       [](Json& s) { s["activation"] = "geluTanh"; }},
      {"has 'logitSoftcap', which", [](Json& s) { s["logitSoftcap"] = 30; }},
      {"has 'ropeScaling', which",
       [](Json& s) {
         s["ropeScaling"] = {{"factor", 4}};
       }},
      {"'ropeTheta'", [](Json& s) { s["ropeTheta"] = "1e6"; }},
      {"'rmsNormEpsilon'", [](Json& s) { s["rmsNormEpsilon"] = 2; }},
      {"only 2 of the model's 3 layers are there",
       [](Json& s) { s["layers"].push_back(s["layers"][0]); }},
      {"spec has 1 layers, layerCount is 2", [](Json& s) { s["layers"].erase(0); }},
      {"spec's layer 1 is not an object", [](Json& s) { s["layers"][1] = 5; }},
      {"a layer has 8 experts, expertCount is 4",
       [](Json& s) { s["layers"][1]["routedExpertCount"] = 8; }},
      {"layers use 2 and 3 experts a token",
       [](Json& s) { s["layers"][1]["expertsPerToken"] = 3; }},
      {"layers use 0 and 2 experts a token",
       [](Json& s) { s["layers"][0]["expertsPerToken"] = 0; }},
      {"layers use 2 and 0 experts a token",
       [](Json& s) { s["layers"][1]["expertsPerToken"] = 0; }},
      {"layers slide by windows of 0 and 128", [](Json& s) { slide(s, 0, 128); }},
      {"layers slide by windows of 128 and 0", [](Json& s) { slide(s, 128, 0); }},
      {"hasSharedExpert is true", [](Json& s) { s["layers"][1]["hasSharedExpert"] = true; }},
      {"attention is 'linear'", [](Json& s) { s["layers"][1]["attention"] = "linear"; }},
      {"layer 1 has 'convKernel'", [](Json& s) { s["layers"][1]["convKernel"] = 4; }},
  };
  for (const auto& [says, change] : cases)
    EXPECT_THAT(with([&](Json& manifest) { change(manifest["spec"]); }), HasSubstr(says));
  EXPECT_EQ(with([](Json& m) { m["spec"]["logitSoftcap"] = nullptr; }), "opened");
  EXPECT_EQ(with([](Json& m) { m["spec"]["newFeature"] = false; }), "opened");
}

TEST_F(Gwt, BrokenManifests) {
  struct Refused {
    const char* says;
    std::function<void(Json&)> change;
  };
  const Refused cases[] = {
      {"formatVersion 1 is not known, only 2", [](Json& m) { m["formatVersion"] = 1; }},
      {"'formatVersion' is missing", [](Json& m) { m.erase("formatVersion"); }},
      {"'layerCount'", [](Json& m) { m["layerCount"] = 0; }},
      {"no family that .gwt", [](Json& m) { m["trunkSections"] = Json::array(); }},
      {"'layer0.q_proj' is missing",
       [](Json& m) { trunk_section(m, "layer0.q_proj")["name"] = "layer0.query"; }},
      {"spec has 2 layers, layerCount is 3", [](Json& m) { m["layerCount"] = 3; }},
      {"only 1 of the model's 2 layers", [](Json& m) { m["layerCount"] = 1; }},
      {"a layer has 4 experts, expertCount is 5", [](Json& m) { m["expertCount"] = 5; }},
      {"past the stride of 16384 bytes", [](Json& m) { m["expertStride"] = 16384; }},
      {"'expertStride'", [](Json& m) { m["expertStride"] = uint64_t{1} << 62; }},
      {"experts/layer_00.bin has", [](Json& m) { m["expertStride"] = 1 << 20; }},
      {"section 'down_scales' of the experts is missing",
       [](Json& m) { m["expertSections"].erase("down_scales"); }},
      {"expertSections has 'gate_blocks'",
       [](Json& m) {
         m["expertSections"]["gate_blocks"] = {{"offset", 0}, {"length", 1}};
       }},
      {"section 'down_blocks' has 4095 bytes, the model's take 4096",
       [](Json& m) { m["expertSections"]["down_blocks"]["length"] = 4095; }},
      {"intermediateSize is 64, the tensors say 32",
       [](Json& m) { m["expertSections"]["gate_up_scales"]["length"] = 256; }},
      {"are not in whole MXFP4 blocks",
       [](Json& m) { m["expertSections"]["gate_up_scales"]["length"] = 1; }},
      {"'gate_up_scales' is not an object",
       [](Json& m) { m["expertSections"]["gate_up_scales"] = 512; }},
      {"sections 'gate_up_blocks' and 'down_blocks' overlap",
       [](Json& m) { m["expertSections"]["down_blocks"]["offset"] = 16; }},
      {"trunk section 'layer1.k_norm' [32] is missing",
       [](Json& m) { trunk_section(m, "layer1.k_norm")["name"] = "layer1.k_norms"; }},
      {"trunk section 'layer1.k_norm' is there twice",
       [](Json& m) { trunk_section(m, "layer1.q_norm")["name"] = "layer1.k_norm"; }},
      {"trunk section 'extra' has no part",
       [](Json& m) {
         m["trunkSections"].push_back({{"name", "extra"},
                                       {"offset", 1 << 26},
                                       {"length", 2},
                                       {"dtype", "bf16"},
                                       {"shape", {1}}});
         m["trunkSections"].back()["offset"] = m["bytesWritten"].get<uint64_t>() - 2;
         trunk_section(m, "final_norm")["offset"] = 1 << 14;
         trunk_section(m, "final_norm")["offset"] = m["bytesWritten"].get<uint64_t>() - 258;
       }},
      {"'layer1.v_proj' is [64, 128], the spec needs [32, 128]",
       [](Json& m) {
         for (const char* name : {"layer0.k_proj", "layer0.v_proj", "layer1.k_proj"}) {
           trunk_section(m, name)["shape"][0] = 32;
           trunk_section(m, name)["length"] = 32 * 136;
         }
         m["spec"]["keyValueHeads"] = 1;
       }},
      {"has 17407 bytes, which int8-affine64 [128, 128] does not take",
       [](Json& m) { trunk_section(m, "layer1.q_proj")["length"] = 17407; }},
      {"has the unknown dtype 'int4'",
       [](Json& m) { trunk_section(m, "layer1.q_proj")["dtype"] = "int4"; }},
      {"int8-affine64 [128, 96] does not take",  // no whole groups of 64
       [](Json& m) {
         trunk_section(m, "layer1.q_proj")["shape"] = {128, 96};
         trunk_section(m, "layer1.q_proj")["length"] = 128 * 96 + 128 * 4;
       }},
      {"must have a shape of whole numbers",
       [](Json& m) {
         trunk_section(m, "embed")["shape"] = {uint64_t{1} << 63, 128};
       }},
      {"must have a shape of whole numbers",
       [](Json& m) {
         trunk_section(m, "embed")["shape"] = {0, 128};
       }},
      {"'embed' of int8-affine64 has 1 dimensions",
       [](Json& m) { trunk_section(m, "embed")["shape"] = {12288}; }},
      {"sections 'embed' and 'head' overlap",
       [](Json& m) { trunk_section(m, "head")["offset"] = 1; }},
      {"'offset'", [](Json& m) { trunk_section(m, "head")["offset"] = uint64_t{1} << 63; }},
      {"trunk.bin has", [](Json& m) { trunk_section(m, "head")["offset"] = uint64_t{1} << 40; }},
      {"no family that .gwt is known to hold",
       [](Json& m) { trunk_section(m, "layer0.q_norm")["name"] = "layer0.norm"; }},
  };
  for (const auto& [says, change] : cases) EXPECT_THAT(with(change), HasSubstr(says));
  EXPECT_EQ(with([](Json& m) {
              m["expertSections"].erase("down_bias");
              m["expertSections"]["gate_up_bias"]["length"] = 0;
            }),
            "opened");
  for (const std::string& text : {std::string("["), std::string("{}"), std::string("5")})
    EXPECT_FALSE(parse_gwt_manifest(text).ok()) << text;
}

TEST_F(Gwt, BrokenFiles) {
  const fs::path layer = path() / "experts/layer_01.bin", trunk = path() / "trunk.bin";
  fs::resize_file(layer, fs::file_size(layer) - 1);
  EXPECT_THAT(message(), HasSubstr("experts/layer_01.bin has"));
  fs::resize_file(layer, fs::file_size(layer) + 2);
  EXPECT_THAT(message(), HasSubstr("experts/layer_01.bin has"));
  fs::resize_file(layer, fs::file_size(layer) - 1);
  fs::resize_file(trunk, fs::file_size(trunk) - 1);
  EXPECT_THAT(message(), HasSubstr("trunk.bin has"));
  fs::resize_file(trunk, fs::file_size(trunk) + 4096);  // the last page may be padded
  EXPECT_EQ(message(), "opened");
  fs::rename(layer, scratch_.path() / "elsewhere.bin");
  fs::create_symlink("../../elsewhere.bin", layer);
  EXPECT_THAT(message(), HasSubstr("layer_01.bin is a link to"));
  fs::remove(layer);
  EXPECT_THAT(message(), HasSubstr("layer_01.bin"));
  fs::remove(path() / "manifest.json");
  EXPECT_THAT(message(), HasSubstr("an interrupted install?"));
}

}  // namespace
}  // namespace wader
