// Synthetic routing traces with what real models have and random weights have not: tokens that
// follow each other share experts. An expert's score is its popularity, plus a topic that drifts
// (an Ornstein-Uhlenbeck process over tokens, the same for a prompt's rows one after the other),
// plus noise of variance 1 for each token; the k highest are chosen. Deterministic for a seed.
#pragma once

#include <cstdint>

#include "experts/routing_trace.h"

namespace wader::bench {

struct DriftOptions {
  TraceShape shape;
  double popularity = 1;     // standard deviation of what stays
  double topic = 1;          // standard deviation of what drifts
  double topic_tokens = 20;  // after so many tokens a topic's correlation is 1/e
  uint32_t prompts = 1, prompt_tokens = 32, decode_tokens = 100, chunk = 256;
  uint64_t seed = 1;
};

RoutingTrace drifting_trace(const DriftOptions& options);

// Of a token's experts, the share that the token before it had in the same layer: 0.54 in
// published measurements of released models.
double adjacent_share(const RoutingTrace& trace);

}  // namespace wader::bench
