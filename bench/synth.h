// Writes a container of random weights: what a model's shape costs in bytes and time can then be
// measured without the model. Weights have the scale that keeps activations sane through all
// layers; what the model says is noise.
#pragma once

#include <cstdint>
#include <filesystem>

#include "arch/spec.h"
#include "arch/tensors.h"
#include "base/progress.h"
#include "base/result.h"

namespace wader::bench {

struct SynthOptions {
  ArchitectureSpec spec;
  ExpertFormat experts;
  MatrixFormat trunk = DType::affine8;  // of matrices whose columns take it, else bf16
  // Spread of the experts' popularity: each router row's logits get a constant of this many of
  // their standard deviations, drawn once a row (a bias where the spec has one, else a row scale
  // e^(skew · z)). 0: near uniform.
  double skew = 0;
  uint64_t seed = 1;
  std::filesystem::path destination;
};

// The shape's usual format: mxfp4 for experts with biases (GPT-OSS), else affine4 in groups of 64.
ExpertFormat usual_expert_format(const ArchitectureSpec& spec);

// As fast as the disk takes it; a few MiB of memory. Refuses an existing destination as an install
// does. Returns the container's bytes.
Result<uint64_t> write_synthetic_container(const SynthOptions& options, const ProgressFn& progress);

}  // namespace wader::bench
