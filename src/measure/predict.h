// What a model will do on a machine before it is loaded: from its shapes, its memory plan and three
// measured rates. Pure. docs/results.md has predictions beside measurements.
//
// How often a wanted expert is resident hangs on the text, so there are two answers. `uniform`:
// every expert is wanted equally often; no policy can beat slots / experts then, and real models do
// better. `skewed`: as far as published traces go, (slots / experts) to a power that gives the
// reported hit rates of GPT-OSS (40 % with 8 of 32) and Qwen3 (32 % with 8 of 128).
#pragma once

#include <cstdint>
#include <optional>

#include "container/container.h"
#include "model/memory_plan.h"
#include "tensor/dtype.h"

namespace wader {

struct MachineSpeed {
  double disk_bytes_per_second = 0;                       // of expert records at random places
  double memory_bytes_per_second = 0;                     // of reads by all threads
  std::optional<double> int8_operations_per_second = {};  // of the kernels; nothing: not known here
};

struct PredictionRequest {
  uint32_t slots = 0, chunk = 0;  // of the plan
  DType kv_dtype = DType::f16;    // of the kernels
  uint64_t position = 0;          // tokens before the decoded one
  uint32_t prompt_tokens = 0;     // of the first prompt, at least 1
};
PredictionRequest prediction_request(const MemoryPlan& plan, DType kv_dtype);  // 512 and 512 tokens

struct DecodePrediction {
  double hit_rate;              // of the experts that a token wants
  double read_bytes_per_token;  // from disk, on average
  double tokens_per_second;
};

struct Prediction {
  DecodePrediction uniform, skewed;
  // Of the first prompt after the start, when no expert is resident yet; the time is not known
  // where the kernels' peak is not.
  double first_prompt_read_bytes;
  std::optional<double> first_token_seconds;
};

// Rates must be positive.
Prediction predict(const Manifest& manifest, const PredictionRequest& request,
                   const MachineSpeed& speed);

}  // namespace wader
