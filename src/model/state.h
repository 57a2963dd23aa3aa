// SequenceState: what the model remembers of one sequence. Attention layers hold rotated keys and
// values: full attention every position up to the context, sliding attention a ring of the last
// ones. DeltaNet layers hold a state of fixed size that every position changes.
#pragma once

#include <cstdint>
#include <functional>
#include <span>
#include <vector>

#include "arch/spec.h"
#include "base/result.h"
#include "io/aligned_buffer.h"
#include "tensor/dtype.h"

namespace wader {

// Positions that a sliding layer's ring keeps beyond window and chunk: how far a rewind is free of
// recomputing.
constexpr uint32_t kRewindSlack = 1024;

struct StateShape {
  uint32_t context, chunk;
  DType kv_dtype;  // of keys and values, Kernels::kv_dtype
};

// Ring size in positions of one layer, whole attention blocks. A chunk's keys are all written
// before its first row looks back over the window, so window + chunk must fit. 0 for delta_net.
uint32_t kv_capacity(const ArchitectureSpec& spec, LayerKind kind, uint32_t context,
                     uint32_t chunk);
// Bytes of one sequence's state.
uint64_t state_bytes(const ArchitectureSpec& spec, const StateShape& shape);
// Bytes of a snapshot: of all that later positions overwrite. 0 when nothing is: full attention,
// and rings as long as the context, can always rewind.
uint64_t snapshot_bytes(const ArchitectureSpec& spec, const StateShape& shape);

// One attention layer's keys and values, a plane of head_bytes for each KV head (kernels/ops.h:
// AttendArgs).
struct KvView {
  std::byte* k;
  std::byte* v;
  uint32_t capacity;
  size_t head_bytes;
};

// One DeltaNet layer (kernels/ops.h says how it is computed). What the positions of the current
// block, those from (length − 1) / kDeltaBlock · kDeltaBlock on, add to `state` is in keys,
// log_decay and deltas.
struct DeltaView {
  float* state;       // (value_heads, key_dim, value_dim), before the current block
  double* log_decay;  // (value_heads, kDeltaBlock)
  float* keys;        // (key_heads, kDeltaBlock, key_dim)
  float* deltas;      // (value_heads, kDeltaBlock, value_dim)
  float* conv;  // (conv_kernel − 1, conv_width), the convolution's last inputs, oldest first
};

class SequenceState {
 public:
  static Result<SequenceState> create(const ArchitectureSpec& spec, const StateShape& shape);

  uint32_t context() const { return context_; }
  uint32_t length() const { return length_; }  // positions [0, length) are remembered
  const KvView& kv(uint32_t layer) const { return layers_[layer].kv; }
  const DeltaView& delta(uint32_t layer) const { return layers_[layer].delta; }

  // Before a pass writes positions [length, length + rows): from now on what these overwrite is
  // gone, also when the pass fails half way.
  void reserve(uint32_t rows);
  // After the pass: length grows by rows.
  void advance(uint32_t rows);

  // Makes length = `length` <= length(). False when what the next position needs is no longer
  // there: a ring has overwritten it, or a DeltaNet layer has moved on (its state goes back by
  // restore() alone). The state is then unchanged. Rewinding to 0 always works.
  [[nodiscard]] bool rewind(uint32_t length);

  // Whether all layers stand at length(): not after a pass that failed, where layers move on one by
  // one.
  bool whole() const { return !torn_; }
  // Whether positions change what cannot be told apart later: such a state can only be saved where
  // it stands.
  bool is_recurrent() const { return has_delta_; }
  bool can_save(uint32_t length) const;
  // Copies what later positions overwrite, as it was at `length`, into `snapshot` of
  // snapshot_bytes(), and back. The positions before it must then be the same.
  void save(std::span<std::byte> snapshot, uint32_t length) const;
  void restore(std::span<const std::byte> snapshot, uint32_t length);

  // Everything that `length` positions leave (keys in whole tiles, so of up to 15 places beyond it,
  // too), piece by piece in one order, whatever context and chunk: for files. `fn` may read or
  // write a piece; an error stops.
  Status for_each_piece(uint32_t length,
                        const std::function<Status(std::span<std::byte>)>& fn) const;
  // After writing all pieces of a state of `length` positions.
  void adopt(uint32_t length);

 private:
  enum class Part : uint8_t { overwritten, everything };
  struct Layer {
    LayerKind kind;
    KvView kv = {};
    DeltaView delta = {};
  };
  template <typename Fn>
  bool visit_kv(const Layer& layer, uint32_t length, Fn&& fn) const;
  template <typename Fn>
  bool visit(Part part, uint32_t length, Fn&& fn) const;

  ArchitectureSpec spec_;
  uint32_t context_ = 0, length_ = 0;
  size_t kv_value_bytes_ = 0;
  uint32_t ring_capacity_ = 0;  // of the sliding layers; 0 when there are none
  uint32_t ring_oldest_ = 0;    // positions before it are no longer in the rings
  bool has_delta_ = false;
  bool torn_ = false;
  AlignedBuffer memory_;
  std::vector<Layer> layers_;
};

}  // namespace wader
