#include "checkpoint/hf_config.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <functional>

#include "checkpoint/checkpoint_testing.h"
#include "io/file.h"

namespace wader {
namespace {

using ::testing::HasSubstr;
using testing::small_config;

Json read_json(const std::string& name) {
  const std::string text = read_text_file(WADER_SOURCE_DIR "/" + name, 1 << 20).value();
  return parse_json(text, name).value();
}

using Change = std::function<void(Json&)>;

Result<HfModel> with(const Change& change) {
  Json config = small_config();
  change(config);
  return model_from_hf_config(parse_json(config.dump(), "test").value());  // as text, like a file
}

TEST(HfConfig, ReadsTheTinyFixture) {
  const auto model = model_from_hf_config(read_json("tests/data/tiny-gpt-oss/config.json"));
  ASSERT_TRUE(model.ok()) << model.error().message;
  const ArchitectureSpec& spec = model->spec;
  EXPECT_EQ(spec.family, "gpt_oss");
  EXPECT_EQ(spec.vocab_rows, 1024u);
  EXPECT_EQ(spec.hidden, 192u);
  EXPECT_EQ(spec.query_heads, 6u);
  EXPECT_EQ(spec.kv_heads, 2u);
  EXPECT_EQ(spec.head_dim, 64u);
  EXPECT_EQ(spec.experts, 16u);
  EXPECT_EQ(spec.experts_per_token, 4u);
  EXPECT_EQ(spec.expert_inner, 96u);
  EXPECT_EQ(spec.sliding_window, 128u);
  EXPECT_EQ(spec.max_context, 131072u);
  EXPECT_EQ(spec.norm_eps, 1e-5);
  EXPECT_EQ(spec.rope.theta, 150000);
  const Yarn& yarn = spec.rope.yarn.value();
  EXPECT_EQ(yarn.factor, 32);
  EXPECT_EQ(yarn.original_context, 4096);
  EXPECT_EQ(yarn.beta_fast, 32);
  EXPECT_EQ(yarn.beta_slow, 1);
  EXPECT_FALSE(yarn.truncate);
  EXPECT_NEAR(yarn.attention_factor, 1.3465735902799727, 1e-15);
  EXPECT_EQ(spec.layers,
            (std::vector<LayerSpec>{LayerKind::sliding_attention, LayerKind::full_attention,
                                    LayerKind::sliding_attention, LayerKind::full_attention}));
  EXPECT_EQ(spec.activation, Activation::swiglu_clamped);
  EXPECT_EQ(spec.swiglu_limit, 7);
  EXPECT_EQ(spec.router, RouterRule::topk_then_softmax);
  EXPECT_TRUE(spec.attention_bias && spec.attention_sinks && spec.router_bias && spec.expert_bias);
  EXPECT_FALSE(model->spec.tied_head);
}

TEST(HfConfig, ReadsTheDemo) {
  const auto model = model_from_hf_config(read_json("models/demo/config.json"));
  ASSERT_TRUE(model.ok()) << model.error().message;
  EXPECT_EQ(model->spec.layer_count(), 8u);
  EXPECT_EQ(model->spec.experts, 32u);
}

TEST(HfConfig, DefaultsAreTheReferences) {
  const auto model = with([](Json& c) {
    c.erase("hidden_act");
    c.erase("attention_bias");
    c.erase("tie_word_embeddings");
    c["rope_scaling"].erase("beta_fast");
    c["rope_scaling"]["beta_slow"] = nullptr;
    c["num_hidden_layers"] = 3;
  });
  ASSERT_TRUE(model.ok()) << model.error().message;
  EXPECT_TRUE(model->spec.attention_bias);
  EXPECT_EQ(model->spec.swiglu_limit, 7);
  EXPECT_EQ(model->spec.rope.yarn->beta_fast, 32);
  EXPECT_EQ(model->spec.rope.yarn->beta_slow, 1);
  EXPECT_EQ(model->spec.layers,
            (std::vector<LayerSpec>{LayerKind::sliding_attention, LayerKind::full_attention,
                                    LayerKind::sliding_attention}));
}

TEST(HfConfig, RopeUnderEitherName) {
  const Rope expected = with([](Json&) {})->spec.rope;
  const auto parameters = with([](Json& c) {
    c["rope_parameters"] = c["rope_scaling"];
    c["rope_parameters"]["rope_theta"] = c["rope_theta"];
    c.erase("rope_scaling");
    c.erase("rope_theta");
  });
  ASSERT_TRUE(parameters.ok()) << parameters.error().message;
  EXPECT_EQ(parameters->spec.rope.theta, expected.theta);
  EXPECT_EQ(parameters->spec.rope.yarn->factor, expected.yarn->factor);
  EXPECT_EQ(parameters->spec.rope.yarn->original_context, expected.yarn->original_context);
  EXPECT_EQ(parameters->spec.rope.yarn->truncate, expected.yarn->truncate);
  // Both, when they agree; the older key "type"; an explicit factor.
  EXPECT_TRUE(with([](Json& c) { c["rope_parameters"] = c["rope_scaling"]; }).ok());
  EXPECT_TRUE(with([](Json& c) {
                c["rope_scaling"].erase("rope_type");
                c["rope_scaling"]["type"] = "yarn";
              }).ok());
  EXPECT_EQ(with([](Json& c) {
              c["rope_scaling"]["attention_factor"] = 1.25;
            })->spec.rope.yarn->attention_factor,
            1.25);
  EXPECT_TRUE(
      with([](Json& c) { c["rope_scaling"]["truncate"] = true; })->spec.rope.yarn->truncate);
}

TEST(HfConfig, AcceptsWhatDoesNotTouchTheArithmetic) {
  const auto model = with([](Json& c) {
    c["_name_or_path"] = "openai/gpt-oss-20b";
    c["transformers_version"] = "5.0.0";
    c["dtype"] = "bfloat16";
    c["eos_token_id"] = {1, 2};
    c["router_aux_loss_coef"] = 0.9;
    c["initial_context_length"] = 4096;
    c["experts_per_token"] = 1;
    c["something_unset"] = nullptr;
    c["quantization_config"]["modules_to_not_convert"] = {"lm_head"};
  });
  EXPECT_TRUE(model.ok()) << model.error().message;
  EXPECT_TRUE(with([](Json& c) {
                c["experts_per_token"] = c["num_experts_per_tok"];
                c.erase("num_experts_per_tok");
              }).ok());
  EXPECT_TRUE(with([](Json& c) { c["tie_word_embeddings"] = true; })->spec.tied_head);
}

struct Refused {
  const char* says;
  Change change;
};

TEST(HfConfig, RefusesByName) {
  const Refused cases[] = {
      {"model_type", [](Json& c) { c.erase("model_type"); }},
      {"'llama' is not supported; supported: gpt_oss", [](Json& c) { c["model_type"] = "llama"; }},
      {"config.json has 'rope_interleaved', which this version doesn't know",
       [](Json& c) { c["rope_interleaved"] = true; }},
      {"'\\u001b[0m'", [](Json& c) { c["\x1b[0m"] = 1; }},
      {"neither 'rope_scaling' nor 'rope_parameters'", [](Json& c) { c.erase("rope_scaling"); }},
      {"neither", [](Json& c) { c["rope_scaling"] = nullptr; }},
      {"rope_theta", [](Json& c) { c.erase("rope_theta"); }},
      {"rope_scaling and rope_parameters contradict",
       [](Json& c) {
         c["rope_parameters"] = c["rope_scaling"];
         c["rope_parameters"]["factor"] = 16;
       }},
      {"rope_theta is 10000", [](Json& c) { c["rope_scaling"]["rope_theta"] = 10000; }},
      {"no rope_type", [](Json& c) { c["rope_scaling"].erase("rope_type"); }},
      {"rope_type is 'llama3'", [](Json& c) { c["rope_scaling"]["rope_type"] = "llama3"; }},
      {"type is 'linear'", [](Json& c) { c["rope_scaling"]["type"] = "linear"; }},
      {"'truncate'", [](Json& c) { c["rope_scaling"].erase("truncate"); }},
      {"'truncate'", [](Json& c) { c["rope_scaling"]["truncate"] = "false"; }},
      {"rope_scaling has 'mscale'", [](Json& c) { c["rope_scaling"]["mscale"] = 1.0; }},
      {"has 'mscale_all_dim'", [](Json& c) { c["rope_scaling"]["mscale_all_dim"] = 1.0; }},
      {"'factor'", [](Json& c) { c["rope_scaling"].erase("factor"); }},
      {"'factor'", [](Json& c) { c["rope_scaling"]["factor"] = 0.5; }},
      {"'original_max_position_embeddings'",
       [](Json& c) { c["rope_scaling"].erase("original_max_position_embeddings"); }},
      {"beta_fast 1 must be over", [](Json& c) { c["rope_scaling"]["beta_fast"] = 1; }},
      {"attention factor", [](Json& c) { c["rope_scaling"]["attention_factor"] = 0; }},
      {"'rope_scaling' must be an object", [](Json& c) { c["rope_scaling"] = "yarn"; }},
      {"initial_context_length is 8192", [](Json& c) { c["initial_context_length"] = 8192; }},
      {"num_experts_per_tok is 1 and experts_per_token is 2",
       [](Json& c) { c["experts_per_token"] = 2; }},
      {"num_experts_per_tok", [](Json& c) { c.erase("num_experts_per_tok"); }},
      {"experts_per_token is 3", [](Json& c) { c["num_experts_per_tok"] = 3; }},
      {"hidden_act is 'gelu'", [](Json& c) { c["hidden_act"] = "gelu"; }},
      {"no quantization_config", [](Json& c) { c.erase("quantization_config"); }},
      {"quant_method is 'gptq'",
       [](Json& c) { c["quantization_config"]["quant_method"] = "gptq"; }},
      {"'quant_method' is missing",
       [](Json& c) { c["quantization_config"].erase("quant_method"); }},
      {"quantization_config has 'group_size'",
       [](Json& c) { c["quantization_config"]["group_size"] = 32; }},
      {"layer_types has 1 entries", [](Json& c) { c["layer_types"] = {"full_attention"}; }},
      {"layer_types has '",
       [](Json& c) {
         c["layer_types"] = {"full_attention", "linear_attention"};
       }},
      {"layer_types has '",
       [](Json& c) {
         c["layer_types"] = {1, 2};
       }},
      {"'layer_types' must be an array", [](Json& c) { c["layer_types"] = "full_attention"; }},
      {"'num_hidden_layers'", [](Json& c) { c["num_hidden_layers"] = 1u << 30; }},
      {"'rms_norm_eps'", [](Json& c) { c.erase("rms_norm_eps"); }},
      {"'attention_bias'", [](Json& c) { c["attention_bias"] = 1; }},
      {"'tie_word_embeddings'", [](Json& c) { c["tie_word_embeddings"] = "no"; }},
      {"swiglu_limit", [](Json& c) { c["swiglu_limit"] = 0; }},
      {"not a multiple of kv_heads", [](Json& c) { c["num_key_value_heads"] = 3; }},
  };
  for (const auto& [says, change] : cases) {
    const auto model = with(change);
    ASSERT_FALSE(model.ok()) << says;
    EXPECT_THAT(model.error().message, HasSubstr(says));
    EXPECT_THAT(model.error().message, ::testing::StartsWith("config.json"));
  }
}

TEST(HfConfig, EveryNumberOfEveryKindIsAnErrorAndNotACrash) {
  const Json values[] = {
      -1,  -2147483648ll, 2147483648ull, 9223372036854775808ull, 1e308,         0.5, 0,
      "1", true,          nullptr,       Json::array(),          Json::object()};
  for (const char* key :
       {"head_dim", "hidden_size", "intermediate_size", "max_position_embeddings",
        "num_attention_heads", "num_experts_per_tok", "num_hidden_layers", "num_key_value_heads",
        "num_local_experts", "sliding_window", "vocab_size"}) {
    for (const Json& value : values) {
      const auto model = with([&](Json& c) { c[key] = value; });
      EXPECT_FALSE(model.ok()) << key << " = " << value.dump();
    }
  }
  for (const Json& value : {Json(5), Json("x"), Json::array(), Json()})
    EXPECT_FALSE(model_from_hf_config(value).ok());
}

}  // namespace
}  // namespace wader
