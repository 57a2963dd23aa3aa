// Collecting what the range map is made of: the probes as prompts, and the experts that they use.
// Who has an engine of its own calls run_probes(); a server computes the prompts in its own way,
// among other work, and gives RoutingCounts the routing of their passes alone.
#pragma once

#include <cstddef>
#include <cstdint>
#include <span>
#include <vector>

#include "arch/spec.h"
#include "base/progress.h"
#include "base/result.h"
#include "engine/engine.h"
#include "range/range_map.h"
#include "tokenizer/tokenizer.h"

namespace wader {

struct ProbePrompt {
  size_t topic = 0;
  bool held_out = false;
  std::vector<TokenId> tokens;  // of the plain text: no chat markup, nothing before it
  size_t text_bytes = 0;
  bool cut = false;  // the text has more tokens than the context
};

// The probes in a model's tokens, all first texts before the held-out ones; each at most
// `context` tokens.
Result<std::vector<ProbePrompt>> probe_prompts(const Tokenizer& tokenizer, uint32_t context);

RangeShape range_shape(const ArchitectureSpec& spec);

// Uses of experts by topic. One thread at a time; add() allocates nothing.
class RoutingCounts {
 public:
  explicit RoutingCounts(const ArchitectureSpec& spec);

  // What add() is given from now on is of this prompt.
  void begin(const ProbePrompt& prompt);
  // EngineOptions::on_routing of one layer and pass: ids (rows, k). Needs a prompt.
  void add(uint32_t layer, std::span<const uint32_t> ids);

  const TopicCounts& counts() const { return sets_[0]; }
  const TopicCounts& held_out() const { return sets_[1]; }
  const ArchitectureSpec& spec() const { return spec_; }

 private:
  ArchitectureSpec spec_;
  TopicCounts sets_[2];
  size_t topic_ = 0;
  TopicCounts* into_ = nullptr;
};

// What RoutingCounts, the map made of it and its text hold together, or checking the text of a map;
// for EngineOptions::extra_bytes.
uint64_t range_memory_bytes(const ArchitectureSpec& spec);

// What a prompt of a probe is computed with: one token is sampled, none is computed after it.
GenerateOptions probe_options();

// Computes every prompt from an empty state. The session's engine must call counts.add(). Progress
// is in bytes of text, under "probes"; when it says no, the error is `cancelled`.
Status run_probes(Session& session, std::span<const ProbePrompt> prompts, RoutingCounts& counts,
                  const ProgressFn& progress);

// The finished map, with what chance gives: kRangeShuffles maps of shuffled topics, some seconds
// for the largest models.
constexpr uint32_t kRangeShuffles = 100;
RangeMap finish_range(const RoutingCounts& counts, uint64_t model);

}  // namespace wader
