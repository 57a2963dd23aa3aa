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

size_t value_bytes(DType kv_dtype) {
  CHECK(kv_dtype == DType::f32 || kv_dtype == DType::f16);
  return kv_dtype == DType::f32 ? sizeof(float) : sizeof(uint16_t);
}

// Keys (or values) of one layer.
uint64_t plane_bytes(const ArchitectureSpec& spec, uint64_t positions, DType kv_dtype) {
  return positions * spec.kv_width() * value_bytes(kv_dtype);
}

// Positions before `length` that a sliding layer's next query sees.
uint32_t window_start(const ArchitectureSpec& spec, uint32_t length) {
  return length >= spec.sliding_window ? length - (spec.sliding_window - 1) : 0;
}

}  // namespace

uint32_t kv_capacity(const ArchitectureSpec& spec, LayerKind kind, uint32_t context,
                     uint32_t chunk) {
  if (kind == LayerKind::delta_net) return 0;
  uint64_t positions = context;
  if (kind == LayerKind::sliding_attention)
    positions = std::min(positions, uint64_t{spec.sliding_window} + chunk + kRewindSlack);
  return static_cast<uint32_t>(align_up(positions, kAttentionBlock));
}

uint64_t state_bytes(const ArchitectureSpec& spec, const StateShape& shape) {
  uint64_t bytes = 0;
  for (const LayerSpec& layer : spec.layers)
    bytes +=
        layer.mixer == LayerKind::delta_net
            ? delta_bytes(spec.delta)
            : 2 * align_up(
                      plane_bytes(spec, kv_capacity(spec, layer.mixer, shape.context, shape.chunk),
                                  shape.kv_dtype),
                      kAlign);
  return bytes;
}

uint64_t snapshot_bytes(const ArchitectureSpec& spec, const StateShape& shape) {
  // Keys go tile by tile, and the window may begin and end inside one.
  const uint64_t values = spec.sliding_window - 1;
  const uint64_t keys = (values + 2 * (kKeyTile - 1)) / kKeyTile * kKeyTile;
  uint64_t bytes = 0;
  for (const LayerSpec& layer : spec.layers) {
    if (layer.mixer == LayerKind::delta_net) bytes += delta_bytes(spec.delta);
    if (layer.mixer == LayerKind::sliding_attention &&
        kv_capacity(spec, layer.mixer, shape.context, shape.chunk) < shape.context)
      bytes += plane_bytes(spec, keys + values, shape.kv_dtype);
  }
  return bytes;
}

Result<SequenceState> SequenceState::create(const ArchitectureSpec& spec, const StateShape& shape) {
  SequenceState state;
  state.spec_ = spec;
  state.context_ = shape.context;
  state.kv_value_bytes_ = value_bytes(shape.kv_dtype);
  ASSIGN_OR_RETURN(state.memory_,
                   AlignedBuffer::allocate(std::max<uint64_t>(state_bytes(spec, shape), 1)));
  std::byte* next = state.memory_.data();
  for (const LayerSpec& layer : spec.layers) {
    Layer placed{.kind = layer.mixer};
    if (layer.mixer == LayerKind::delta_net) {
      state.has_delta_ = true;
      placed.delta = place_delta(spec.delta, next);
      next += delta_bytes(spec.delta);
    } else {
      const uint32_t capacity = kv_capacity(spec, layer.mixer, shape.context, shape.chunk);
      const uint64_t plane = align_up(plane_bytes(spec, capacity, shape.kv_dtype), kAlign);
      placed.kv = {next, next + plane, capacity,
                   size_t{capacity} * spec.head_dim * state.kv_value_bytes_};
      next += 2 * plane;
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
  CHECK(ring_capacity_ == 0 || ring_capacity_ >= context_ ||
        rows + spec_.sliding_window <= ring_capacity_ + 1);
  torn_ = has_delta_;
  if (ring_capacity_ != 0 && length_ + rows > ring_capacity_)
    ring_oldest_ = std::max(ring_oldest_, length_ + rows - ring_capacity_);
}

void SequenceState::advance(uint32_t rows) {
  length_ += rows;
  torn_ = false;
}

bool SequenceState::can_rewind(uint32_t length) const {
  CHECK(length <= length_);
  if (length == 0) return true;
  if (has_delta_ && (torn_ || length != length_)) return false;
  return ring_capacity_ == 0 || window_start(spec_, length) >= ring_oldest_;
}

bool SequenceState::rewind(uint32_t length) {
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
  if (!can_rewind(length)) return false;
  length_ = length;
  return true;
}

// The keys and values of [begin, length), begin 0 unless the layer slides. Keys go in whole tiles.
template <typename Fn>
bool SequenceState::visit_kv(const Layer& layer, uint32_t length, Fn&& fn) const {
  const KvView& kv = layer.kv;
  const size_t row = spec_.head_dim * kv_value_bytes_, tile = kKeyTile * row;
  const bool slides = layer.kind == LayerKind::sliding_attention;
  const uint32_t begin = slides ? window_start(spec_, length) : 0;
  for (uint32_t head = 0; head < spec_.kv_heads; ++head) {
    std::byte* const k = kv.k + head * kv.head_bytes;
    if (!slides && !fn(k, (size_t{length} + kKeyTile - 1) / kKeyTile * tile)) return false;
    for (uint32_t p = begin / kKeyTile * kKeyTile; slides && p < length; p += kKeyTile)
      if (!fn(k + p % kv.capacity / kKeyTile * tile, tile)) return false;
  }
  for (uint32_t head = 0; head < spec_.kv_heads; ++head) {
    std::byte* const v = kv.v + head * kv.head_bytes;
    if (!slides && !fn(v, length * row)) return false;
    for (uint32_t p = begin; slides && p < length; ++p)
      if (!fn(v + p % kv.capacity * row, row)) return false;
  }
  return true;
}

// Calls fn(pointer, bytes) for each contiguous piece; stops where it returns false.
template <typename Fn>
bool SequenceState::visit(Part part, uint32_t length, Fn&& fn) const {
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
    const bool whole_context =
        layer.kind == LayerKind::full_attention || layer.kv.capacity >= context_;
    if (part == Part::overwritten && whole_context) continue;
    if (!visit_kv(layer, length, fn)) return false;
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

void SequenceState::copy_from(const SequenceState& other, uint32_t length) {
  CHECK(memory_.size() == other.memory_.size() && length <= other.length_);
  other.visit(Part::everything, length, [&](const std::byte* from, size_t bytes) {
    std::memcpy(memory_.data() + (from - other.memory_.data()), from, bytes);
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
