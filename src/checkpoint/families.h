// What differs between model families in their released files, as data: keys of config.json, fixed
// facts that no key states, names of tensors. A new family whose parts the spec already knows is a
// new table.
#pragma once

#include <cstdint>
#include <span>
#include <string>
#include <string_view>

#include "arch/spec.h"

namespace wader {

// One whole number of config.json.
struct DimensionKey {
  std::string_view key;
  uint32_t ArchitectureSpec::*field;
  std::string_view alias =
      {};  // a second name for the same number; where both stand they must agree
};

struct ReleasedName {
  std::string_view canonical, released;
};

struct Family {
  std::string_view model_type;
  std::span<const DimensionKey> dimensions;

  Activation activation;
  RouterRule router;
  double swiglu_limit;  // where config.json has no swiglu_limit
  bool attention_bias;  // where config.json has no attention_bias
  bool attention_sinks, router_bias, expert_bias;
  LayerKind even_layers, odd_layers;  // where config.json has no layer_types
  std::string_view rope_type;
  std::string_view quant_method;

  std::span<const ReleasedName> model_names;  // canonical name → released name
  std::span<const ReleasedName> layer_names;  // after "layers.N." → after "model.layers.N."
  std::span<const ReleasedName>
      expert_names;  // section → after "model.layers.N."; expert axis first
};

// Null when the family is not supported.
const Family* find_family(std::string_view model_type);

// "gpt_oss": for messages.
std::string supported_families();

// Released name of a canonical trunk tensor (arch/tensors.h); empty when the family has no such
// tensor.
std::string released_trunk_name(const Family& family, std::string_view canonical);
// The same for one section of all experts of a layer.
std::string released_expert_name(const Family& family, uint32_t layer, std::string_view section);

}  // namespace wader
