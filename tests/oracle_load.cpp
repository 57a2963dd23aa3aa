#include <algorithm>
#include <cmath>
#include <fstream>
#include <numbers>
#include <set>

#include "oracle_model.h"
#include "oracle_safetensors.h"

namespace wader::testing::oracle {
namespace {

using Json = nlohmann::ordered_json;

// `size` rows from row `begin` of each of `groups` equal groups of rows.
Linear part_of_groups(const Linear& linear, size_t groups, size_t begin, size_t size) {
  const size_t group_rows = linear.weight.rows / groups;
  Linear part{{groups * size, linear.weight.columns, {}}, {}};
  for (size_t r = 0; r < part.weight.rows; ++r) {
    const size_t source = r / size * group_rows + begin + r % size;
    const auto values = linear.weight.row(source);
    part.weight.values.insert(part.weight.values.end(), values.begin(), values.end());
    if (!linear.bias.empty()) part.bias.push_back(linear.bias[source]);
  }
  return part;
}

class Loader {
 public:
  Loader(const std::filesystem::path& checkpoint, const Json& config_patch) {
    config_ = read_json(checkpoint / "config.json");
    config_.merge_patch(config_patch);
    family_ = config_.at("model_type");
    if (family_ == "qwen3_5_moe") {
      const Json outer = config_;
      config_ = outer.at("text_config");
      prefix_ = "model.language_model.";
      if (outer.value("tie_word_embeddings", false) != value("tie_word_embeddings", false))
        fail("tie_word_embeddings and that of text_config differ");
    } else if (family_ != "gpt_oss" && family_ != "qwen3_moe" && family_ != "qwen3_next") {
      fail("unknown model_type " + family_);
    }
    hybrid_ = family_ == "qwen3_next" || family_ == "qwen3_5_moe";
    if (value("hidden_act", std::string("silu")) != "silu") fail("unknown hidden_act");
    if (value("use_sliding_window", false)) fail("use_sliding_window is unknown");
    if (!value("attn_output_gate", true)) fail("attention without its gate is unknown");

    std::set<std::string> files = {"model.safetensors"};
    if (const auto index = checkpoint / "model.safetensors.index.json";
        std::filesystem::exists(index)) {
      const Json shards = read_json(index).at("weight_map");
      files = std::set<std::string>(shards.begin(), shards.end());
    }
    for (const auto& file : files) tensors_.merge(read_safetensors(checkpoint / file));
  }

  Model model() {
    Model m;
    hidden_ = size("hidden_size");
    const size_t vocab = size("vocab_size");
    m.embedding = matrix(prefix_ + "embed_tokens.weight", vocab, hidden_);
    m.head = value("tie_word_embeddings", false) ? m.embedding
                                                 : matrix("lm_head.weight", vocab, hidden_);
    m.final_norm = norm(prefix_ + "norm.weight", hidden_);
    m.norm_eps = config_.at("rms_norm_eps");
    m.rope = rope();
    const auto kinds = layer_kinds();
    for (size_t i = 0; i < kinds.size(); ++i) m.layers.push_back(layer(i, kinds[i]));
    for (const auto& [name, tensor] : tensors_)
      if (!name.starts_with("mtp.") && !name.starts_with("model.visual.")) fail("unknown " + name);
    return m;
  }

 private:
  // -- config.json --

  static Json read_json(const std::filesystem::path& path) {
    std::ifstream file(path);
    if (!file) fail("cannot read " + path.string());
    return Json::parse(file);
  }

  size_t size(const char* key) const { return config_.at(key).get<size_t>(); }

  bool has(const char* key) const { return config_.contains(key) && !config_.at(key).is_null(); }

  template <typename T>
  T value(const char* key, T absent) const {
    return has(key) ? config_.at(key).get<T>() : absent;
  }

  std::vector<std::string> layer_kinds() const {
    const size_t layers = size("num_hidden_layers");
    const size_t interval = value("full_attention_interval", size_t{4});
    std::vector<std::string> kinds;
    for (size_t i = 0; i < layers; ++i) {
      if (hybrid_)
        kinds.push_back((i + 1) % interval == 0 ? "full_attention" : "linear_attention");
      else
        kinds.push_back(family_ == "gpt_oss" && i % 2 == 0 ? "sliding_attention"
                                                           : "full_attention");
    }
    kinds = value("layer_types", kinds);
    if (kinds.size() != layers) fail("layer_types do not name every layer");
    const char* other = hybrid_                ? "linear_attention"
                        : family_ == "gpt_oss" ? "sliding_attention"
                                               : "full_attention";
    for (const auto& kind : kinds)
      if (kind != "full_attention" && kind != other) fail("unknown layer type " + kind);
    return kinds;
  }

  bool is_sparse(size_t layer) const {
    if (family_ == "gpt_oss" || family_ == "qwen3_5_moe") return true;
    const auto dense = value("mlp_only_layers", std::vector<size_t>{});
    return std::find(dense.begin(), dense.end(), layer) == dense.end() && size("num_experts") > 0 &&
           (layer + 1) % value("decoder_sparse_step", size_t{1}) == 0;
  }

  // rope_theta and partial_rotary_factor stand beside or inside the object; both say the same.
  Rope rope() const {
    const char* key = has("rope_parameters") ? "rope_parameters" : "rope_scaling";
    if (has("rope_parameters") && has("rope_scaling")) fail("rope is described twice");
    Json r = value(key, Json::object());
    const std::string type = r.value("rope_type", "default");
    if (type != "default" && type != "yarn") fail("unknown rope_type " + type);
    std::set<std::string> known = {"rope_type", "rope_theta", "partial_rotary_factor",
                                   "mrope_interleaved", "mrope_section"};
    if (type == "yarn")
      known.insert(
          {"factor", "original_max_position_embeddings", "beta_fast", "beta_slow", "truncate"});
    for (const auto& [name, unused] : r.items())
      if (!known.contains(name)) fail("unknown rope setting " + name);
    for (const char* name : {"rope_theta", "partial_rotary_factor"}) {
      if (!has(name)) continue;
      if (r.contains(name) && r.at(name) != config_.at(name)) fail(std::string(name) + " differ");
      r[name] = config_.at(name);
    }
    const double theta = r.at("rope_theta"), head_dim = config_.at("head_dim");
    const double d = std::floor(head_dim * r.value("partial_rotary_factor", hybrid_ ? 0.25 : 1.0));
    Rope rope;
    for (double i = 0; i < d / 2; ++i)
      rope.inverse_frequencies.push_back(std::pow(theta, -2 * i / d));
    if (type == "yarn") stretch(r, theta, d, rope);
    return rope;
  }

  // YaRN, https://arxiv.org/abs/2309.00071, with bounds that are not rounded.
  static void stretch(const Json& r, double theta, double d, Rope& rope) {
    if (r.value("truncate", true)) fail("YaRN with rounded bounds is unknown");
    const double factor = r.at("factor"), original = r.at("original_max_position_embeddings");
    const auto dim_of_rotations = [&](double rotations) {
      return d * std::log(original / (rotations * 2 * std::numbers::pi)) / (2 * std::log(theta));
    };
    const double low = dim_of_rotations(r.at("beta_fast"));
    const double high = dim_of_rotations(r.at("beta_slow"));
    for (size_t i = 0; i < rope.inverse_frequencies.size(); ++i) {
      const double ramp = std::clamp((static_cast<double>(i) - low) / (high - low), 0.0, 1.0);
      rope.inverse_frequencies[i] *= (1 - ramp) + ramp / factor;
    }
    rope.magnitude = 0.1 * std::log(factor) + 1;
  }

  // -- tensors --

  RawTensor take(const std::string& name, const std::vector<size_t>& shape) {
    const auto node = tensors_.extract(name);
    if (node.empty()) fail("no tensor " + name);
    if (node.mapped().shape != shape) fail("shape of " + name);
    return node.mapped();
  }

  Vector vector(const std::string& name, size_t elements) {
    return values_of(take(name, {elements}));
  }

  Matrix matrix(const std::string& name, size_t rows, size_t columns) {
    return {rows, columns, values_of(take(name, {rows, columns}))};
  }

  // The hybrids store the weights of most norms minus 1.
  Vector norm(const std::string& name, size_t elements) {
    Vector weight = vector(name, elements);
    for (double& w : weight) w += hybrid_ ? 1 : 0;
    return weight;
  }

  Linear linear(const std::string& name, size_t rows, size_t columns, bool biased = false) {
    return {matrix(name + ".weight", rows, columns),
            biased ? vector(name + ".bias", rows) : Vector()};
  }

  Layer layer(size_t index, const std::string& kind) {
    const std::string name = prefix_ + "layers." + std::to_string(index) + ".";
    Layer layer;
    layer.mixer_norm = norm(name + "input_layernorm.weight", hidden_);
    layer.ffn_norm = norm(name + "post_attention_layernorm.weight", hidden_);
    if (kind == "linear_attention")
      layer.delta_net = delta_net(name + "linear_attn.");
    else
      layer.attention = attention(name + "self_attn.", kind == "sliding_attention");
    if (is_sparse(index))
      layer.moe = moe(name + "mlp.");
    else
      layer.dense = ffn(name + "mlp.", size("intermediate_size"));
    return layer;
  }

  Attention attention(const std::string& name, bool sliding) {
    Attention a;
    a.heads = size("num_attention_heads");
    a.kv_heads = size("num_key_value_heads");
    a.head_dim = size("head_dim");
    a.window = sliding ? size("sliding_window") : 0;
    const size_t width = a.heads * a.head_dim, kv_width = a.kv_heads * a.head_dim;
    const bool biased = value("attention_bias", family_ == "gpt_oss");
    a.q = linear(name + "q_proj", hybrid_ ? 2 * width : width, hidden_, biased);
    a.k = linear(name + "k_proj", kv_width, hidden_, biased);
    a.v = linear(name + "v_proj", kv_width, hidden_, biased);
    a.o = linear(name + "o_proj", hidden_, width, biased);
    if (hybrid_) {  // per head [query | gate]
      a.gate = part_of_groups(a.q, a.heads, a.head_dim, a.head_dim);
      a.q = part_of_groups(a.q, a.heads, 0, a.head_dim);
    }
    if (family_ == "gpt_oss") {
      a.sinks = vector(name + "sinks", a.heads);
    } else {
      a.q_norm = norm(name + "q_norm.weight", a.head_dim);
      a.k_norm = norm(name + "k_norm.weight", a.head_dim);
    }
    return a;
  }

  DeltaNet delta_net(const std::string& name) {
    DeltaNet d;
    d.key_heads = size("linear_num_key_heads");
    d.value_heads = size("linear_num_value_heads");
    d.dk = size("linear_key_head_dim");
    d.dv = size("linear_value_head_dim");
    const size_t keys = d.key_heads * d.dk, values = d.value_heads * d.dv;
    if (family_ == "qwen3_next") {  // per key head [q | k | v | z] and [b | a]
      const size_t rep = d.value_heads / d.key_heads, v_rows = rep * d.dv;
      const Linear qkvz = linear(name + "in_proj_qkvz", 2 * keys + 2 * values, hidden_);
      d.q = part_of_groups(qkvz, d.key_heads, 0, d.dk);
      d.k = part_of_groups(qkvz, d.key_heads, d.dk, d.dk);
      d.v = part_of_groups(qkvz, d.key_heads, 2 * d.dk, v_rows);
      d.z = part_of_groups(qkvz, d.key_heads, 2 * d.dk + v_rows, v_rows);
      const Linear ba = linear(name + "in_proj_ba", 2 * d.value_heads, hidden_);
      d.b = part_of_groups(ba, d.key_heads, 0, rep);
      d.a = part_of_groups(ba, d.key_heads, rep, rep);
    } else {
      const Linear qkv = linear(name + "in_proj_qkv", 2 * keys + values, hidden_);
      d.q = part_of_groups(qkv, 1, 0, keys);
      d.k = part_of_groups(qkv, 1, keys, keys);
      d.v = part_of_groups(qkv, 1, 2 * keys, values);
      d.z = linear(name + "in_proj_z", values, hidden_);
      d.b = linear(name + "in_proj_b", d.value_heads, hidden_);
      d.a = linear(name + "in_proj_a", d.value_heads, hidden_);
    }
    const size_t channels = 2 * keys + values, kernel = size("linear_conv_kernel_dim");
    d.conv = {channels, kernel, values_of(take(name + "conv1d.weight", {channels, 1, kernel}))};
    d.a_log = vector(name + "A_log", d.value_heads);
    d.dt_bias = vector(name + "dt_bias", d.value_heads);
    d.norm = vector(name + "norm.weight", d.dv);  // not minus 1
    d.out = linear(name + "out_proj", hidden_, values);
    return d;
  }

  Ffn ffn(const std::string& name, size_t inner) {
    return {linear(name + "gate_proj", inner, hidden_), linear(name + "up_proj", inner, hidden_),
            linear(name + "down_proj", hidden_, inner), std::nullopt};
  }

  Moe moe(const std::string& name) {
    const bool gpt_oss = family_ == "gpt_oss";
    const size_t experts = size(gpt_oss ? "num_local_experts" : "num_experts");
    Moe m;
    m.router = linear(name + (gpt_oss ? "router" : "gate"), experts, hidden_, gpt_oss);
    m.top_k = size("num_experts_per_tok");
    m.renormalise = family_ == "qwen3_moe"    ? value("norm_topk_prob", false)
                    : family_ == "qwen3_next" ? value("norm_topk_prob", true)
                                              : true;
    if (gpt_oss) {
      m.experts = mxfp4_experts(name + "experts.", experts);
    } else if (family_ == "qwen3_5_moe") {
      m.experts = fused_experts(name + "experts.", experts);
    } else {
      for (size_t e = 0; e < experts; ++e)
        m.experts.push_back(
            ffn(name + "experts." + std::to_string(e) + ".", size("moe_intermediate_size")));
    }
    if (hybrid_) {
      m.shared = ffn(name + "shared_expert.", size("shared_expert_intermediate_size"));
      m.shared_gate = linear(name + "shared_expert_gate", 1, hidden_);
    }
    return m;
  }

  // All gate rows of an expert, then all up rows.
  std::vector<Ffn> fused_experts(const std::string& name, size_t experts) {
    const size_t inner = size("moe_intermediate_size");
    const Vector gate_up = values_of(take(name + "gate_up_proj", {experts, 2 * inner, hidden_}));
    const Vector down = values_of(take(name + "down_proj", {experts, hidden_, inner}));
    std::vector<Ffn> ffns;
    for (size_t e = 0; e < experts; ++e) {
      const Linear both{slice(gate_up, e, 2 * inner, hidden_), {}};
      ffns.push_back({part_of_groups(both, 1, 0, inner),
                      part_of_groups(both, 1, inner, inner),
                      {slice(down, e, hidden_, inner), {}},
                      std::nullopt});
    }
    return ffns;
  }

  // A gate row, its up row, the next gate row and so on.
  std::vector<Ffn> mxfp4_experts(const std::string& name, size_t experts) {
    const size_t inner = size("intermediate_size");
    const Vector gate_up = mxfp4(name + "gate_up_proj", experts, 2 * inner, hidden_);
    const Vector down = mxfp4(name + "down_proj", experts, hidden_, inner);
    const Vector gate_up_bias = values_of(take(name + "gate_up_proj_bias", {experts, 2 * inner}));
    const Vector down_bias = values_of(take(name + "down_proj_bias", {experts, hidden_}));
    const double limit = config_.at("swiglu_limit");
    std::vector<Ffn> ffns;
    for (size_t e = 0; e < experts; ++e) {
      const Linear both{slice(gate_up, e, 2 * inner, hidden_),
                        slice(gate_up_bias, e, 2 * inner, 1).values};
      ffns.push_back({part_of_groups(both, inner, 0, 1),
                      part_of_groups(both, inner, 1, 1),
                      {slice(down, e, hidden_, inner), slice(down_bias, e, hidden_, 1).values},
                      limit});
    }
    return ffns;
  }

  static Matrix slice(const Vector& values, size_t index, size_t rows, size_t columns) {
    const auto begin = values.begin() + static_cast<ptrdiff_t>(index * rows * columns);
    return {rows, columns, {begin, begin + static_cast<ptrdiff_t>(rows * columns)}};
  }

  // OCP Microscaling Formats 1.0: 32 E2M1 values, low nibble first, share one power of two.
  Vector mxfp4(const std::string& name, size_t experts, size_t rows, size_t columns) {
    static constexpr double kMagnitudes[] = {0, 0.5, 1, 1.5, 2, 3, 4, 6};
    const auto blocks = take(name + "_blocks", {experts, rows, columns / 32, 16}).bytes;
    const auto scales = take(name + "_scales", {experts, rows, columns / 32}).bytes;
    Vector values(2 * blocks.size());
    for (size_t i = 0; i < values.size(); ++i) {
      const int code = blocks[i / 2] >> (i % 2 * 4) & 15, exponent = scales[i / 32];
      if (exponent == 255) fail("NaN in " + name);
      values[i] = std::ldexp(kMagnitudes[code & 7], exponent - 127) * (code & 8 ? -1 : 1);
    }
    return values;
  }

  Json config_;
  std::string family_, prefix_ = "model.";
  bool hybrid_ = false;  // layers of DeltaNet and of gated attention
  size_t hidden_ = 0;
  RawTensors tensors_;  // those not taken yet
};

}  // namespace

Model load_model(const std::filesystem::path& checkpoint, const Json& config_patch) {
  return Loader(checkpoint, config_patch).model();
}

}  // namespace wader::testing::oracle
