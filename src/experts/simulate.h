// Replays a routing trace through the real SlotPolicy, without reading a byte: what each rule would
// have missed with so many slots, beside what Belady's MIN misses, which knows the future (Belady
// 1966; no rule can miss less). One expert's record is read for each miss. Pure.
#pragma once

#include <cstdint>
#include <span>
#include <vector>

#include "experts/routing_trace.h"
#include "experts/slot_policy.h"

namespace wader {

// Counts of distinct experts of a pass's layers. Decode passes have one row.
struct SimulatedReads {
  uint64_t wanted = 0, missed = 0;
  uint64_t decode_wanted = 0, decode_missed = 0;
  // Of the kTokensAfterPrompt decode passes that follow a prompt of at least kLongPrompt tokens.
  uint64_t after_prompt_wanted = 0, after_prompt_missed = 0;
};
constexpr uint32_t kTokensAfterPrompt = 16, kLongPrompt = 500;

struct SimulateOptions {
  uint32_t slots = 1;
  uint64_t uncounted_tokens = 0;        // at the trace's beginning: replayed, but not counted
  std::span<const float> history = {};  // UseHistory::begin_with; empty: none
};

SimulatedReads simulate(const RoutingTrace& trace, EvictionRule rule,
                        const SimulateOptions& options);

// The least possible with the experts of a pass's layer held together, as the cache holds them: a
// miss evicts the expert that is wanted latest of those that the pass does not hold. Where a pass
// wants more experts of a layer than there are slots, computed ones make room, again the latest
// wanted first.
SimulatedReads simulate_belady(const RoutingTrace& trace, const SimulateOptions& options);

// What a run over the trace would leave in the usage file.
std::vector<float> learn_history(const RoutingTrace& trace);

}  // namespace wader
