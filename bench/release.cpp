#include "release.h"

#include <map>
#include <string>
#include <vector>

#include "base/error.h"
#include "base/json.h"
#include "checkpoint/safetensors_writer.h"
#include "container/manifest.h"
#include "tensor/float_formats.h"
#include "tensor/matrix.h"

namespace wader::bench {
namespace {

namespace fs = std::filesystem;

// GPT-OSS's names of what stands in trunk.bin; a layer's after "model.layers.N.".
const std::map<std::string, std::string>& released_names() {
  static const std::map<std::string, std::string> kNames = {
      {"embed", "model.embed_tokens.weight"},
      {"final_norm", "model.norm.weight"},
      {"head", "lm_head.weight"},
      {"mixer_norm", "input_layernorm.weight"},
      {"attn.q.weight", "self_attn.q_proj.weight"},
      {"attn.q.bias", "self_attn.q_proj.bias"},
      {"attn.k.weight", "self_attn.k_proj.weight"},
      {"attn.k.bias", "self_attn.k_proj.bias"},
      {"attn.v.weight", "self_attn.v_proj.weight"},
      {"attn.v.bias", "self_attn.v_proj.bias"},
      {"attn.sinks", "self_attn.sinks"},
      {"attn.o.weight", "self_attn.o_proj.weight"},
      {"attn.o.bias", "self_attn.o_proj.bias"},
      {"ffn_norm", "post_attention_layernorm.weight"},
      {"router.weight", "mlp.router.weight"},
      {"router.bias", "mlp.router.bias"}};
  return kNames;
}

Result<std::string> released_name(const std::string& name) {
  std::string prefix, rest = name;
  if (name.starts_with("layers.")) {
    const size_t dot = name.find('.', 7);
    prefix = "model." + name.substr(0, dot + 1);
    rest = name.substr(dot + 1);
  }
  const auto found = released_names().find(rest);
  if (found == released_names().end())
    return unsupported_error("{} is no tensor of GPT-OSS: only its shapes can be released", name);
  return prefix + found->second;
}

// "gate_up.blocks" of layer 3 → "model.layers.3.mlp.experts.gate_up_proj_blocks".
std::string section_name(uint32_t layer, const std::string& section) {
  const size_t dot = section.find('.');
  return fmt::format("model.layers.{}.mlp.experts.{}_proj_{}", layer, section.substr(0, dot),
                     section.substr(dot + 1));
}

Json config_of(const ArchitectureSpec& s) {
  Json layers = Json::array();
  for (const LayerSpec& layer : s.layers)
    layers.push_back(layer.mixer == LayerKind::sliding_attention ? "sliding_attention"
                                                                 : "full_attention");
  Json config = {{"architectures", {"GptOssForCausalLM"}},
                 {"model_type", "gpt_oss"},
                 {"attention_bias", s.attention_bias},
                 {"head_dim", s.head_dim},
                 {"hidden_act", "silu"},
                 {"hidden_size", s.hidden},
                 {"intermediate_size", s.expert_inner},
                 {"max_position_embeddings", s.max_context},
                 {"num_attention_heads", s.query_heads},
                 {"num_experts_per_tok", s.experts_per_token},
                 {"num_hidden_layers", s.layer_count()},
                 {"num_key_value_heads", s.kv_heads},
                 {"num_local_experts", s.experts},
                 {"rms_norm_eps", s.norm_eps},
                 {"rope_theta", s.rope.theta},
                 {"sliding_window", s.sliding_window},
                 {"swiglu_limit", s.swiglu_limit},
                 {"tie_word_embeddings", s.tied_head},
                 {"vocab_size", s.vocab_rows},
                 {"layer_types", std::move(layers)},
                 {"quantization_config", {{"quant_method", "mxfp4"}}}};
  if (s.rope.yarn)
    config["rope_scaling"] = {{"rope_type", "yarn"},
                              {"factor", s.rope.yarn->factor},
                              {"original_max_position_embeddings", s.rope.yarn->original_context},
                              {"beta_fast", s.rope.yarn->beta_fast},
                              {"beta_slow", s.rope.yarn->beta_slow},
                              {"truncate", s.rope.yarn->truncate}};
  return config;
}

class Release {
 public:
  Release(const Container& container, fs::path directory)
      : container_(container), directory_(std::move(directory)) {}

  Result<uint64_t> run() {
    const ArchitectureSpec& spec = container_.spec();
    if (spec.family != "gpt_oss" ||
        container_.manifest().experts.format != ExpertFormat{DType::mxfp4, DType::mxfp4})
      return unsupported_error("only GPT-OSS with mxfp4 experts can be released");
    std::error_code error;
    fs::create_directories(directory_, error);
    if (error) return errno_error(error.value(), directory_.string());
    ASSIGN_OR_RETURN(trunk_, File::open(container_.directory() / kTrunkFile, File::Mode::read));
    Json weight_map = Json::object();
    for (uint32_t part = 0; part <= spec.layer_count(); ++part)
      RETURN_IF_ERROR(write_part(part, weight_map));
    RETURN_IF_ERROR(write_file_atomically(
        directory_ / "model.safetensors.index.json",
        json_text({{"metadata", {{"total_size", bytes_}}}, {"weight_map", weight_map}}, 1)));
    RETURN_IF_ERROR(
        write_file_atomically(directory_ / "config.json", json_text(config_of(spec), 1)));
    return bytes_;
  }

 private:
  // Layer `part`, or behind the last of them what belongs to none.
  Status write_part(uint32_t part, Json& weight_map) {
    const ArchitectureSpec& spec = container_.spec();
    const bool is_layer = part < spec.layer_count();
    const std::string prefix = fmt::format("layers.{}.", part);
    std::vector<SafetensorsOutput> outputs;
    std::vector<const TrunkTensor*> tensors;
    for (const TrunkTensor& tensor : container_.manifest().trunk) {
      if (is_layer ? !tensor.name.starts_with(prefix) : tensor.name.starts_with("layers."))
        continue;
      ASSIGN_OR_RETURN(std::string name, released_name(tensor.name));
      outputs.push_back({std::move(name), DType::bf16, tensor.shape});
      tensors.push_back(&tensor);
    }
    if (is_layer)
      for (const ExpertSection& section : container_.manifest().experts.sections) {
        std::vector<uint64_t> shape = section.shape;
        shape.insert(shape.begin(), spec.experts);
        outputs.push_back({section_name(part, section.name), section.dtype, std::move(shape)});
      }
    const std::string file =
        fmt::format("model-{:05}-of-{:05}.safetensors", part + 1, spec.layer_count() + 1);
    for (const SafetensorsOutput& output : outputs) weight_map[output.name] = file;
    ASSIGN_OR_RETURN(SafetensorsWriter writer,
                     SafetensorsWriter::create(directory_ / file, outputs));
    for (size_t i = 0; i < tensors.size(); ++i)
      RETURN_IF_ERROR(write_tensor(*tensors[i], outputs[i].name, writer));
    if (is_layer) RETURN_IF_ERROR(write_experts(part, writer));
    return writer.finish();
  }

  Status write_tensor(const TrunkTensor& tensor, const std::string& name,
                      SafetensorsWriter& writer) {
    std::vector<std::byte> bytes(tensor.bytes);
    RETURN_IF_ERROR(trunk_.read_at(tensor.offset_bytes, bytes));
    if (tensor.format.dtype == DType::f32) {
      std::vector<float> values(tensor.rows() * tensor.cols());
      plain_to_f32(DType::f32, bytes.data(), values.size(), values.data());
      std::vector<uint16_t> rounded;
      for (const float value : values) rounded.push_back(f32_to_bf16(value));
      bytes_ += rounded.size() * sizeof(uint16_t);
      return writer.write(name, 0, std::as_bytes(std::span(rounded)));
    }
    if (tensor.format.dtype != DType::bf16)
      return unsupported_error("{} is {}: only a bf16 trunk can be released", tensor.name,
                               format_name(tensor.format));
    bytes_ += bytes.size();
    return writer.write(name, 0, bytes);
  }

  Status write_experts(uint32_t layer, SafetensorsWriter& writer) {
    const ExpertLayout& layout = container_.manifest().experts;
    const fs::path path = container_.directory() / expert_file_name(layer);
    ASSIGN_OR_RETURN(const File file, File::open(path, File::Mode::read));
    std::vector<std::byte> record(layout.stride_bytes);
    for (uint32_t expert = 0; expert < container_.spec().experts; ++expert) {
      RETURN_IF_ERROR(file.read_at(expert * layout.stride_bytes, record));
      for (const ExpertSection& section : layout.sections) {
        RETURN_IF_ERROR(
            writer.write(section_name(layer, section.name), expert * section.bytes,
                         std::span(record).subspan(section.offset_bytes, section.bytes)));
        bytes_ += section.bytes;
      }
    }
    return {};
  }

  const Container& container_;
  const fs::path directory_;
  File trunk_;
  uint64_t bytes_ = 0;
};

}  // namespace

Result<uint64_t> write_release(const Container& container, const fs::path& directory) {
  return Release(container, directory).run();
}

}  // namespace wader::bench
