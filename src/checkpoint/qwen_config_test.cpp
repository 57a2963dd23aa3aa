// config.json of the Qwen families: what each key becomes, and what is refused.
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <functional>

#include "checkpoint/hf_config.h"
#include "checkpoint/qwen_testing.h"

namespace wader {
namespace {

using testing::file_json;
using testing::fixture;
using ::testing::HasSubstr;
using testing::small_qwen_config;

using Change = std::function<void(Json&)>;

Result<HfModel> read(const Json& config) {
  return model_from_hf_config(parse_json(config.dump(), "test").value());  // as text, like a file
}

Result<HfModel> with(const char* model_type, const Change& change) {
  Json config = small_qwen_config(model_type);
  change(config.contains("text_config") ? config["text_config"] : config);
  return read(config);
}

ArchitectureSpec spec_with(const char* model_type, const Change& change) {
  const auto model = with(model_type, change);
  EXPECT_TRUE(model.ok()) << model.error().message;
  return model.ok() ? model->spec : ArchitectureSpec{};
}

const auto kUnchanged = [](Json&) {};
const char* const kTypes[] = {"qwen3_moe", "qwen3_next", "qwen3_5_moe"};

TEST(QwenConfig, ReadsTheQwen3MoeFixture) {
  const auto model = read(file_json(fixture("tiny-qwen3-moe") / "config.json"));
  ASSERT_TRUE(model.ok()) << model.error().message;
  const ArchitectureSpec& spec = model->spec;
  EXPECT_EQ(spec.family, "qwen3_moe");
  EXPECT_EQ(spec.vocab_rows, 1024u);
  EXPECT_EQ(spec.hidden, 128u);
  EXPECT_EQ(spec.query_heads, 4u);
  EXPECT_EQ(spec.kv_heads, 2u);
  EXPECT_EQ(spec.head_dim, 128u);
  EXPECT_EQ(spec.rotary_dim, 128u);
  EXPECT_EQ(spec.experts, 24u);
  EXPECT_EQ(spec.experts_per_token, 8u);
  EXPECT_EQ(spec.expert_inner, 64u);
  EXPECT_EQ(spec.shared_inner, 0u);
  EXPECT_EQ(spec.dense_inner, 0u);
  EXPECT_EQ(spec.sliding_window, 0u);
  EXPECT_EQ(spec.max_context, 40960u);
  EXPECT_EQ(spec.norm_eps, 1e-6);
  EXPECT_EQ(spec.rope.theta, 1e6);
  EXPECT_FALSE(spec.rope.yarn);
  EXPECT_EQ(spec.delta, DeltaNetSpec{});
  EXPECT_EQ(spec.layers, std::vector<LayerSpec>(3, LayerKind::full_attention));
  EXPECT_EQ(spec.activation, Activation::swiglu);
  EXPECT_EQ(spec.router, RouterRule::softmax_then_topk_renormalised);
  EXPECT_TRUE(spec.qk_norm);
  EXPECT_FALSE(spec.attention_bias || spec.attention_sinks || spec.attention_gate ||
               spec.router_bias || spec.expert_bias || spec.tied_head);
}

TEST(QwenConfig, ReadsTheHybridFixtures) {
  for (const char* name : {"tiny-qwen3-next", "tiny-qwen3.5-moe"}) {
    const auto model = read(file_json(fixture(name) / "config.json"));
    ASSERT_TRUE(model.ok()) << model.error().message;
    const ArchitectureSpec& spec = model->spec;
    EXPECT_EQ(spec.family, std::string(name) == "tiny-qwen3-next" ? "qwen3_next" : "qwen3_5_moe");
    EXPECT_EQ(spec.head_dim, 64u);
    EXPECT_EQ(spec.rotary_dim, 16u);
    EXPECT_EQ(spec.expert_inner, 32u);
    EXPECT_EQ(spec.shared_inner, 64u);
    EXPECT_EQ(spec.rope.theta, 1e7);
    EXPECT_EQ(
        spec.delta,
        (DeltaNetSpec{
            .key_heads = 2, .value_heads = 4, .key_dim = 32, .value_dim = 32, .conv_kernel = 4}));
    EXPECT_EQ(spec.layers,
              (std::vector<LayerSpec>{LayerKind::delta_net, LayerKind::delta_net,
                                      LayerKind::delta_net, LayerKind::full_attention}));
    EXPECT_EQ(spec.router, RouterRule::softmax_then_topk_renormalised);
    EXPECT_TRUE(spec.qk_norm && spec.attention_gate);
    EXPECT_EQ(spec.max_context, 262144u);
  }
}

// The text part on its own, as some repositories strip it.
TEST(QwenConfig, TextPartAtTheTop) {
  Json config = file_json(fixture("tiny-qwen3.5-moe") / "config.json")["text_config"];
  const auto model = read(config);
  ASSERT_TRUE(model.ok()) << model.error().message;
  EXPECT_EQ(model->spec.family, "qwen3_5_moe");
  config["model_type"] = "qwen3_5_moe";
  EXPECT_TRUE(read(config).ok());
}

// Fluent text that then loops: the default differs by family.
TEST(QwenConfig, NormTopkProbByFamily) {
  const auto plain = RouterRule::softmax_then_topk,
             renormalised = RouterRule::softmax_then_topk_renormalised;
  const Change absent = [](Json& c) { c.erase("norm_topk_prob"); };
  const Change no = [](Json& c) { c["norm_topk_prob"] = false; };
  const Change yes = [](Json& c) { c["norm_topk_prob"] = true; };
  EXPECT_EQ(spec_with("qwen3_moe", absent).router, plain);
  EXPECT_EQ(spec_with("qwen3_moe", no).router, plain);
  EXPECT_EQ(spec_with("qwen3_moe", yes).router, renormalised);
  EXPECT_EQ(spec_with("qwen3_next", absent).router, renormalised);
  EXPECT_EQ(spec_with("qwen3_next", no).router, plain);
  EXPECT_EQ(spec_with("qwen3_next", yes).router, renormalised);
  EXPECT_EQ(spec_with("qwen3_5_moe", absent).router, renormalised);
  EXPECT_EQ(spec_with("qwen3_5_moe", yes).router, renormalised);
  EXPECT_THAT(with("qwen3_5_moe", no).error().message, HasSubstr("norm_topk_prob is false"));
}

TEST(QwenConfig, HeadDimMayBeAbsentOnlyWhereTheReferenceAllowsIt) {
  const Change absent = [](Json& c) { c.erase("head_dim"); };
  EXPECT_EQ(spec_with("qwen3_moe", absent).head_dim, 128u / 4);
  EXPECT_THAT(with("qwen3_next", absent).error().message, HasSubstr("'head_dim'"));
  EXPECT_THAT(with("qwen3_moe",
                   [](Json& c) {
                     c.erase("head_dim");
                     c["hidden_size"] = 130;
                   })
                  .error()
                  .message,
              HasSubstr("not a multiple"));
}

TEST(QwenConfig, PartialRotaryFactor) {
  EXPECT_EQ(spec_with("qwen3_moe", kUnchanged).rotary_dim, 32u);
  EXPECT_EQ(spec_with("qwen3_next", kUnchanged).rotary_dim, 8u);
  EXPECT_EQ(spec_with("qwen3_next", [](Json& c) { c.erase("partial_rotary_factor"); }).rotary_dim,
            8u);
  EXPECT_EQ(spec_with("qwen3_next", [](Json& c) { c["partial_rotary_factor"] = 0.5; }).rotary_dim,
            16u);
  // Inside the rope settings, and in both places.
  const Json rope = {{"rope_type", "default"}, {"rope_theta", 1e6}, {"partial_rotary_factor", 0.5}};
  EXPECT_EQ(spec_with("qwen3_5_moe",
                      [&](Json& c) {
                        c.erase("partial_rotary_factor");
                        c["rope_parameters"] = rope;
                      })
                .rotary_dim,
            16u);
  EXPECT_THAT(with("qwen3_5_moe", [&](Json& c) { c["rope_parameters"] = rope; }).error().message,
              HasSubstr("partial_rotary_factor is 0.25 and 0.5"));
  EXPECT_THAT(with("qwen3_next", [](Json& c) { c["partial_rotary_factor"] = 0.1; }).error().message,
              HasSubstr("an even number"));
  EXPECT_FALSE(with("qwen3_next", [](Json& c) { c["partial_rotary_factor"] = 0; }).ok());
  EXPECT_FALSE(with("qwen3_next", [](Json& c) { c["partial_rotary_factor"] = 1.5; }).ok());
}

TEST(QwenConfig, MropeOfTextIsPlainRope) {
  const auto rope = [](Json sections) {
    return [sections = std::move(sections)](Json& c) {
      c["rope_parameters"] = {{"rope_type", "default"},
                              {"rope_theta", 1e6},
                              {"mrope_interleaved", true},
                              {"mrope_section", sections}};
    };
  };
  const ArchitectureSpec spec = spec_with("qwen3_5_moe", rope({2, 1, 1}));
  EXPECT_FALSE(spec.rope.yarn);
  EXPECT_EQ(spec.rope.theta, 1e6);
  for (const Json& sections :
       {Json({2, 2, 1}), Json({2, -1, 3}), Json({5000, 1, 1}), Json("2,1,1")})
    EXPECT_THAT(with("qwen3_5_moe", rope(sections)).error().message, HasSubstr("mrope_section"));
}

// People add YaRN to Qwen's config by hand, as its model card says.
TEST(QwenConfig, YarnAddedByHand) {
  for (const char* type : kTypes) {
    const Change yarn = [](Json& c) {
      c["rope_scaling"] = {
          {"rope_type", "yarn"}, {"factor", 4.0}, {"original_max_position_embeddings", 32768}};
    };
    const ArchitectureSpec spec = spec_with(type, yarn);
    ASSERT_TRUE(spec.rope.yarn);
    EXPECT_EQ(spec.rope.theta, 1e6);
    EXPECT_EQ(spec.rope.yarn->factor, 4);
    EXPECT_EQ(spec.rope.yarn->original_context, 32768);
    EXPECT_TRUE(spec.rope.yarn->truncate);  // the reference's default; GPT-OSS must say it
    EXPECT_NEAR(spec.rope.yarn->attention_factor, 1.1386294361119891, 1e-15);
    EXPECT_FALSE(spec_with(type, [&](Json& c) {
                   yarn(c);
                   c["rope_scaling"]["truncate"] = false;
                 }).rope.yarn->truncate);
  }
  EXPECT_THAT(with("qwen3_moe",
                   [](Json& c) {
                     c["rope_scaling"] = {{"rope_type", "yarn"}, {"factor", 4.0}};
                   })
                  .error()
                  .message,
              HasSubstr("'original_max_position_embeddings'"));
}

TEST(QwenConfig, LayerKinds) {
  EXPECT_EQ(spec_with("qwen3_next",
                      [](Json& c) {
                        c["num_hidden_layers"] = 4;
                        c["full_attention_interval"] = 3;
                      })
                .layers,
            (std::vector<LayerSpec>{LayerKind::delta_net, LayerKind::delta_net,
                                    LayerKind::full_attention, LayerKind::delta_net}));
  const Json kinds = {"full_attention", "linear_attention"};
  EXPECT_EQ(spec_with("qwen3_next",
                      [&](Json& c) {
                        c.erase("full_attention_interval");
                        c["layer_types"] = kinds;
                      })
                .layers,
            (std::vector<LayerSpec>{LayerKind::full_attention, LayerKind::delta_net}));
  // Where both stand, the reference reads layer_types.
  EXPECT_EQ(spec_with("qwen3_next", [&](Json& c) { c["layer_types"] = kinds; }).layers,
            (std::vector<LayerSpec>{LayerKind::full_attention, LayerKind::delta_net}));
  EXPECT_TRUE(with("qwen3_moe", [](Json& c) {
                c["layer_types"] = {"full_attention", "full_attention"};
              }).ok());
  EXPECT_THAT(with("qwen3_moe", [&](Json& c) { c["layer_types"] = kinds; }).error().message,
              HasSubstr("layer_types has '\\\"linear_attention\\\"'; full_attention is known"));
  EXPECT_THAT(with("qwen3_next",
                   [](Json& c) {
                     c["layer_types"] = {"sliding_attention", "full_attention"};
                   })
                  .error()
                  .message,
              HasSubstr("linear_attention and full_attention are known"));
  // Without a DeltaNet layer there is nothing of it in the spec.
  EXPECT_EQ(spec_with("qwen3_next", [](Json& c) { c["full_attention_interval"] = 1; }).delta,
            DeltaNetSpec{});
}

TEST(QwenConfig, DenseLayers) {
  const auto ffns = [](const ArchitectureSpec& spec) {
    std::string text;
    for (const LayerSpec& layer : spec.layers) text += layer.ffn == FfnKind::dense ? 'd' : 'm';
    return text;
  };
  for (const char* type : {"qwen3_moe", "qwen3_next"}) {
    const auto layers = [&](Json mlp_only, uint64_t step) {
      return spec_with(type, [&](Json& c) {
        c["num_hidden_layers"] = 4;
        c["intermediate_size"] = 384;
        c["mlp_only_layers"] = mlp_only;
        c["decoder_sparse_step"] = step;
      });
    };
    EXPECT_EQ(ffns(layers(Json::array(), 1)), "mmmm");
    EXPECT_EQ(layers(Json::array(), 1).dense_inner, 0u);
    EXPECT_EQ(ffns(layers({0, 3}, 1)), "dmmd");
    EXPECT_EQ(layers({0, 3}, 1).dense_inner, 384u);
    EXPECT_EQ(ffns(layers(Json::array(), 2)), "dmdm");
    EXPECT_EQ(ffns(layers({1}, 2)), "dddm");
    EXPECT_THAT(with(type, [](Json& c) { c["mlp_only_layers"] = {0}; }).error().message,
                HasSubstr("'intermediate_size'"));
    EXPECT_THAT(with(type, [](Json& c) { c["mlp_only_layers"] = {2}; }).error().message,
                HasSubstr("mlp_only_layers has '2'"));
    EXPECT_THAT(with(type,
                     [](Json& c) {
                       c["mlp_only_layers"] = {0, 1};
                       c["intermediate_size"] = 64;
                     })
                    .error()
                    .message,
                HasSubstr("no layer has routed experts"));
  }
  EXPECT_THAT(with("qwen3_5_moe", [](Json& c) { c["mlp_only_layers"] = {0}; }).error().message,
              HasSubstr("make layers dense"));
}

TEST(QwenConfig, TiedHeadMayStandInEitherPlace) {
  EXPECT_TRUE(spec_with("qwen3_moe", [](Json& c) { c["tie_word_embeddings"] = true; }).tied_head);
  Json config = small_qwen_config("qwen3_5_moe");
  config["text_config"].erase("tie_word_embeddings");
  EXPECT_FALSE(read(config)->spec.tied_head);
  config["tie_word_embeddings"] = true;
  EXPECT_TRUE(read(config)->spec.tied_head);
  config["text_config"]["tie_word_embeddings"] = true;
  EXPECT_TRUE(read(config)->spec.tied_head);
  config.erase("tie_word_embeddings");
  EXPECT_TRUE(read(config)->spec.tied_head);
  config["tie_word_embeddings"] = false;
  EXPECT_THAT(read(config).error().message, HasSubstr("tie_word_embeddings is false and true"));
}

TEST(QwenConfig, SlidingWindowsOnlySwitchedOff) {
  for (const char* type : kTypes) {
    EXPECT_TRUE(with(type, [](Json& c) {
                  c["use_sliding_window"] = false;
                  c["sliding_window"] = 4096;
                  c["max_window_layers"] = 28;
                }).ok());
    EXPECT_TRUE(with(type, [](Json& c) { c["sliding_window"] = nullptr; }).ok());
    EXPECT_THAT(with(type, [](Json& c) { c["use_sliding_window"] = true; }).error().message,
                HasSubstr("use_sliding_window is true"));
  }
}

TEST(QwenConfig, AttentionBias) {
  EXPECT_TRUE(spec_with("qwen3_moe", [](Json& c) { c["attention_bias"] = true; }).attention_bias);
  EXPECT_THAT(with("qwen3_next", [](Json& c) { c["attention_bias"] = true; }).error().message,
              HasSubstr("attention_bias is true"));
}

TEST(QwenConfig, RefusesByName) {
  struct Refused {
    const char* type;
    const char* says;
    Change change;
  };
  const Refused cases[] = {
      {"qwen3_moe", "hidden_act is 'gelu'", [](Json& c) { c["hidden_act"] = "gelu"; }},
      {"qwen3_moe", "'rope_theta'", [](Json& c) { c.erase("rope_theta"); }},
      {"qwen3_moe", "rope_type is 'llama3'; only 'default' and 'yarn' are supported",
       [](Json& c) {
         c["rope_scaling"] = {{"rope_type", "llama3"}};
       }},
      {"qwen3_moe", "no rope_type", [](Json& c) { c["rope_scaling"] = Json::object(); }},
      {"qwen3_moe", "rope_type and type contradict",
       [](Json& c) {
         c["rope_scaling"] = {{"rope_type", "default"}, {"type", "yarn"}};
       }},
      {"qwen3_moe", "has 'shared_expert_intermediate_size'",
       [](Json& c) { c["shared_expert_intermediate_size"] = 64; }},
      {"qwen3_moe", "has 'swiglu_limit'", [](Json& c) { c["swiglu_limit"] = 7; }},
      {"qwen3_moe", "has 'text_config'", [](Json& c) { c["text_config"] = Json::object(); }},
      {"qwen3_moe", "'num_experts'", [](Json& c) { c.erase("num_experts"); }},
      {"qwen3_moe", "'num_experts'", [](Json& c) { c["num_experts"] = 0; }},
      {"qwen3_moe", "'mlp_only_layers' must be an array",
       [](Json& c) { c["mlp_only_layers"] = 1; }},
      {"qwen3_moe", "'decoder_sparse_step'", [](Json& c) { c["decoder_sparse_step"] = 0; }},
      {"qwen3_moe", "quant_method is 'fp8'; of qwen3_moe models only unquantised",
       [](Json& c) {
         c["quantization_config"] = {{"quant_method", "fp8"}, {"bits", 8}};
       }},
      {"qwen3_next", "attn_output_gate is false", [](Json& c) { c["attn_output_gate"] = false; }},
      {"qwen3_next", "value_heads 3 is not a multiple of key_heads 2",
       [](Json& c) { c["linear_num_value_heads"] = 3; }},
      {"qwen3_next", "'linear_conv_kernel_dim'",
       [](Json& c) { c.erase("linear_conv_kernel_dim"); }},
      {"qwen3_next", "conv_kernel is 1", [](Json& c) { c["linear_conv_kernel_dim"] = 1; }},
      {"qwen3_next", "'full_attention_interval'",
       [](Json& c) { c["full_attention_interval"] = 0; }},
      {"qwen3_next", "'shared_expert_intermediate_size'",
       [](Json& c) { c["shared_expert_intermediate_size"] = 0; }},
      {"qwen3_5_moe", "config.json's text_config has 'rope_interleaved'",
       [](Json& c) { c["rope_interleaved"] = true; }},
      {"qwen3_5_moe", "model_type is 'qwen3_5_text'",
       [](Json& c) { c["model_type"] = "qwen3_5_text"; }},
      {"qwen3_5_moe", "mamba_ssm_dtype is 'bfloat16'",
       [](Json& c) { c["mamba_ssm_dtype"] = "bfloat16"; }},
  };
  for (const auto& [type, says, change] : cases) {
    const auto model = with(type, change);
    ASSERT_FALSE(model.ok()) << says;
    EXPECT_THAT(model.error().message, HasSubstr(says));
    EXPECT_THAT(model.error().message, ::testing::StartsWith("config.json"));
  }
  Json outside = small_qwen_config("qwen3_5_moe");
  outside["sliding_window"] = 128;
  EXPECT_THAT(read(outside).error().message, HasSubstr("config.json has 'sliding_window'"));
}

TEST(QwenConfig, AbsurdNumbersAreErrors) {
  const Json values[] = {-1,  2147483648ull, 9223372036854775808ull, 1e308,         0.5, 0,
                         "1", true,          Json::array(),          Json::object()};
  for (const char* key :
       {"hidden_size", "num_attention_heads", "num_key_value_heads", "num_hidden_layers",
        "num_experts", "num_experts_per_tok", "moe_intermediate_size", "vocab_size",
        "linear_num_key_heads", "linear_num_value_heads", "linear_key_head_dim",
        "linear_value_head_dim", "linear_conv_kernel_dim", "shared_expert_intermediate_size"})
    for (const Json& value : values)
      EXPECT_FALSE(with("qwen3_5_moe", [&](Json& c) { c[key] = value; }).ok())
          << key << " = " << value.dump();
}

}  // namespace
}  // namespace wader
