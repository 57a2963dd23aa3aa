// forward: one pass of the transformer over a batch of rows. Prefill is many rows of one sequence,
// decode one row each of one or many. Reads each distinct expert of a layer once, however many rows
// want it.
#pragma once

#include <cstdint>
#include <functional>
#include <span>
#include <vector>

#include "arch/spec.h"
#include "base/result.h"
#include "base/thread_pool.h"
#include "experts/experts.h"
#include "kernels/ops.h"
#include "model/pass_seconds.h"
#include "model/rope.h"
#include "model/state.h"
#include "model/weights.h"
#include "model/workspace.h"

namespace wader {

struct Row {
  int32_t token;         // < spec.vocab_rows
  SequenceState* state;  // rows of one sequence are consecutive, in order of position
  uint32_t position;     // state->length() for its first row
  bool wants_logits;
};

// What a pass computes with. All of it outlives the pass; one pass at a time.
struct ModelContext {
  const ArchitectureSpec& spec;
  const ExpertLayout& layout;
  const TrunkWeights& weights;
  const RopeTable& rope;
  const Kernels& kernels;
  Experts& experts;
  ThreadPool& threads;
  Workspace& work;
  bool lookahead = false;          // whether the pass predicts experts
  PassSeconds* seconds = nullptr;  // where a pass adds its times; may be null
};

// Called by forward with inner values as they exist, for `wader logits` and the golden tests. Any
// may be empty.
struct ForwardObserver {
  // After the embedding (layer 0) and after each layer (n + 1): x (rows, hidden). The last call,
  // layer_count + 1, has x after the final norm.
  std::function<void(uint32_t stage, std::span<const float> x)> on_hidden;
  // Of moe layers only.
  std::function<void(uint32_t layer, std::span<const uint32_t> ids, std::span<const float> weights)>
      on_router;
};

// Called for each row with wants_logits, in row order, with logits (vocab_rows) that live until it
// returns.
using LogitsFn = std::function<void(size_t row, std::span<const float> logits)>;

// Moves the rows' states on. rows.size() <= work.rows. On an error (a failed read, a wrong
// checksum, a NaN logit) the states keep the length they had; those of a spec with DeltaNet layers
// are then not whole() and go back by restore() or rewind(0). Allocates nothing.
Status forward(const ModelContext& model, std::span<const Row> rows, const LogitsFn& on_logits,
               const ForwardObserver* observer = nullptr);

}  // namespace wader
