#include "oracle_variants.h"

#include <algorithm>
#include <array>
#include <bit>
#include <cmath>
#include <fstream>
#include <random>
#include <stdexcept>

#include "oracle_safetensors.h"

namespace wader::testing {
namespace {

using Json = nlohmann::ordered_json;

// ---- Settings ----

const char* const kGptOss = R"({
  "architectures": ["GptOssForCausalLM"], "model_type": "gpt_oss", "attention_bias": true,
  "eos_token_id": 2, "pad_token_id": 0, "experts_per_token": 4, "head_dim": 32, "hidden_act": "silu",
  "hidden_size": 96, "initial_context_length": 4096, "intermediate_size": 64,
  "max_position_embeddings": 131072, "num_attention_heads": 4, "num_experts_per_tok": 4,
  "num_hidden_layers": 3, "num_key_value_heads": 2, "num_local_experts": 10, "rms_norm_eps": 1e-05,
  "rope_scaling": {"beta_fast": 32.0, "beta_slow": 1.0, "factor": 32.0,
    "original_max_position_embeddings": 4096, "rope_type": "yarn", "truncate": false},
  "rope_theta": 150000, "sliding_window": 128, "swiglu_limit": 7.0, "tie_word_embeddings": false,
  "vocab_size": 320, "layer_types": ["sliding_attention", "full_attention", "sliding_attention"],
  "quantization_config": {"modules_to_not_convert": ["model.layers.*.self_attn",
    "model.layers.*.mlp.router", "model.embed_tokens", "lm_head"], "quant_method": "mxfp4"}})";

const char* const kQwen3Moe = R"({
  "architectures": ["Qwen3MoeForCausalLM"], "model_type": "qwen3_moe", "attention_bias": false,
  "bos_token_id": 1, "eos_token_id": 2, "decoder_sparse_step": 1, "head_dim": 32,
  "hidden_act": "silu", "hidden_size": 96, "intermediate_size": 160,
  "max_position_embeddings": 40960, "mlp_only_layers": [], "moe_intermediate_size": 32,
  "norm_topk_prob": true, "num_attention_heads": 4, "num_experts": 12, "num_experts_per_tok": 4,
  "num_hidden_layers": 3, "num_key_value_heads": 2, "rms_norm_eps": 1e-06, "rope_scaling": null,
  "rope_theta": 1000000.0, "sliding_window": null, "tie_word_embeddings": false,
  "torch_dtype": "bfloat16", "use_sliding_window": false, "vocab_size": 320})";

const char* const kQwen3Next = R"({
  "architectures": ["Qwen3NextForCausalLM"], "model_type": "qwen3_next", "bos_token_id": 1,
  "eos_token_id": 2, "decoder_sparse_step": 1, "full_attention_interval": 2, "head_dim": 64,
  "hidden_act": "silu", "hidden_size": 96, "intermediate_size": 160, "linear_conv_kernel_dim": 4,
  "linear_key_head_dim": 32, "linear_num_key_heads": 2, "linear_num_value_heads": 4,
  "linear_value_head_dim": 32, "max_position_embeddings": 262144, "mlp_only_layers": [],
  "moe_intermediate_size": 32, "norm_topk_prob": true, "num_attention_heads": 4, "num_experts": 12,
  "num_experts_per_tok": 5, "num_hidden_layers": 4, "num_key_value_heads": 2,
  "partial_rotary_factor": 0.25, "rms_norm_eps": 1e-06, "rope_scaling": null,
  "rope_theta": 10000000, "shared_expert_intermediate_size": 32, "tie_word_embeddings": false,
  "torch_dtype": "bfloat16", "use_sliding_window": false, "vocab_size": 320})";

const char* const kQwen35Moe = R"({
  "architectures": ["Qwen3_5MoeForConditionalGeneration"], "model_type": "qwen3_5_moe",
  "text_config": {
    "attention_bias": false, "attn_output_gate": true, "bos_token_id": 1, "dtype": "bfloat16",
    "eos_token_id": 2, "full_attention_interval": 2, "head_dim": 64, "hidden_act": "silu",
    "hidden_size": 96, "linear_conv_kernel_dim": 4, "linear_key_head_dim": 32,
    "linear_num_key_heads": 2, "linear_num_value_heads": 4, "linear_value_head_dim": 32,
    "mamba_ssm_dtype": "float32", "max_position_embeddings": 262144,
    "model_type": "qwen3_5_moe_text", "moe_intermediate_size": 32, "num_attention_heads": 4,
    "num_experts": 12, "num_experts_per_tok": 4, "num_hidden_layers": 4, "num_key_value_heads": 2,
    "rms_norm_eps": 1e-06, "rope_parameters": {"mrope_interleaved": true,
      "mrope_section": [3, 3, 2], "partial_rotary_factor": 0.25, "rope_theta": 10000000,
      "rope_type": "default"},
    "shared_expert_intermediate_size": 32, "tie_word_embeddings": false, "vocab_size": 320},
  "tie_word_embeddings": false})";

}  // namespace

Json patched(Json config, const Json& patch) {
  if (!config.contains("text_config")) {
    config.merge_patch(patch);
    return config;
  }
  config["text_config"].merge_patch(patch);
  if (patch.contains("tie_word_embeddings"))
    config["tie_word_embeddings"] = patch["tie_word_embeddings"];
  return config;
}

std::vector<Variant> all_variants() {
  const auto variant = [](const char* name, const char* family, const char* patch) {
    return Variant{name, patched(Json::parse(family), Json::parse(patch))};
  };
  std::vector<Variant> all = {
      // Windows shorter than a prompt; full attention first; YaRN under the newer key.
      variant("gpt-oss-short-window", kGptOss,
              R"({"sliding_window": 20, "num_key_value_heads": 1})"),
      variant("gpt-oss-rope-parameters", kGptOss, R"({"rope_scaling": null, "rope_theta": null,
        "rope_parameters": {"rope_theta": 150000, "beta_fast": 32.0, "beta_slow": 1.0,
          "factor": 32.0, "original_max_position_embeddings": 4096, "rope_type": "yarn",
          "truncate": false},
        "layer_types": ["full_attention", "sliding_attention", "full_attention"],
        "sliding_window": 33, "swiglu_limit": 2.0})"),

      variant("qwen3-moe-renormalised", kQwen3Moe, R"({"norm_topk_prob": true})"),
      variant("qwen3-moe-not-renormalised", kQwen3Moe, R"({"norm_topk_prob": false})"),
      variant("qwen3-moe-renormalised-absent", kQwen3Moe, R"({"norm_topk_prob": null})"),
      variant("qwen3-moe-one-kv-head", kQwen3Moe, R"({"num_key_value_heads": 1,
        "num_attention_heads": 3, "hidden_size": 160, "moe_intermediate_size": 64,
        "num_experts": 7, "vocab_size": 256})"),
      variant("qwen3-moe-first-layer-dense", kQwen3Moe, R"({"mlp_only_layers": [0]})"),
      variant("qwen3-moe-sparse-step", kQwen3Moe, R"({"decoder_sparse_step": 2,
        "mlp_only_layers": [3], "num_hidden_layers": 4})"),
      variant("qwen3-moe-tied", kQwen3Moe, R"({"tie_word_embeddings": true})"),
      variant("qwen3-moe-attention-bias", kQwen3Moe, R"({"attention_bias": true})"),

      variant("qwen3-next-interval-2", kQwen3Next, R"({"full_attention_interval": 2})"),
      variant("qwen3-next-equal-heads", kQwen3Next, R"({"linear_num_key_heads": 3,
        "linear_num_value_heads": 3, "full_attention_interval": 3})"),
      variant("qwen3-next-three-to-one", kQwen3Next, R"({"linear_num_key_heads": 2,
        "linear_num_value_heads": 6, "hidden_size": 160, "moe_intermediate_size": 64,
        "num_experts": 4, "num_experts_per_tok": 2, "num_hidden_layers": 3,
        "full_attention_interval": 3, "vocab_size": 256})"),
      variant("qwen3-next-half-rotary", kQwen3Next, R"({"partial_rotary_factor": 0.5})"),
      variant("qwen3-next-not-renormalised", kQwen3Next, R"({"norm_topk_prob": false})"),
      variant("qwen3-next-faint-keys", kQwen3Next, "{}"),
      variant("qwen3-next-dense-layer", kQwen3Next, R"({"mlp_only_layers": [1]})"),

      variant("qwen3.5-moe-layer-types", kQwen35Moe, R"({"layer_types": ["full_attention",
        "linear_attention", "linear_attention", "full_attention"]})"),
      variant("qwen3.5-moe-full-rotary", kQwen35Moe, R"({"rope_parameters": {
        "partial_rotary_factor": 1.0, "mrope_section": [11, 11, 10]}})"),
      variant("qwen3.5-moe-three-to-one", kQwen35Moe, R"({"linear_num_key_heads": 2,
        "linear_num_value_heads": 6, "num_key_value_heads": 1, "hidden_size": 160,
        "moe_intermediate_size": 64, "shared_expert_intermediate_size": 96, "num_experts": 4,
        "num_experts_per_tok": 2, "num_hidden_layers": 3, "full_attention_interval": 3,
        "vocab_size": 256})"),
      variant("qwen3.5-moe-tied", kQwen35Moe, R"({"tie_word_embeddings": true})"),
      variant("qwen3.5-moe-narrow-keys", kQwen35Moe, R"({"linear_key_head_dim": 16,
        "linear_conv_kernel_dim": 3})"),
  };
  for (Variant& v : all) {
    v.sharded = v.name == "qwen3-moe-one-kv-head" || v.name == "qwen3-next-three-to-one" ||
                v.name == "qwen3.5-moe-three-to-one";
    // Keys so short that the epsilon of their norm counts, and where it stands.
    if (v.name == "qwen3-next-faint-keys") v.conv_deviation = 0.001;
    v.float32_state_weights = v.name == "qwen3.5-moe-narrow-keys";
  }
  return all;
}

namespace {

// ---- Noise ----

class Noise {
 public:
  explicit Noise(uint32_t seed) : bits_(seed) {}

  double uniform() { return std::ldexp(static_cast<double>(bits_()), -32); }  // [0, 1)
  double normal() {  // near enough: the sum of twelve has mean 6, variance 1 and exact arithmetic
    double sum = -6;
    for (int i = 0; i < 12; ++i) sum += uniform();
    return sum;
  }
  uint8_t byte() { return static_cast<uint8_t>(bits_() >> 24); }

 private:
  std::mt19937 bits_;  // the standard fixes its numbers
};

uint16_t to_bf16(double value) {
  const uint32_t bits = std::bit_cast<uint32_t>(static_cast<float>(value));
  return static_cast<uint16_t>((bits + 0x7fff + (bits >> 16 & 1)) >> 16);  // nearest, ties to even
}

template <typename T>
void append(std::vector<uint8_t>& bytes, T value) {
  const auto raw = std::bit_cast<std::array<uint8_t, sizeof(T)>>(value);
  bytes.insert(bytes.end(), raw.begin(), raw.end());
}

// ---- Tensors of a config ----

class Maker {
 public:
  explicit Maker(const Variant& variant)
      : variant_(variant),
        config_(variant.config.contains("text_config") ? variant.config["text_config"]
                                                       : variant.config),
        family_(variant.config["model_type"]),
        hybrid_(family_ == "qwen3_next" || family_ == "qwen3_5_moe"),
        hidden_(size("hidden_size")),
        noise_(variant.seed) {}

  RawTensors tensors() {
    const std::string prefix = family_ == "qwen3_5_moe" ? "model.language_model." : "model.";
    const size_t vocab = size("vocab_size");
    if (config_["tie_word_embeddings"]) {
      matrix(prefix + "embed_tokens.weight", {vocab, hidden_});
    } else {
      normal(prefix + "embed_tokens.weight", {vocab, hidden_}, 0, 1);
      matrix("lm_head.weight", {vocab, hidden_});
    }
    norm(prefix + "norm.weight", hidden_);
    for (size_t i = 0; i < size("num_hidden_layers"); ++i)
      layer(prefix + "layers." + std::to_string(i) + ".", i);
    return std::move(tensors_);
  }

 private:
  size_t size(const char* key) const { return config_.at(key).get<size_t>(); }

  template <typename Draw>
  void fill(const std::string& name, std::vector<size_t> shape, bool float32, Draw draw) {
    RawTensor tensor{float32 ? "F32" : "BF16", std::move(shape), {}};
    size_t elements = 1;
    for (const size_t extent : tensor.shape) elements *= extent;
    for (size_t i = 0; i < elements; ++i) {
      const double value = draw();
      if (float32)
        append(tensor.bytes, static_cast<float>(value));
      else
        append(tensor.bytes, to_bf16(value));
    }
    if (!tensors_.emplace(name, std::move(tensor)).second) throw std::logic_error(name + " twice");
  }

  void normal(const std::string& name, std::vector<size_t> shape, double mean, double deviation,
              bool float32 = false) {
    fill(name, std::move(shape), float32, [&] { return mean + deviation * noise_.normal(); });
  }

  // Of normalised inputs, outputs with deviation `gain`.
  void matrix(const std::string& name, std::vector<size_t> shape, double gain = 1.3) {
    const double inputs = static_cast<double>(shape.back());
    normal(name, std::move(shape), 0, gain / std::sqrt(inputs));
  }

  void linear(const std::string& name, size_t rows, size_t columns, bool biased = false) {
    matrix(name + ".weight", {rows, columns});
    if (biased) normal(name + ".bias", {rows}, 0, 0.3);
  }

  void norm(const std::string& name, size_t elements) {
    normal(name, {elements}, hybrid_ ? 0 : 1, 0.15);
  }

  bool is_full_attention(size_t layer) const {
    if (config_.contains("layer_types")) return config_["layer_types"][layer] == "full_attention";
    return (layer + 1) % size("full_attention_interval") == 0;
  }

  bool is_dense(size_t layer) const {
    if (!config_.contains("decoder_sparse_step")) return false;
    const auto dense = config_["mlp_only_layers"].get<std::vector<size_t>>();
    return std::count(dense.begin(), dense.end(), layer) > 0 ||
           (layer + 1) % size("decoder_sparse_step") != 0;
  }

  void layer(const std::string& name, size_t index) {
    norm(name + "input_layernorm.weight", hidden_);
    norm(name + "post_attention_layernorm.weight", hidden_);
    if (hybrid_ && !is_full_attention(index))
      delta_net(name + "linear_attn.");
    else
      attention(name + "self_attn.");
    if (is_dense(index))
      ffn(name + "mlp.", size("intermediate_size"));
    else
      moe(name + "mlp.");
  }

  void attention(const std::string& name) {
    const size_t head_dim = size("head_dim"), width = size("num_attention_heads") * head_dim;
    const size_t kv_width = size("num_key_value_heads") * head_dim;
    const bool biased = config_.value("attention_bias", false);
    linear(name + "q_proj", hybrid_ ? 2 * width : width, hidden_, biased);
    linear(name + "k_proj", kv_width, hidden_, biased);
    linear(name + "v_proj", kv_width, hidden_, biased);
    linear(name + "o_proj", hidden_, width, biased);
    if (family_ == "gpt_oss") {
      normal(name + "sinks", {size("num_attention_heads")}, 0, 0.8);
    } else {
      norm(name + "q_norm.weight", head_dim);
      norm(name + "k_norm.weight", head_dim);
    }
  }

  void delta_net(const std::string& name) {
    const size_t value_heads = size("linear_num_value_heads");
    const size_t keys = size("linear_num_key_heads") * size("linear_key_head_dim");
    const size_t dv = size("linear_value_head_dim"), values = value_heads * dv;
    if (family_ == "qwen3_next") {
      linear(name + "in_proj_qkvz", 2 * keys + 2 * values, hidden_);
      linear(name + "in_proj_ba", 2 * value_heads, hidden_);
    } else {
      linear(name + "in_proj_qkv", 2 * keys + values, hidden_);
      linear(name + "in_proj_z", values, hidden_);
      linear(name + "in_proj_b", value_heads, hidden_);
      linear(name + "in_proj_a", value_heads, hidden_);
    }
    normal(name + "conv1d.weight", {2 * keys + values, 1, size("linear_conv_kernel_dim")}, 0,
           variant_.conv_deviation);
    // As models are initialised: A in 1 … 16, and a step softplus(dt_bias) in 0.001 … 0.1.
    const bool float32 = variant_.float32_state_weights;
    fill(name + "A_log", {value_heads}, float32,
         [&] { return std::log(1 + 15 * noise_.uniform()); });
    fill(name + "dt_bias", {value_heads}, false, [&] {
      const double step = 0.001 * std::pow(100, noise_.uniform());
      return std::log(std::expm1(step));
    });
    normal(name + "norm.weight", {dv}, 1, 0.15, float32);
    linear(name + "out_proj", hidden_, values);
  }

  void ffn(const std::string& name, size_t inner) {
    linear(name + "gate_proj", inner, hidden_);
    linear(name + "up_proj", inner, hidden_);
    linear(name + "down_proj", hidden_, inner);
  }

  void moe(const std::string& name) {
    constexpr double kRouterGain = 3;  // clear margins
    if (family_ == "gpt_oss") {
      const size_t experts = size("num_local_experts"), inner = size("intermediate_size");
      matrix(name + "router.weight", {experts, hidden_}, kRouterGain);
      normal(name + "router.bias", {experts}, 0, 0.3);
      mxfp4(name + "experts.gate_up_proj", experts, 2 * inner, hidden_);
      mxfp4(name + "experts.down_proj", experts, hidden_, inner);
      return;
    }
    const size_t experts = size("num_experts"), inner = size("moe_intermediate_size");
    matrix(name + "gate.weight", {experts, hidden_}, kRouterGain);
    if (family_ == "qwen3_5_moe") {
      matrix(name + "experts.gate_up_proj", {experts, 2 * inner, hidden_});
      matrix(name + "experts.down_proj", {experts, hidden_, inner});
    } else {
      for (size_t e = 0; e < experts; ++e) ffn(name + "experts." + std::to_string(e) + ".", inner);
    }
    if (hybrid_) {
      ffn(name + "shared_expert.", size("shared_expert_intermediate_size"));
      linear(name + "shared_expert_gate", 1, hidden_);
    }
  }

  // Random codes have a deviation of 2.93 times their scale, which is one of two powers of two.
  void mxfp4(const std::string& name, size_t experts, size_t rows, size_t columns) {
    RawTensor blocks{"U8", {experts, rows, columns / 32, 16}, {}};
    RawTensor scales{"U8", {experts, rows, columns / 32}, {}};
    const double scale = 1.3 / std::sqrt(static_cast<double>(columns)) / 2.93;
    const int exponent = 127 + static_cast<int>(std::floor(std::log2(scale)));
    for (size_t i = 0; i < experts * rows * columns / 32; ++i) {
      scales.bytes.push_back(static_cast<uint8_t>(exponent + noise_.byte() % 2));
      for (int j = 0; j < 16; ++j) blocks.bytes.push_back(noise_.byte());
    }
    tensors_[name + "_blocks"] = std::move(blocks);
    tensors_[name + "_scales"] = std::move(scales);
    normal(name + "_bias", {experts, rows}, 0, 0.3);
  }

  const Variant& variant_;
  const Json config_;
  const std::string family_;
  const bool hybrid_;
  const size_t hidden_;
  Noise noise_;
  RawTensors tensors_;
};

void write_json(const std::filesystem::path& path, const Json& json) {
  std::ofstream file(path);
  file.exceptions(std::ios::failbit | std::ios::badbit);
  file << json.dump(2) << "\n";
}

// Every other tensor in the one or the other file: experts are spread over both, as in releases.
void write_shards(const std::filesystem::path& directory, const RawTensors& tensors) {
  const std::string names[] = {"model-00001-of-00002.safetensors",
                               "model-00002-of-00002.safetensors"};
  RawTensors shards[2];
  Json index = {{"metadata", {{"total_size", 0}}}, {"weight_map", Json::object()}};
  size_t total_bytes = 0, i = 0;
  for (const auto& [name, tensor] : tensors) {
    index["weight_map"][name] = names[i % 2];
    shards[i++ % 2][name] = tensor;
    total_bytes += tensor.bytes.size();
  }
  index["metadata"]["total_size"] = total_bytes;
  write_json(directory / "model.safetensors.index.json", index);
  for (size_t s = 0; s < 2; ++s) write_safetensors(directory / names[s], shards[s]);
}

}  // namespace

std::filesystem::path write_checkpoint(const Variant& variant,
                                       const std::filesystem::path& parent) {
  const auto directory = parent / variant.name;
  if (!std::filesystem::create_directories(directory))
    throw std::runtime_error(directory.string() + " exists");
  write_json(directory / "config.json", variant.config);
  write_json(directory / "generation_config.json",
             {{"bos_token_id", 1}, {"eos_token_id", {2}}, {"pad_token_id", 0}});
  const RawTensors tensors = Maker(variant).tensors();
  if (variant.sharded)
    write_shards(directory, tensors);
  else
    write_safetensors(directory / "model.safetensors", tensors);
  return directory;
}

}  // namespace wader::testing
