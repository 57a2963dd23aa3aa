#include "checkpoint/text_name.h"

#include <array>

namespace wader {

std::string text_name(std::string_view released) {
  constexpr std::string_view kNested = "model.language_model.", kOuter = "language_model.";
  if (released.starts_with(kNested)) {
    // Also in this order: what MLX nests once more.
    released.remove_prefix(kNested.size());
    if (released.starts_with("model.") || released.starts_with("lm_head."))
      return std::string(released);
    return "model." + std::string(released);
  }
  if (released.starts_with(kOuter)) released.remove_prefix(kOuter.size());
  return std::string(released);
}

bool is_skippable(std::string_view name) {
  constexpr std::array<std::string_view, 6> kUnread = {
      "mtp.", "model.mtp.", "model.visual.", "visual.", "vision_tower.", "model.vision_tower."};
  for (const std::string_view prefix : kUnread)
    if (name.starts_with(prefix)) return true;
  return name.ends_with(".rotary_emb.inv_freq");
}

}  // namespace wader
