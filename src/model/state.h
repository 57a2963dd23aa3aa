// SequenceState: what the model remembers of one sequence — the rotated keys and the values of each
// layer. Full-attention layers hold every position up to the context; sliding layers a ring of the
// last ones.
#pragma once

#include <cstdint>
#include <span>
#include <vector>

#include "arch/spec.h"
#include "base/result.h"
#include "io/aligned_buffer.h"

namespace wader {

// Positions that a sliding layer's ring keeps beyond window and chunk: how far a rewind is free of
// recomputing.
constexpr uint32_t kRewindSlack = 1024;

// Ring size in positions of one layer. A chunk's keys are all written before its first row looks
// back over the window, so window + chunk must fit.
uint32_t kv_capacity(const ArchitectureSpec& spec, LayerKind kind, uint32_t context,
                     uint32_t chunk);
// Bytes of one sequence's state.
uint64_t state_bytes(const ArchitectureSpec& spec, uint32_t context, uint32_t chunk);

// One layer's keys and values: (kv_heads, capacity, head_dim) f32 each; position p stands at p %
// capacity.
struct KvView {
  float* k;
  float* v;
  uint32_t capacity;
};

class SequenceState {
 public:
  static Result<SequenceState> create(const ArchitectureSpec& spec, uint32_t context,
                                      uint32_t chunk);

  uint32_t context() const { return context_; }
  uint32_t length() const { return length_; }  // positions [0, length) are remembered
  KvView layer(uint32_t n) const { return layers_[n]; }

  // Before a pass writes positions [length, length + rows): from now on what these overwrite in the
  // rings is gone, also when the pass fails half way.
  void reserve(uint32_t rows);
  // After the pass: length grows by rows.
  void advance(uint32_t rows);

  // Makes length = `length` <= length(). False when a ring has already overwritten what the next
  // query there would see; the state is then unchanged. Rewinding to 0 always works.
  [[nodiscard]] bool rewind(uint32_t length);

 private:
  uint32_t context_ = 0, length_ = 0;
  uint32_t written_ = 0;        // highest position ever written + 1, since the last rewind to 0
  uint32_t ring_capacity_ = 0;  // smallest capacity of the sliding layers; 0 when there are none
  uint32_t window_ = 0;
  AlignedBuffer memory_;
  std::vector<KvView> layers_;
};

}  // namespace wader
