// Released names of tensors, freed of what differs between repositories of the same model: models
// that also see nest their text part, and nest it differently (transformers model.language_model.X,
// MLX language_model.model.X).
#pragma once

#include <string>
#include <string_view>

namespace wader {

// model.language_model.X and language_model.model.X → model.X; language_model.lm_head.X →
// lm_head.X; anything else as it is.
std::string text_name(std::string_view released);

// Whether the tensor with this text_name() has no part in computing text: the multi-token
// prediction head, the vision tower, tables that follow from the config.
bool is_skippable(std::string_view name);

}  // namespace wader
