// Golden comparison: what a model computes against reference outputs in a safetensors file.
//
// Layout of the file, for any prefix P:
//   P.input_ids (T)            with  P.logits or P.all (T, vocab), P.logits_lastN (N, vocab),
//                                    P.hidden (layers + 1, T, hidden), P.router_indices[_lastN]
//                                    (layers, T or N, k), P.router_weights[_lastN] (layers, T or N,
//                                    k)
//   P.prompt, P.continuation (n), P.margin (n)   greedy ids, and by how much each was the best
// Ids are i32, values f32. Tensors of other names are reported as not compared.
#pragma once

#include <cstdint>
#include <filesystem>
#include <map>
#include <span>
#include <string>
#include <vector>

#include "arch/spec.h"
#include "base/json.h"
#include "base/result.h"
#include "checkpoint/safetensors.h"
#include "engine/engine.h"
#include "io/file.h"
#include "tokenizer/tokenizer.h"

namespace wader {

class GoldenFile {
 public:
  static Result<GoldenFile> open(const std::filesystem::path& path);

  const std::map<std::string, SafetensorsTensor>& tensors() const { return tensors_; }
  Result<std::vector<int32_t>> ids(const std::string& name) const;
  // `count` values of an f32 tensor from element `first`. Inside the tensor.
  Result<std::vector<float>> values(const std::string& name, uint64_t first, uint64_t count) const;

  // The context that the longest sequence needs, and what comparing holds in memory beside the
  // engine.
  uint32_t context_tokens() const;
  uint64_t capture_bytes(const ArchitectureSpec& spec) const;

 private:
  File file_;
  std::map<std::string, SafetensorsTensor> tensors_;
};

// One comparison. `error` is a largest difference, a count of differing sets or ids, or a relative
// difference, as `measure` says; it passes when error <= limit.
struct GoldenLine {
  std::string name;     // "short.logits", "nll.python"
  std::string measure;  // "max |d|", "sets differ", "ids differ", "relative"
  uint64_t compared;    // rows, sets, ids or tokens
  double error, limit;
  std::string detail;

  bool ok() const { return error <= limit; }  // false for NaN
};

struct GoldenReport {
  std::vector<GoldenLine> lines;
  std::vector<std::string> not_compared;
  bool ok() const;
};

struct GoldenLimits {
  double logits = 2e-3;          // absolute; hidden states get it relative to their largest value
  double router_weights = 1e-4;  // absolute
  double tie_margin = 1e-3;  // greedy ids count up to the first choice that was closer than this
  double nll = 2e-3;         // relative
};

// Computes and compares everything in `golden`. `on_line` sees each line as it is known. An error
// only when the file does not fit the model or the engine fails.
Result<GoldenReport> check_golden(const GoldenFile& golden, const ArchitectureSpec& spec,
                                  Session& session, const GoldenLimits& limits,
                                  const std::function<void(const GoldenLine&)>& on_line = {});

// Negative log-likelihoods of golden.json: "P.nll" of P.input_ids in `golden`, and "heldout":
// {topic: {nll_per_token, tokens, texts}}, each text read as `start` and its first 600 tokens,
// averaged over the predicted tokens of a topic. `tokenizer` may be null when there is no
// "heldout".
struct NllInput {
  const Json& json;
  const GoldenFile& golden;
  const Tokenizer* tokenizer;
};
Result<GoldenReport> check_nll(const NllInput& input, Session& session, const GoldenLimits& limits,
                               const std::function<void(const GoldenLine&)>& on_line = {});

// Sum of −log p of tokens[1..], in nats.
Result<double> sequence_nll(std::span<const TokenId> tokens, Session& session);

// The parts, on plain numbers. Spans of a pair have one size.
double max_abs_difference(std::span<const float> got,
                          std::span<const float> want);  // infinite for a NaN
uint64_t differing_sets(std::span<const int32_t> got, std::span<const int32_t> want, uint32_t k);
struct GreedyComparison {
  uint64_t compared;    // choices before the first tie
  int64_t first_wrong;  // −1: none
};
// `got` may be shorter: what is missing is wrong.
GreedyComparison compare_greedy(std::span<const int32_t> got, std::span<const int32_t> want,
                                std::span<const float> margin, double tie_margin);
double negative_log_likelihood(std::span<const float> logits, int32_t id);

}  // namespace wader
