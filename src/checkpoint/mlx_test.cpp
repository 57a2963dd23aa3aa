#include "checkpoint/mlx.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include "checkpoint/checkpoint.h"
#include "checkpoint/family_testing.h"
#include "checkpoint/qwen_testing.h"
#include "checkpoint/text_name.h"

namespace wader {
namespace {

using ::testing::HasSubstr;
using namespace wader::testing;  // NOLINT

TEST(TextName, NestedPrefixes) {
  EXPECT_EQ(text_name("model.language_model.layers.0.x"), "model.layers.0.x");
  EXPECT_EQ(text_name("language_model.model.layers.0.x"), "model.layers.0.x");
  EXPECT_EQ(text_name("model.language_model.model.norm.weight"), "model.norm.weight");
  EXPECT_EQ(text_name("language_model.lm_head.weight"), "lm_head.weight");
  EXPECT_EQ(text_name("model.language_model.lm_head.weight"), "lm_head.weight");
  EXPECT_EQ(text_name("lm_head.weight"), "lm_head.weight");
  EXPECT_EQ(text_name("model.norm.weight"), "model.norm.weight");
  for (const char* skipped :
       {"mtp.fc.weight", "language_model.mtp.norm.weight", "model.language_model.mtp.norm.weight",
        "model.visual.x", "visual.x", "vision_tower.x", "model.layers.0.rotary_emb.inv_freq"})
    EXPECT_TRUE(is_skippable(text_name(skipped))) << skipped;
  for (const char* needed : {"model.layers.0.mtp", "model.visuals", "lm_head.weight"})
    EXPECT_FALSE(is_skippable(text_name(needed))) << needed;
}

// As text, like a file.
Result<MlxQuantisation> read_settings(const Json& json) {
  return mlx_quantisation(parse_json(json.dump(), "test").value());
}

TEST(Mlx, SettingsOfATensor) {
  const auto settings = read_settings(
      {{"group_size", 64},
       {"bits", 4},
       {"mode", "affine"},
       {"model.layers.0.mlp.gate", {{"group_size", 64}, {"bits", 8}}},
       {"language_model.model.layers.1.mlp.gate.weight", {{"bits", 8}, {"group_size", 32}}},
       {"model.layers.2.mlp.gate", false},
       {"model.layers.3.mlp.gate", true},
       {"model.layers.4.x", {{"mode", "mxfp4"}}}});
  ASSERT_TRUE(settings.ok()) << settings.error().message;
  EXPECT_TRUE(settings->present);
  const auto format = [&](const char* stem) { return settings->format(stem, DType::bf16).value(); };
  EXPECT_EQ(format("lm_head"), MatrixFormat(DType::affine4, 64));
  EXPECT_EQ(settings->format("lm_head", DType::f16).value(),
            MatrixFormat(DType::affine4, 64, DType::f16));
  EXPECT_EQ(format("model.layers.0.mlp.gate"), MatrixFormat(DType::affine8, 64));
  EXPECT_EQ(format("model.layers.1.mlp.gate"), MatrixFormat(DType::affine8, 32));
  EXPECT_EQ(format("model.layers.3.mlp.gate"), MatrixFormat(DType::affine4, 64));
  EXPECT_EQ(format("model.layers.4.x"), MatrixFormat(DType::mxfp4));
  EXPECT_THAT(settings->format("model.layers.2.mlp.gate", DType::bf16).error().message,
              HasSubstr("says that it is not quantised"));
}

// An object without a mode is affine, also where the rest is not: routers beside MXFP4 experts.
TEST(Mlx, OwnSettingsDoNotInherit) {
  const auto settings = read_settings({{"group_size", 32},
                                       {"bits", 4},
                                       {"mode", "mxfp4"},
                                       {"a.router", {{"group_size", 64}, {"bits", 8}}},
                                       {"a.x", {{"bits", 8}}},
                                       {"a.y", true}});
  const auto format = [&](const char* stem) { return settings->format(stem, DType::bf16).value(); };
  EXPECT_EQ(format("a.router"), MatrixFormat(DType::affine8, 64));
  EXPECT_EQ(format("a.x"), MatrixFormat(DType::affine8, 64));
  EXPECT_EQ(format("a.y"), MatrixFormat(DType::mxfp4));
  EXPECT_EQ(format("a.z"), MatrixFormat(DType::mxfp4));
}

TEST(Mlx, OtherSettingsAreRefusedByName) {
  const auto says = [](const Json& json) {
    const auto settings = read_settings(json);
    if (!settings.ok()) return settings.error().message;
    const auto format = settings->format("a.b", DType::bf16);
    return format.ok() ? std::string("read") : format.error().message;
  };
  EXPECT_EQ(says({{"bits", 8}, {"group_size", 128}}), "read");
  EXPECT_THAT(says({{"bits", 6}, {"group_size", 64}}), HasSubstr("'a.b' is quantised with 6 bits"));
  EXPECT_THAT(says({{"bits", 4}, {"group_size", 16}}), HasSubstr("groups of 16"));
  EXPECT_THAT(says({{"bits", 4}, {"group_size", 65535}}), HasSubstr("groups of 65535"));
  EXPECT_THAT(says({{"bits", 4}, {"group_size", 65536}}), HasSubstr("'group_size'"));
  EXPECT_THAT(says({{"bits", 4}, {"group_size", 64}, {"mode", "nvfp4"}}),
              HasSubstr("mode 'nvfp4'"));
  EXPECT_THAT(says({{"bits", 4}, {"group_size", 64}, {"mode", "mxfp4"}}),
              HasSubstr("mode mxfp4, 4 bits in groups of 64"));
  EXPECT_THAT(says({{"bits", 4}}), HasSubstr("must have 'bits' and 'group_size'"));
  EXPECT_THAT(says({{"bits", "4"}, {"group_size", 64}}), HasSubstr("'bits'"));
  EXPECT_THAT(says({{"bits", 4}, {"group_size", 64}, {"a.b", 8}}), HasSubstr("has 'a.b'"));
  EXPECT_THAT(says({{"bits", 4}, {"group_size", 64}, {"a.b", {{"zero", 1}}}}),
              HasSubstr("'a.b' has 'zero'"));
  EXPECT_THAT(
      says(
          {{"bits", 4}, {"group_size", 64}, {"a.b", {{"bits", 8}}}, {"a.b.weight", {{"bits", 4}}}}),
      HasSubstr("names 'a.b' twice"));
  EXPECT_THAT(says(Json::array()), HasSubstr("must be an object"));
  EXPECT_THAT(MlxQuantisation{}.format("a.b", DType::bf16).error().message,
              HasSubstr("has scales, but config.json has no 'quantization'"));
}

// A small plain checkpoint and its MLX conversion.
struct Converted {
  TempDirectory directory;
  ValuesByName values;

  explicit Converted(const char* type, const MlxOptions& options = {}) {
    const Json config = small_qwen_config(type);
    write_raw(directory.path() / "plain", config, small_qwen_tensors(config));
    values = write_mlx(directory.path() / "plain", mlx(), options);
  }
  std::filesystem::path mlx() const { return directory.path() / "mlx"; }
  std::string message() const {
    const auto checkpoint = Checkpoint::open(mlx());
    return checkpoint.ok() ? "opened" : checkpoint.error().message;
  }
  // Rewrites the checkpoint with something changed.
  template <typename Change>
  void change(const Change& change) const {
    RawTensors tensors = read_raw(mlx());
    Json config = file_json(mlx() / "config.json");
    change(tensors, config);
    write_raw(mlx(), config, tensors);
  }
};

constexpr const char* kGate = "model.layers.1.mlp.switch_mlp.gate_proj";

TEST(Mlx, BitsGroupsAndScales) {
  const MlxFormat formats[] = {{4, 32}, {4, 64}, {4, 128}, {8, 32}, {8, 64}, {4, 64, "F16"}};
  for (const MlxFormat& format : formats) {
    // Matrices with 64 columns take no groups of 128.
    const bool wide = format.group == 128;
    const Converted made("qwen3_moe", {[&](const std::string& name) -> std::optional<MlxFormat> {
                           const bool narrow = name.ends_with("down_proj.weight");
                           return wide && narrow ? MlxFormat{8, 64} : format;
                         }});
    const auto checkpoint = Checkpoint::open(made.mlx());
    ASSERT_TRUE(checkpoint.ok()) << checkpoint.error().message;
    expect_values(**checkpoint, ExpectedQwen((*checkpoint)->spec(), made.values, true));
    const MatrixFormat wanted(format.bits == 4 ? DType::affine4 : DType::affine8,
                              static_cast<uint16_t>(format.group),
                              format.scales == "F16" ? DType::f16 : DType::bf16);
    EXPECT_EQ((*checkpoint)->expert_format().gate_up, wanted);
  }
}

TEST(Mlx, PiecesKeepTheirFormatsAndTheSourceHasTheirJoin) {
  const Converted made("qwen3_moe", {[](const std::string& name) -> std::optional<MlxFormat> {
                         if (name.ends_with("switch_mlp.up_proj.weight")) return MlxFormat{8, 64};
                         if (name.ends_with("0.mlp.switch_mlp.down_proj.weight"))
                           return MlxFormat{4, 64, "F16"};
                         if (name.ends_with("1.mlp.switch_mlp.down_proj.weight"))
                           return MlxFormat{4, 64};
                         if (name.ends_with("mlp.gate.weight")) return std::nullopt;
                         return MlxFormat{4, 128};
                       }});
  const auto opened = Checkpoint::open(made.mlx());
  ASSERT_TRUE(opened.ok()) << opened.error().message;
  const Checkpoint& checkpoint = **opened;
  const auto gate_up = checkpoint.expert_source(1, 3, ExpertMatrix::gate_up).value();
  ASSERT_EQ(gate_up.pieces.size(), 2u);
  EXPECT_EQ(gate_up.pieces[0].format, MatrixFormat(DType::affine4, 128));
  EXPECT_EQ(gate_up.pieces[1].format, MatrixFormat(DType::affine8, 64));
  EXPECT_EQ(gate_up.format, MatrixFormat(DType::affine8, 64));
  EXPECT_EQ(checkpoint.expert_format().gate_up, MatrixFormat(DType::affine8, 64));
  EXPECT_EQ(checkpoint.expert_format().down, MatrixFormat(DType::f32));  // f16 and bf16 scales
  EXPECT_EQ(checkpoint.trunk_source({"layers.0.router.weight", {4, 128}, TrunkRole::exact})->format,
            MatrixFormat(DType::bf16));
  expect_values(checkpoint, ExpectedQwen(checkpoint.spec(), made.values, true));
}

TEST(Mlx, Mxfp4Mode) {
  const Converted made("qwen3_moe", {[](const std::string& name) -> std::optional<MlxFormat> {
                         if (name.find("switch_mlp") != std::string::npos)
                           return MlxFormat{4, 32, "mxfp4"};
                         return MlxFormat{8, 64};
                       }});
  const auto checkpoint = Checkpoint::open(made.mlx());
  ASSERT_TRUE(checkpoint.ok()) << checkpoint.error().message;
  EXPECT_EQ((*checkpoint)->expert_format(), (ExpertFormat{DType::mxfp4, DType::mxfp4}));
  expect_values(**checkpoint, ExpectedQwen((*checkpoint)->spec(), made.values, true));
}

// GPT-OSS as mlx-lm converts it: MXFP4 codes untouched, gate and up apart, a bias of each.
TEST(Mlx, GptOss) {
  const TempDirectory directory;
  const ValuesByName trunk = write_mlx_gpt_oss(fixture("tiny-gpt-oss"), directory.path());
  const auto plain = Checkpoint::open(fixture("tiny-gpt-oss"));
  const auto made = Checkpoint::open(directory.path());
  ASSERT_TRUE(made.ok()) << made.error().message;
  EXPECT_EQ((*made)->kind(), "MLX");
  EXPECT_EQ((*made)->expert_format(), (ExpertFormat{DType::mxfp4, DType::mxfp4}));
  EXPECT_EQ((*made)->spec().expert_inner, 96u);
  for (const ExpertMatrix matrix : {ExpertMatrix::gate_up, ExpertMatrix::down}) {
    for (uint32_t expert : {0u, 7u, 15u}) {
      const auto values = [&](const Checkpoint& checkpoint) {
        return materialise(checkpoint, checkpoint.expert_source(3, expert, matrix).value());
      };
      const auto biases = [&](const Checkpoint& checkpoint) {
        return materialise(checkpoint, checkpoint.expert_bias_source(3, expert, matrix).value());
      };
      EXPECT_EQ(values(**made), values(**plain));
      EXPECT_EQ(biases(**made), biases(**plain));
    }
  }
  const auto bias = (*made)->expert_bias_source(0, 0, ExpertMatrix::gate_up).value();
  EXPECT_EQ(bias.rows, 192u);
  EXPECT_EQ(bias.cols, 1u);
  EXPECT_EQ((*made)->expert_bias_source(0, 0, ExpertMatrix::down)->rows, 1u);
  const auto same = [&](const char* canonical, std::vector<uint64_t> shape, const char* released) {
    const auto source = (*made)->trunk_source({canonical, shape, TrunkRole::exact});
    expect_same(materialise(**made, source.value()), trunk.at(released).values, canonical);
  };
  same("layers.1.router.weight", {16, 192}, "model.layers.1.mlp.router.weight");
  same("layers.1.attn.q.bias", {384}, "model.layers.1.self_attn.q_proj.bias");
  same("embed", {1024, 192}, "model.embed_tokens.weight");
}

TEST(Mlx, UnquantisedRepositories) {
  for (const char* type : {"qwen3_moe", "qwen3_next", "qwen3_5_moe"}) {
    MlxOptions options;
    options.quantised = false;
    const Converted made(type, options);
    const auto checkpoint = Checkpoint::open(made.mlx());
    ASSERT_TRUE(checkpoint.ok()) << checkpoint.error().message;
    EXPECT_EQ((*checkpoint)->kind(), "MLX");
    EXPECT_EQ((*checkpoint)->expert_format(), (ExpertFormat{DType::bf16, DType::bf16}));
    expect_values(**checkpoint, ExpectedQwen((*checkpoint)->spec(), made.values, true));
  }
}

TEST(Mlx, ConfigsMustAgreeWithThemselves) {
  const Converted made("qwen3_moe");
  made.change([](RawTensors&, Json& c) { c.erase("quantization_config"); });
  EXPECT_EQ(made.message(), "opened");
  made.change([](RawTensors&, Json& c) {
    c["quantization_config"] = c["quantization"];
    c.erase("quantization");
  });
  EXPECT_EQ(made.message(), "opened");
  made.change([](RawTensors&, Json& c) {
    c["quantization"] = c["quantization_config"];
    c["quantization"]["bits"] = 8;
  });
  EXPECT_THAT(made.message(), HasSubstr("quantization and quantization_config contradict"));
  made.change([](RawTensors&, Json& c) { c["quantization"] = "4bit"; });
  EXPECT_THAT(made.message(), HasSubstr("'quantization' must be an object"));
}

TEST(Mlx, WrongPlanesAreRefusedByName) {
  const std::string gate = kGate;
  struct Broken {
    const char* says;
    std::function<void(RawTensors&, Json&)> change;
  };
  const Broken cases[] = {
      {"'model.layers.1.mlp.switch_mlp.gate_proj.biases' (bf16 [4, 64, 4]) is missing",
       [&](RawTensors& t, Json&) { t.erase(gate + ".biases"); }},
      // Without scales it is taken for a plain matrix, which u32 is not.
      {"gate_proj.weight' is U32 [4, 64, 16], config.json needs f32, f16 or bf16 [4, 64, 128]",
       [&](RawTensors& t, Json&) { t.erase(gate + ".scales"), t.erase(gate + ".biases"); }},
      {"gate_proj.scales' is BF16 [4, 64, 4, 1], config.json needs",
       [&](RawTensors& t, Json&) {
         t[gate + ".scales"].shape = {4, 64, 4, 1};
       }},
      {"gate_proj.scales' is F32 [4, 64, 4]",
       [&](RawTensors& t, Json&) {
         t[gate + ".scales"] = raw_tensor("F32", {4, 64, 4}, raw_values(t[gate + ".scales"]));
       }},
      {"gate_proj.biases' is F16 [4, 64, 4], config.json needs bf16",
       [&](RawTensors& t, Json&) {
         t[gate + ".biases"] = raw_tensor("F16", {4, 64, 4}, raw_values(t[gate + ".biases"]));
       }},
      {"gate_proj.weight' is U32 [4, 64, 16], config.json needs u32 [4, 64, 32]",
       [&](RawTensors&, Json& c) {
         c["quantization"][gate] = {{"bits", 8}, {"group_size", 32}};
       }},
      {"gate_proj.scales' is BF16 [4, 64, 4], config.json needs bf16 or f16 [4, 64, 2]",
       [&](RawTensors&, Json& c) {
         c["quantization"][gate] = {{"group_size", 64}};
       }},
      {"says that it is not quantised",
       [&](RawTensors&, Json& c) { c["quantization"][gate] = false; }},
      {"'model.layers.1.mlp.switch_mlp.gate_proj' is quantised with 3 bits",
       [&](RawTensors&, Json& c) {
         c["quantization"][gate] = {{"bits", 3}};
       }},
      {"is quantised with mode 'mxfp8'",
       [&](RawTensors&, Json& c) {
         c["quantization"][gate] = {{"mode", "mxfp8"}};
       }},
      {"down_proj' has 64 columns, which are no whole groups of 128",
       [&](RawTensors&, Json& c) {
         c["quantization"]["model.layers.0.mlp.switch_mlp.down_proj"] = {{"group_size", 128}};
       }},
      {"config.json has no 'quantization'",
       [&](RawTensors&, Json& c) { c.erase("quantization"), c.erase("quantization_config"); }},
      {"'model.norm.scales' has no part",  // vectors are never quantised
       [&](RawTensors& t, Json&) {
         t["model.norm.scales"] = {"U8", {1}, "x"};
       }},
      {"'model.norm.weight' is U32 [16], config.json needs f32, f16 or bf16 [128]",
       [&](RawTensors& t, Json&) {
         t["model.norm.weight"] = {"U32", {16}, std::string(64, 'x')};
         t["model.norm.scales"] = t["model.norm.biases"] = {"BF16", {4}, std::string(8, 'x')};
       }},
      {"'model.layers.0.self_attn.scales' has no part",
       [&](RawTensors& t, Json&) {
         t["model.layers.0.self_attn.scales"] = {"U8", {1}, "x"};
       }},
      {"'model.layers.0.mlp.experts.0.up_proj.weight' has no part",
       [&](RawTensors& t, Json&) {
         t["model.layers.0.mlp.experts.0.up_proj.weight"] = {"U8", {1}, "x"};
       }},
  };
  const Converted made("qwen3_moe");
  const RawTensors tensors = read_raw(made.mlx());
  Json config = file_json(made.mlx() / "config.json");
  config.erase("quantization_config");
  for (const auto& [says, change] : cases) {
    RawTensors changed_tensors = tensors;
    Json changed_config = config;
    change(changed_tensors, changed_config);
    write_raw(made.mlx(), changed_config, changed_tensors);
    EXPECT_THAT(made.message(), HasSubstr(says));
  }
}

// What nobody reads may have any settings: vision towers are often left at other bits.
TEST(Mlx, SettingsOfSkippedTensorsDoNotMatter) {
  const Converted made("qwen3_5_moe");
  made.change([](RawTensors& tensors, Json& config) {
    tensors["vision_tower.blocks.0.weight"] = {"U32", {1}, std::string(4, 'x')};
    tensors["vision_tower.blocks.0.scales"] = {"BF16", {1}, "xx"};
    config["quantization"]["vision_tower.blocks.0"] = {{"bits", 6}, {"group_size", 16}};
    config.erase("quantization_config");
  });
  EXPECT_EQ(made.message(), "opened");
}

}  // namespace
}  // namespace wader
