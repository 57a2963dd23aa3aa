// How a checkpoint's writer treated what two conventions exist for. Models with zero-centred norms
// are released with the weight w of 1 + w and conv1d as (C, 1, K); MLX's converter adds the 1 and
// transposes to (C, K, 1), in one step. A 1 that is added twice, or never, computes nonsense
// without any other sign, so that what contradicts itself is refused.
#pragma once

#include <string>
#include <unordered_map>
#include <vector>

#include "arch/spec.h"
#include "base/result.h"
#include "checkpoint/checkpoint.h"
#include "checkpoint/families.h"
#include "checkpoint/tensor_table.h"

namespace wader {

struct ReleaseStyle {
  bool norms_have_one = false;      // 1 was added to zero-centred norm weights already
  bool conv_channels_last = false;  // (C, K, 1) rather than (C, 1, K)
  bool mlx = false;                 // written by MLX's converter
};

// From `quantised` (by MLX), the names of the experts and the shapes of conv1d: any sign of MLX
// means that the 1 is there. corrupt or unsupported where the signs contradict each other.
Result<ReleaseStyle> find_release_style(const ArchitectureSpec& spec, const Family& family,
                                        bool quantised, const TensorTable& table);

// Reads the norm weights themselves, a few hundred KB, and refuses what `style` cannot be true for:
// - taken for zero-centred, but hardly a value is <= 0 and their mean is 0.5 or more: a conversion
//   that kept the released layout and has the 1 all the same;
// - taken for shifted, but over a tenth are <= 0: a channel in ten would be dead or inverted.
// `trunk` holds the bound tensors of `spec`. Conversions that fall between are not recognised.
Status check_norms(const ArchitectureSpec& spec, const Family& family, const ReleaseStyle& style,
                   const std::unordered_map<std::string, TensorSource>& trunk,
                   const SourceFiles& files);

}  // namespace wader
