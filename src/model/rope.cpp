#include "model/rope.h"

#include <algorithm>
#include <cmath>
#include <numbers>

#include "base/check.h"

namespace wader {

YarnRange yarn_range(const Rope& rope, uint32_t rotary_dim) {
  CHECK(rope.yarn.has_value());
  const Yarn& yarn = *rope.yarn;
  // The dimension whose wavelength makes `rotations` turns over the original context.
  const auto correction_dim = [&](double rotations) {
    return rotary_dim * std::log(yarn.original_context / (rotations * 2 * std::numbers::pi)) /
           (2 * std::log(rope.theta));
  };
  double low = correction_dim(yarn.beta_fast), high = correction_dim(yarn.beta_slow);
  if (yarn.truncate) low = std::floor(low), high = std::ceil(high);
  return {std::max(low, 0.0), std::min(high, rotary_dim - 1.0)};
}

RopeTable::RopeTable(const Rope& rope, uint32_t rotary_dim)
    : inverse_frequencies_(rotary_dim / 2),
      attention_factor_(rope.yarn ? static_cast<float>(rope.yarn->attention_factor) : 1.0f) {
  for (uint32_t i = 0; i < rotary_dim / 2; ++i) {
    const double extrapolated = std::pow(rope.theta, -2.0 * i / rotary_dim);
    double frequency = extrapolated;
    if (rope.yarn) {
      const YarnRange range = yarn_range(rope, rotary_dim);
      const double width = std::max(range.high - range.low, 0.001);
      const double ramp = std::clamp((i - range.low) / width, 0.0, 1.0);
      frequency = extrapolated * ((1 - ramp) + ramp / rope.yarn->factor);
    }
    inverse_frequencies_[i] = static_cast<float>(frequency);
  }
}

void RopeTable::at(uint32_t position, float* cos, float* sin) const {
  for (size_t i = 0; i < inverse_frequencies_.size(); ++i) {
    const float angle = static_cast<float>(position) * inverse_frequencies_[i];
    cos[i] = std::cos(angle) * attention_factor_;
    sin[i] = std::sin(angle) * attention_factor_;
  }
}

}  // namespace wader
