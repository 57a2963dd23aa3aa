// Sampler: logits → token. Deterministic: the same seed and the same logits give the same ids
// everywhere.
#pragma once

#include <cstdint>
#include <span>
#include <utility>
#include <vector>

#include "base/json.h"
#include "base/result.h"
#include "sampler/logit_blocks.h"

namespace wader {

struct SamplingParams {
  double temperature = 1.0;         // 0 = greedy
  uint32_t top_k = 0;               // 0 = off
  double top_p = 1.0;               // 1 = off
  double min_p = 0.0;               // 0 = off
  double repetition_penalty = 1.0;  // 1 = off; over prompt and output
  double presence_penalty = 0.0;    // over output only, as OpenAI defines it
  double frequency_penalty = 0.0;
  uint64_t seed = 0;
  // Added to the logits of these ids, after the penalties. Ids are of the vocabulary, each once.
  std::vector<std::pair<int32_t, float>> logit_bias = {};
};

// Names the flag that is out of range.
Status validate_sampling(const SamplingParams& params);

// Defaults from a released generation_config.json. do_sample false → temperature 0. Absent keys
// keep neutral values, do_sample too: transformers would then be greedy, but GPT-OSS and others
// release files whose sampling values are meant to be used, and no other runtime reads an absent
// key as "greedy".
Result<SamplingParams> sampling_from_generation_config(const Json& generation_config);
// eos_token_id, a number or a list.
Result<std::vector<int32_t>> eos_from_generation_config(const Json& generation_config);

class Sampler {
 public:
  // vocab_rows: logits per call. `params` have passed validate_sampling. Allocates all it needs
  // here, and only what these parameters need: nothing for plain greedy.
  Sampler(const SamplingParams& params, uint32_t vocab_rows);

  // Tokens that count for the penalties. Ids outside the vocabulary count for nothing.
  void observe_prompt(std::span<const int32_t> ids);
  void observe_output(int32_t id);

  // Picks a token. Order: penalties, bias, temperature, top-k, top-p, min-p, draw. Ties go to the
  // lowest id. corrupt when a logit is NaN or +infinite or none is finite: never a wrong token in
  // silence.
  Result<int32_t> sample(std::span<const float> logits);

 private:
  uint32_t blocks() const;
  const float* block(uint32_t b) const;
  std::span<const float> penalised(std::span<const float> logits);
  int32_t draw(float max_logit);
  Cut cut_top_k();
  double weigh(float max_logit, Cut cut);
  Cut cut_top_p(double total);
  double keep(Cut cut);
  template <typename Measure>
  Cut cut_listed(size_t count, double target, Measure measure);
  double next_uniform();

  SamplingParams params_;
  uint32_t vocab_rows_;
  uint64_t rng_[4];                      // xoshiro256**, Blackman & Vigna 2018
  std::span<const float> logits_;        // of the call in progress, after the penalties
  LogitBlock tail_;                      // its last, short block, filled up with −infinity
  std::vector<float> penalised_;         // (vocab) when a penalty or a bias is on
  std::vector<uint32_t> output_counts_;  // (vocab) when a penalty is on
  std::vector<uint64_t> seen_;  // (blocks) a bit a token of prompt and output, when a penalty is on
  // When sampling:
  std::vector<float> maxima_;   // (blocks) the largest logit of each
  std::vector<float> weights_;  // (blocks, 64) e^((logit − max) / temperature), 0 if filtered out
  std::vector<double> sums_;    // (blocks) of weights_; where 0, weights_ may hold anything
  std::vector<int32_t> listed_;  // (vocab) ids under selection, when top-k or top-p is on
};

}  // namespace wader
