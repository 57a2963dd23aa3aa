// Rotary position embedding tables (Su et al. 2021; YaRN: Peng et al. 2023, arXiv:2309.00071).
#pragma once

#include <cstdint>
#include <vector>

#include "arch/spec.h"

namespace wader {

// The dimensions between which YaRN blends, and how: below low the model's own frequencies, above
// high those / factor.
struct YarnRange {
  double low, high;
};
YarnRange yarn_range(const Rope& rope, uint32_t rotary_dim);

class RopeTable {
 public:
  RopeTable(const Rope& rope, uint32_t rotary_dim);

  // cos and sin (rotary_dim/2) of one position. f32 throughout, as the reference does: at position
  // 5,000 the rounding of the angle alone is 2e-4, so that a more exact angle would agree less.
  void at(uint32_t position, float* cos, float* sin) const;

  const std::vector<float>& inverse_frequencies() const { return inverse_frequencies_; }
  float attention_factor() const { return attention_factor_; }

 private:
  std::vector<float> inverse_frequencies_;  // (rotary_dim/2)
  float attention_factor_;
};

}  // namespace wader
