// Log-probabilities of tokens in the model's own distribution: the softmax of its logits, before
// penalties, temperature and cuts.
#pragma once

#include <cstdint>
#include <optional>
#include <span>
#include <vector>

namespace wader {

struct TokenLogprob {
  int32_t id;
  float logprob;  // natural; −infinity where the logit is
};

struct GeneratedToken {
  int32_t id = -1;
  std::optional<float> logprob = {};   // where they were asked for
  std::vector<TokenLogprob> top = {};  // the most likely ones, best first; ties by id
};

// `id` with its log-probability and the `top` most likely ones. No logit is NaN or +infinite, and
// one is finite (Sampler::sample has looked). A sum in double from the first id to the last: the
// same bits everywhere.
GeneratedToken token_with_logprobs(int32_t id, std::span<const float> logits, uint32_t top);

}  // namespace wader
