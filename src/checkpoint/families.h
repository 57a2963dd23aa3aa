// What differs between model families in their released files, as data: keys of config.json, fixed
// facts that no key states, names of tensors. A new family whose parts the spec already knows is a
// new table.
#pragma once

#include <cstdint>
#include <span>
#include <string>
#include <string_view>
#include <vector>

#include "arch/spec.h"
#include "arch/tensors.h"
#include "checkpoint/row_order.h"

namespace wader {

// One whole number of config.json.
struct DimensionKey {
  std::string_view key;
  uint32_t ArchitectureSpec::*field;
  std::string_view alias =
      {};                 // a second name for the same number; where both stand they must agree
  bool optional = false;  // the field stays 0 without it
};
struct DeltaKey {
  std::string_view key;
  uint32_t DeltaNetSpec::*field;
};

// Layer i mixes by `last` where (i + 1) % interval == 0, by `usual` elsewhere, unless config.json's
// layer_types says otherwise. A family has these two kinds and no other.
struct LayerPattern {
  LayerKind usual, last;
  uint32_t interval;
  std::string_view interval_key = {};  // of config.json, in place of `interval`
};

// What norm_topk_prob means to a family: whether the k largest of the softmax are divided by their
// sum.
enum class NormTopk : uint8_t {
  no_key,        // the router's rule has no such choice
  absent_false,  // false where config.json does not say
  absent_true,
  always,  // the reference does not read the key; false is refused
};

enum class RopeRule : uint8_t {
  // The settings must be there and be YaRN's, with "truncate": the reference rounds the correction
  // range where the key is absent, every released GPT-OSS says false, and the difference shows only
  // at a distance.
  explicit_yarn,
  // Plain unless config.json has YaRN; "truncate" is true where it is absent, as in the reference.
  plain_or_yarn,
};

// Where the values of a canonical tensor stand. Several entries of one canonical name are its
// parts.
struct ReleasedTensor {
  std::string_view canonical, released;
  RowOrder order = RowOrder::same;
  bool zero_centred = false;  // a norm weight w that is meant as 1 + w
  bool depthwise = false;     // (C, 1, K), or (C, K, 1), for a canonical (C, K)
};

struct TensorNames {
  std::string_view layer_prefix;  // before a layer's number: "model.layers."
  std::span<const ReleasedTensor> model, layer;
};

// A part of the experts' matrices of one layer, after the layer's prefix. '*' is an expert's
// number; a name without it is a stack, the expert its first axis.
struct ExpertPart {
  ExpertMatrix matrix;
  std::string_view released;
  RowOrder order = RowOrder::same;
};

// One way to release the experts.
struct ExpertNames {
  std::span<const ExpertPart> weights;
  std::span<const ExpertPart> biases = {};
  bool mlx = false;  // written by MLX's converter and by nobody else
};

struct Family {
  std::string_view model_type;
  std::string_view text_model_type = {};  // of the text part of a model that also sees

  std::span<const DimensionKey> dimensions;
  std::span<const DeltaKey> delta_dimensions = {};
  LayerPattern layers;
  // mlp_only_layers and decoder_sparse_step can make layers dense; where not, they are refused.
  bool dense_layers = false;

  Activation activation;
  double swiglu_limit = 0;  // swiglu_clamped: where config.json has no swiglu_limit
  RouterRule router;        // before norm_topk
  NormTopk norm_topk = NormTopk::no_key;
  bool attention_bias = false;  // where config.json has no attention_bias
  bool attention_sinks = false, attention_gate = false, qk_norm = false;
  bool router_bias = false, expert_bias = false;
  RopeRule rope;
  double partial_rotary = 1;  // share of a head that rotates; config.json may say otherwise

  std::string_view quant_method = {};  // that quantization_config must have; empty: there is none

  TensorNames names;
  std::span<const ExpertNames> experts;  // a layer has one of these

  std::span<const uint32_t> eos;  // that end an answer, the end of a turn first
};

// By model_type or text_model_type; null when the family is not supported.
const Family* find_family(std::string_view model_type);

// "gpt_oss, qwen3_moe": for messages.
std::string supported_families();

// The parts of a canonical trunk tensor (arch/tensors.h) with their full released names. Empty when
// the table has no such tensor.
struct TensorPart {
  std::string released;
  const ReleasedTensor* table;
};
std::vector<TensorPart> tensor_parts(const TensorNames& names, std::string_view canonical);

// Full released name of an expert's part; `expert` is of no matter to a stack.
std::string expert_name(const TensorNames& names, uint32_t layer, std::string_view part,
                        uint32_t expert);
inline bool is_stack(const ExpertPart& part) {
  return part.released.find('*') == std::string_view::npos;
}

}  // namespace wader
