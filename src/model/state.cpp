#include "model/state.h"

#include <algorithm>
#include <cstring>

#include "base/check.h"
#include "base/units.h"
#include "kernels/ops.h"

namespace wader {
namespace {

constexpr uint64_t kAlign = 64;

uint64_t delta_state_values(const DeltaNetSpec& d) {
  return uint64_t{d.value_heads} * d.key_dim * d.value_dim;
}
uint64_t delta_key_values(const DeltaNetSpec& d) {
  return uint64_t{d.key_width()} * kDeltaBlock;
}
uint64_t delta_delta_values(const DeltaNetSpec& d) {
  return uint64_t{d.value_width()} * kDeltaBlock;
}
uint64_t delta_conv_values(const DeltaNetSpec& d) {
  return uint64_t{d.conv_kernel - 1} * d.conv_width();
}
uint64_t delta_decay_bytes(const DeltaNetSpec& d) {
  return uint64_t{d.value_heads} * kDeltaBlock * sizeof(double);
}

// One DeltaNet layer; the parts lie one after the other, doubles first.
uint64_t delta_bytes(const DeltaNetSpec& d) {
  const uint64_t floats =
      delta_state_values(d) + delta_key_values(d) + delta_delta_values(d) + delta_conv_values(d);
  return align_up(delta_decay_bytes(d) + floats * sizeof(float), kAlign);
}

DeltaView place_delta(const DeltaNetSpec& d, std::byte* at) {
  DeltaView view{};
  view.log_decay = reinterpret_cast<double*>(at);
  view.state = reinterpret_cast<float*>(at + delta_decay_bytes(d));
  view.keys = view.state + delta_state_values(d);
  view.deltas = view.keys + delta_key_values(d);
  view.conv = view.deltas + delta_delta_values(d);
  return view;
}

uint64_t kv_bytes(const ArchitectureSpec& spec, uint64_t positions) {
  return 2 * positions * spec.kv_width() * sizeof(float);
}

// Positions before `length` that a sliding layer's next query sees.
uint32_t window_start(const ArchitectureSpec& spec, uint32_t length) {
  return length >= spec.sliding_window ? length - (spec.sliding_window - 1) : 0;
}

}  // namespace

uint32_t kv_capacity(const ArchitectureSpec& spec, LayerKind kind, uint32_t context,
                     uint32_t chunk) {
  if (kind == LayerKind::delta_net) return 0;
  if (kind == LayerKind::full_attention) return context;
  const uint64_t ring = uint64_t{spec.sliding_window} + chunk + kRewindSlack;
  return static_cast<uint32_t>(std::min<uint64_t>(context, ring));
}

uint64_t state_bytes(const ArchitectureSpec& spec, uint32_t context, uint32_t chunk) {
  uint64_t bytes = 0;
  for (const LayerSpec& layer : spec.layers)
    bytes += layer.mixer == LayerKind::delta_net
                 ? delta_bytes(spec.delta)
                 : align_up(kv_bytes(spec, kv_capacity(spec, layer.mixer, context, chunk)), kAlign);
  return bytes;
}

uint64_t snapshot_bytes(const ArchitectureSpec& spec, uint32_t context, uint32_t chunk) {
  uint64_t bytes = 0;
  for (const LayerSpec& layer : spec.layers) {
    if (layer.mixer == LayerKind::delta_net) bytes += delta_bytes(spec.delta);
    if (layer.mixer == LayerKind::sliding_attention &&
        kv_capacity(spec, layer.mixer, context, chunk) < context)
      bytes += kv_bytes(spec, spec.sliding_window - 1);
  }
  return bytes;
}

Result<SequenceState> SequenceState::create(const ArchitectureSpec& spec, uint32_t context,
                                            uint32_t chunk) {
  SequenceState state;
  state.spec_ = spec;
  state.context_ = context;
  ASSIGN_OR_RETURN(state.memory_, AlignedBuffer::allocate(
                                      std::max<uint64_t>(state_bytes(spec, context, chunk), 1)));
  std::byte* next = state.memory_.data();
  for (const LayerSpec& layer : spec.layers) {
    Layer placed{.kind = layer.mixer};
    if (layer.mixer == LayerKind::delta_net) {
      state.has_delta_ = true;
      placed.delta = place_delta(spec.delta, next);
      next += delta_bytes(spec.delta);
    } else {
      const uint32_t capacity = kv_capacity(spec, layer.mixer, context, chunk);
      auto* const k = reinterpret_cast<float*>(next);
      placed.kv = {k, k + static_cast<size_t>(capacity) * spec.kv_width(), capacity};
      next += align_up(kv_bytes(spec, capacity), kAlign);
      if (layer.mixer == LayerKind::sliding_attention) state.ring_capacity_ = capacity;
    }
    state.layers_.push_back(placed);
  }
  CHECK(state.rewind(0));
  return state;
}

void SequenceState::reserve(uint32_t rows) {
  CHECK(!torn_);
  CHECK(rows <= context_ - length_);
  CHECK(ring_capacity_ == 0 || ring_capacity_ == context_ ||
        rows + spec_.sliding_window <= ring_capacity_ + 1);
  torn_ = has_delta_;
  if (ring_capacity_ != 0 && length_ + rows > ring_capacity_)
    ring_oldest_ = std::max(ring_oldest_, length_ + rows - ring_capacity_);
}

void SequenceState::advance(uint32_t rows) {
  length_ += rows;
  torn_ = false;
}

bool SequenceState::rewind(uint32_t length) {
  CHECK(length <= length_);
  if (length == 0) {
    // Only what is read before it is written: the state and the convolution's inputs.
    for (const Layer& layer : layers_) {
      if (layer.kind != LayerKind::delta_net) continue;
      std::fill_n(layer.delta.state, delta_state_values(spec_.delta), 0.0f);
      std::fill_n(layer.delta.conv, delta_conv_values(spec_.delta), 0.0f);
    }
    length_ = ring_oldest_ = 0;
    torn_ = false;
    return true;
  }
  if (has_delta_ && (torn_ || length != length_)) return false;
  if (ring_capacity_ != 0 && window_start(spec_, length) < ring_oldest_) return false;
  length_ = length;
  return true;
}

// Calls fn(pointer, bytes) for each contiguous piece; stops where it returns false.
template <typename Fn>
bool SequenceState::visit(Part part, uint32_t length, Fn&& fn) const {
  const size_t row = spec_.head_dim * sizeof(float);
  const auto piece = [&](auto* at, uint64_t count) {
    return fn(reinterpret_cast<std::byte*>(at), count * sizeof(*at));
  };
  for (const Layer& layer : layers_) {
    if (layer.kind == LayerKind::delta_net) {
      const DeltaNetSpec& d = spec_.delta;
      const DeltaView& v = layer.delta;
      if (!piece(v.state, delta_state_values(d)) || !piece(v.keys, delta_key_values(d)) ||
          !piece(v.log_decay, uint64_t{d.value_heads} * kDeltaBlock) ||
          !piece(v.deltas, delta_delta_values(d)) || !piece(v.conv, delta_conv_values(d)))
        return false;
      continue;
    }
    const bool slides = layer.kind == LayerKind::sliding_attention;
    if (part == Part::overwritten && (!slides || layer.kv.capacity == context_)) continue;
    for (float* plane : {layer.kv.k, layer.kv.v})
      for (uint32_t head = 0; head < spec_.kv_heads; ++head) {
        float* const start = plane + static_cast<size_t>(head) * layer.kv.capacity * spec_.head_dim;
        if (!slides) {
          if (!piece(start, uint64_t{length} * spec_.head_dim)) return false;
          continue;
        }
        for (uint32_t p = window_start(spec_, length); p < length; ++p)
          if (!fn(reinterpret_cast<std::byte*>(start) + (p % layer.kv.capacity) * row, row))
            return false;
      }
  }
  return true;
}

bool SequenceState::can_save(uint32_t length) const {
  if (torn_ || length > length_) return false;
  if (has_delta_) return length == length_;
  return ring_capacity_ == 0 || window_start(spec_, length) >= ring_oldest_;
}

void SequenceState::save(std::span<std::byte> snapshot, uint32_t length) const {
  CHECK(can_save(length));
  visit(Part::overwritten, length, [&](const std::byte* from, size_t bytes) {
    CHECK(bytes <= snapshot.size());
    std::memcpy(snapshot.data(), from, bytes);
    snapshot = snapshot.subspan(bytes);
    return true;
  });
}

void SequenceState::restore(std::span<const std::byte> snapshot, uint32_t length) {
  visit(Part::overwritten, length, [&](std::byte* to, size_t bytes) {
    CHECK(bytes <= snapshot.size());
    std::memcpy(to, snapshot.data(), bytes);
    snapshot = snapshot.subspan(bytes);
    return true;
  });
  adopt(length);
}

Status SequenceState::for_each_piece(uint32_t length,
                                     const std::function<Status(std::span<std::byte>)>& fn) const {
  Status status;
  visit(Part::everything, length, [&](std::byte* at, size_t bytes) {
    if (bytes > 0) status = fn({at, bytes});
    return status.ok();
  });
  return status;
}

void SequenceState::adopt(uint32_t length) {
  CHECK(length <= context_);
  length_ = length;
  ring_oldest_ = ring_capacity_ != 0 ? window_start(spec_, length) : 0;
  torn_ = false;
}

}  // namespace wader
