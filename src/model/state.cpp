#include "model/state.h"

#include <algorithm>

#include "base/check.h"
#include "base/units.h"

namespace wader {

uint32_t kv_capacity(const ArchitectureSpec& spec, LayerKind kind, uint32_t context,
                     uint32_t chunk) {
  if (kind == LayerKind::full_attention) return context;
  const uint64_t ring = uint64_t{spec.sliding_window} + chunk + kRewindSlack;
  return static_cast<uint32_t>(std::min<uint64_t>(context, ring));
}

uint64_t state_bytes(const ArchitectureSpec& spec, uint32_t context, uint32_t chunk) {
  uint64_t bytes = 0;
  for (LayerKind kind : spec.layers)
    bytes +=
        2 * uint64_t{kv_capacity(spec, kind, context, chunk)} * spec.kv_width() * sizeof(float);
  return bytes;
}

Result<SequenceState> SequenceState::create(const ArchitectureSpec& spec, uint32_t context,
                                            uint32_t chunk) {
  SequenceState state;
  state.context_ = context;
  state.window_ = spec.sliding_window;
  ASSIGN_OR_RETURN(state.memory_, AlignedBuffer::allocate(
                                      std::max<uint64_t>(state_bytes(spec, context, chunk), 1)));
  auto* next = reinterpret_cast<float*>(state.memory_.data());
  for (LayerKind kind : spec.layers) {
    const uint32_t capacity = kv_capacity(spec, kind, context, chunk);
    const size_t plane = static_cast<size_t>(capacity) * spec.kv_width();
    state.layers_.push_back({next, next + plane, capacity});
    next += 2 * plane;
    if (kind == LayerKind::sliding_attention) state.ring_capacity_ = capacity;
  }
  return state;
}

void SequenceState::reserve(uint32_t rows) {
  CHECK(rows <= context_ - length_);
  CHECK(ring_capacity_ == 0 || ring_capacity_ == context_ || rows + window_ <= ring_capacity_ + 1);
  written_ = std::max(written_, length_ + rows);
}

void SequenceState::advance(uint32_t rows) {
  length_ += rows;
  CHECK(length_ <= written_);
}

bool SequenceState::rewind(uint32_t length) {
  CHECK(length <= length_);
  if (length == 0) {
    length_ = written_ = 0;
    return true;
  }
  if (ring_capacity_ != 0 && written_ > ring_capacity_) {
    // The ring holds [written − capacity, written). The query at `length` sees back to length −
    // (window − 1).
    const uint32_t oldest_kept = written_ - ring_capacity_;
    const uint32_t oldest_seen = length >= window_ ? length - (window_ - 1) : 0;
    if (oldest_seen < oldest_kept) return false;
  }
  length_ = length;
  return true;
}

}  // namespace wader
