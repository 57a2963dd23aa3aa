// Layouts of released Qwen checkpoints and the ways in which they mislead.
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include "checkpoint/family_testing.h"
#include "checkpoint/qwen_testing.h"

namespace wader {
namespace {

using ::testing::HasSubstr;
using namespace wader::testing;  // NOLINT

using Tensors = RawTensors;

struct Written {
  TempDirectory directory;
  Written(const Json& config, const Tensors& tensors) { write_raw(path(), config, tensors); }
  const std::filesystem::path& path() const { return directory.path(); }
};

std::string message(const Json& config, const Tensors& tensors) {
  const Written written(config, tensors);
  const auto checkpoint = Checkpoint::open(written.path());
  return checkpoint.ok() ? "opened" : checkpoint.error().message;
}

// Opens and compares with the values of the plain release.
void expect_plain(const Json& config, const Tensors& tensors, const ValuesByName& released) {
  const Written written(config, tensors);
  const auto checkpoint = Checkpoint::open(written.path());
  ASSERT_TRUE(checkpoint.ok()) << checkpoint.error().message;
  EXPECT_EQ((*checkpoint)->kind(), "Hugging Face");
  expect_values(**checkpoint, ExpectedQwen((*checkpoint)->spec(), released, false));
}

bool is_zero_centred(const std::string& name) {
  return ends_with_any(name,
                       {"layernorm.weight", "q_norm.weight", "k_norm.weight", "model.norm.weight"});
}

void add_one_to_norms(Tensors& tensors) {
  for (auto& [name, tensor] : tensors) {
    if (!is_zero_centred(name)) continue;
    std::vector<float> values = raw_values(tensor);
    for (float& value : values) value += 1;
    tensor = raw_tensor("BF16", tensor.shape, values);
  }
}

void transpose_convolutions(Tensors& tensors) {
  for (auto& [name, tensor] : tensors)
    if (name.ends_with("conv1d.weight")) std::swap(tensor.shape[1], tensor.shape[2]);
}

// transformers 5 saves Qwen3's experts fused, and 3.5 may come with a tensor an expert.
TEST(QwenCheckpoint, ExpertsFusedOrEach) {
  for (const char* type : {"qwen3_moe", "qwen3_next"}) {
    const Json config = small_qwen_config(type);
    Tensors tensors = small_qwen_tensors(config);
    const ValuesByName released = plain_values(tensors);
    for (const char* layer : {"model.layers.0.", "model.layers.1."}) {
      const std::string stem = std::string(layer) + "mlp.experts.";
      RawTensor gate_up{"BF16", {4, 128, 128}, {}}, down{"BF16", {4, 128, 64}, {}};
      for (int e = 0; e < 4; ++e) {
        const auto take = [&](const char* projection) {
          return tensors.extract(fmt::format("{}{}.{}.weight", stem, e, projection)).mapped().bytes;
        };
        gate_up.bytes += take("gate_proj");
        gate_up.bytes += take("up_proj");
        down.bytes += take("down_proj");
      }
      tensors[stem + "gate_up_proj"] = gate_up;
      tensors[stem + "down_proj"] = down;
    }
    expect_plain(config, tensors, released);
    // The transposed form of other programs has the wrong shape.
    tensors["model.layers.1.mlp.experts.down_proj"].shape = {4, 64, 128};
    EXPECT_THAT(message(config, tensors), HasSubstr("down_proj' is BF16 [4, 64, 128]"));
  }
  const Json config = small_qwen_config("qwen3_5_moe");
  Tensors tensors = small_qwen_tensors(config);
  const ValuesByName released = plain_values(tensors);
  std::erase_if(tensors, [](const auto& entry) {
    return entry.first.find(".mlp.experts.") != std::string::npos;
  });
  for (const auto& [name, values] : released)
    if (name.find(".mlp.experts.") != std::string::npos)
      tensors[replaced(name, "model.", "model.language_model.")] =
          raw_tensor("BF16", values.shape, values.values);
  expect_plain(config, tensors, released);
}

TEST(QwenCheckpoint, TextPartWithoutNesting) {
  const Json nested = small_qwen_config("qwen3_5_moe");
  Tensors tensors;
  for (const auto& [name, tensor] : small_qwen_tensors(nested))
    tensors[replaced(name, "model.language_model.", "model.")] = tensor;
  expect_plain(nested["text_config"], tensors, plain_values(tensors));
}

TEST(QwenCheckpoint, SkipsPredictionHeadsAndVision) {
  const Json config = small_qwen_config("qwen3_5_moe");
  Tensors tensors = small_qwen_tensors(config);
  tensors["mtp.layers.0.mlp.gate.weight"] = raw_tensor("F32", {1}, {1});
  tensors["model.visual.blocks.0.attn.qkv.bias"] = raw_tensor("F32", {1}, {1});
  EXPECT_EQ(message(config, tensors), "opened");
  tensors["model.audio.x"] = raw_tensor("F32", {1}, {1});
  EXPECT_THAT(message(config, tensors), HasSubstr("'model.audio.x' has no part"));
}

TEST(QwenCheckpoint, TheSameTensorUnderTwoPrefixes) {
  const Json config = small_qwen_config("qwen3_5_moe");
  Tensors tensors = small_qwen_tensors(config);
  tensors["model.norm.weight"] = tensors.at("model.language_model.norm.weight");
  EXPECT_THAT(message(config, tensors), HasSubstr("'model.norm.weight' is there twice"));
}

TEST(QwenCheckpoint, TiedHead) {
  Json config = small_qwen_config("qwen3_moe");
  Tensors tensors = small_qwen_tensors(config);
  config["tie_word_embeddings"] = true;
  EXPECT_EQ(message(config, tensors), "opened");  // a stored copy is not read
  tensors.erase("lm_head.weight");
  expect_plain(config, tensors, plain_values(tensors));
  config["tie_word_embeddings"] = false;
  EXPECT_THAT(message(config, tensors), HasSubstr("'lm_head.weight'"));
}

TEST(QwenCheckpoint, DenseLayersAmongSparseOnes) {
  for (const char* type : {"qwen3_moe", "qwen3_next"}) {
    Json config = small_qwen_config(type);
    config["mlp_only_layers"] = {0};
    config["intermediate_size"] = 96;
    Tensors tensors = small_qwen_tensors(config);
    std::erase_if(tensors,
                  [](const auto& entry) { return entry.first.starts_with("model.layers.0.mlp."); });
    const auto values = [](uint64_t count, float first) {
      std::vector<float> out(count);
      for (uint64_t i = 0; i < count; ++i) out[i] = first + 0.5f * static_cast<float>(i % 64);
      return out;
    };
    const std::string mlp = "model.layers.0.mlp.";
    tensors[mlp + "gate_proj.weight"] = raw_tensor("BF16", {96, 128}, values(96 * 128, 1));
    tensors[mlp + "up_proj.weight"] = raw_tensor("BF16", {96, 128}, values(96 * 128, -40));
    tensors[mlp + "down_proj.weight"] = raw_tensor("BF16", {128, 96}, values(128 * 96, 3));
    const Written written(config, tensors);
    const auto checkpoint = Checkpoint::open(written.path());
    ASSERT_TRUE(checkpoint.ok()) << checkpoint.error().message;
    expect_values(**checkpoint, ExpectedQwen((*checkpoint)->spec(), plain_values(tensors), false));
    EXPECT_FALSE((*checkpoint)->expert_source(0, 0, ExpertMatrix::down).ok());
    EXPECT_TRUE((*checkpoint)->expert_source(1, 0, ExpertMatrix::down).ok());
    tensors.erase(mlp + "up_proj.weight");
    EXPECT_THAT(message(config, tensors),
                HasSubstr("'model.layers.0.mlp.up_proj.weight' (f32, f16 or bf16 [96, 128])"));
  }
}

TEST(QwenCheckpoint, AttentionBiases) {
  Json config = small_qwen_config("qwen3_moe");
  config["attention_bias"] = true;
  Tensors tensors = small_qwen_tensors(config);
  for (const char* layer : {"model.layers.0.", "model.layers.1."})
    for (const auto& [name, rows] :
         {std::pair("q", 128u), std::pair("k", 64u), std::pair("v", 64u), std::pair("o", 128u)})
      tensors[fmt::format("{}self_attn.{}_proj.bias", layer, name)] =
          raw_tensor("BF16", {rows}, std::vector<float>(rows, static_cast<float>(name[0])));
  expect_plain(config, tensors, plain_values(tensors));
}

// The 1 is added in f32: to 0.001 it gives 1.001, which bf16 would round to 1.
TEST(QwenCheckpoint, ZeroCentredNormsAreSummedInF32) {
  for (const char* type : {"qwen3_next", "qwen3_5_moe"}) {
    const Json config = small_qwen_config(type);
    Tensors tensors = small_qwen_tensors(config);
    const std::string prefix =
        std::string(type) == "qwen3_next" ? "model." : "model.language_model.";
    for (const char* name : {"norm.weight", "layers.0.input_layernorm.weight",
                             "layers.1.post_attention_layernorm.weight"})
      tensors[prefix + name] = raw_tensor("BF16", {128}, std::vector<float>(128, 0.001f));
    for (const char* name :
         {"layers.1.self_attn.q_norm.weight", "layers.1.self_attn.k_norm.weight"})
      tensors[prefix + name] = raw_tensor("BF16", {32}, std::vector<float>(32, 0.001f));
    tensors[prefix + "layers.0.linear_attn.norm.weight"] =
        raw_tensor("BF16", {8}, std::vector<float>(8, 0.001f));
    const Written written(config, tensors);
    const auto checkpoint = Checkpoint::open(written.path());
    ASSERT_TRUE(checkpoint.ok()) << checkpoint.error().message;
    const float stored = bf16_to_f32(f32_to_bf16(0.001f));  // 0.00099945
    const auto is = [&](const char* name, uint64_t size, float add) {
      const auto source = (*checkpoint)->trunk_source({name, {size}, TrunkRole::exact});
      ASSERT_TRUE(source.ok()) << source.error().message;
      EXPECT_EQ(source->add, add) << name;
      EXPECT_EQ(materialise(**checkpoint, *source), std::vector<float>(size, stored + add)) << name;
    };
    is("final_norm", 128, 1);
    is("layers.0.mixer_norm", 128, 1);
    is("layers.1.ffn_norm", 128, 1);
    is("layers.1.attn.q_norm", 32, 1);
    is("layers.1.attn.k_norm", 32, 1);
    is("layers.0.delta.norm", 8, 0);  // the gated norm is plain
  }
  // Qwen3's own norms are plain.
  const auto plain = Checkpoint::open(fixture("tiny-qwen3-moe"));
  for (const char* name : {"final_norm", "layers.0.mixer_norm", "layers.0.attn.q_norm"})
    EXPECT_EQ((*plain)->trunk_source({name, {128}, TrunkRole::exact})->add, 0) << name;
}

// Community conversions in the released layout, with MLX's transposition and its 1.
TEST(QwenCheckpoint, ShiftedNormsAreToldByConv1d) {
  for (const char* type : {"qwen3_next", "qwen3_5_moe"}) {
    const Json config = small_qwen_config(type);
    Tensors tensors = small_qwen_tensors(config);
    add_one_to_norms(tensors);
    const ValuesByName shifted = plain_values(tensors);
    transpose_convolutions(tensors);
    const Written written(config, tensors);
    const auto checkpoint = Checkpoint::open(written.path());
    ASSERT_TRUE(checkpoint.ok()) << checkpoint.error().message;
    expect_values(**checkpoint, ExpectedQwen((*checkpoint)->spec(), shifted, true));
  }
}

TEST(QwenCheckpoint, NormsThatContradictTheLayoutAreRefused) {
  const Json config = small_qwen_config("qwen3_next");
  Tensors released = small_qwen_tensors(config);
  Tensors shifted = released;
  add_one_to_norms(shifted);
  EXPECT_THAT(message(config, shifted), HasSubstr("look as if 1 had been added already (mean 1.0"));
  Tensors transposed = released;
  transpose_convolutions(transposed);
  EXPECT_THAT(message(config, transposed), HasSubstr("look as released, without the 1"));
  // All zero, as an untrained model has them, is zero-centred.
  for (auto& [name, tensor] : released)
    if (is_zero_centred(name)) tensor.bytes.assign(tensor.bytes.size(), '\0');
  EXPECT_EQ(message(config, released), "opened");
}

TEST(QwenCheckpoint, SignsOfConversionMustAgree) {
  Json config = small_qwen_config("qwen3_next");
  config["num_hidden_layers"] = 4;
  Tensors tensors = small_qwen_tensors(config);
  for (int layer : {0, 1})
    for (const auto& [name, tensor] : Tensors(tensors))
      if (name.starts_with(fmt::format("model.layers.{}.", layer)))
        tensors[replaced(name, fmt::format("layers.{}.", layer),
                         fmt::format("layers.{}.", layer + 2))] = tensor;
  EXPECT_EQ(message(config, tensors), "opened");
  std::swap(tensors["model.layers.2.linear_attn.conv1d.weight"].shape[1],
            tensors["model.layers.2.linear_attn.conv1d.weight"].shape[2]);
  EXPECT_THAT(message(config, tensors),
              HasSubstr("'model.layers.2.linear_attn.conv1d.weight' is [96, 4, 1]"));

  const Json small = small_qwen_config("qwen3_next");
  const Written plain(small, small_qwen_tensors(small));
  const TempDirectory mlx;
  write_mlx(plain.path(), mlx.path());
  Tensors untransposed = read_raw(mlx.path());
  transpose_convolutions(untransposed);
  EXPECT_THAT(message(file_json(mlx.path() / "config.json"), untransposed),
              HasSubstr("whether 1 was added to the norm weights cannot be told"));
}

TEST(QwenCheckpoint, EveryTensorAndShapeIsChecked) {
  for (const char* type : {"qwen3_next", "qwen3_5_moe"}) {
    const Json config = small_qwen_config(type);
    const Tensors tensors = small_qwen_tensors(config);
    const TempDirectory directory;
    for (const auto& [name, tensor] : tensors) {
      const std::string text = replaced(name, "model.language_model.", "model.");
      Tensors without = tensors;
      without.erase(name);
      write_raw(directory.path(), config, without);
      const auto missing = Checkpoint::open(directory.path());
      ASSERT_FALSE(missing.ok()) << name;
      EXPECT_EQ(missing.error().code, ErrorCode::not_found) << name;
      EXPECT_THAT(missing.error().message, HasSubstr(directory.path().string()));
      EXPECT_THAT(missing.error().message, HasSubstr("'" + text + "'"));
      Tensors wrong = tensors;
      wrong[name].shape.insert(wrong[name].shape.begin(), 1);
      write_raw(directory.path(), config, wrong);
      const auto refused = Checkpoint::open(directory.path());
      ASSERT_FALSE(refused.ok()) << name;
      EXPECT_THAT(refused.error().message, HasSubstr("tensor '" + text + "' is BF16 [1, "));
    }
  }
}

// As released ones are: sizes from config.json that no file can back end early.
TEST(QwenCheckpoint, AbsurdDimsEndAtTheFirstTensor) {
  Json config = small_qwen_config("qwen3_moe");
  const Tensors tensors = small_qwen_tensors(config);
  for (const auto& [key, value] :
       {std::pair("num_experts", 16384u), std::pair("vocab_size", 1u << 22),
        std::pair("num_hidden_layers", 1024u)}) {
    Json absurd = config;
    absurd[key] = value;
    EXPECT_THAT(message(absurd, tensors), HasSubstr("tensor '"));
  }
}

}  // namespace
}  // namespace wader
