// Snapshots: copies of one sequence's state at positions worth going back to, in memory that is
// taken once. Which ones are kept is decided by replaceable(), which is pure.
#pragma once

#include <cstdint>
#include <span>
#include <vector>

#include "base/result.h"
#include "io/aligned_buffer.h"
#include "model/state.h"

namespace wader {

enum class SnapshotKind : uint8_t {
  periodic,       // on the way through a long prompt or answer
  turn_boundary,  // where an answer begins or ends: regenerating and editing go back to these
};

struct SnapshotMark {
  uint32_t position;
  SnapshotKind kind;
};

// Which of `marks` (in order of position, two at least) gives way, `incoming` being the one that
// wants a place: a periodic one before a turn boundary, and the one whose loss leaves the shortest
// stretch to compute again. `incoming` itself only when it is periodic and no other is.
size_t replaceable(std::span<const SnapshotMark> marks, size_t incoming);

class Snapshots {
 public:
  // `count` snapshots of bytes_each; either may be 0, and nothing is then kept.
  static Result<Snapshots> create(uint64_t bytes_each, uint32_t count);

  bool enabled() const { return capacity_ > 0; }
  uint64_t snapshot_bytes() const { return snapshot_bytes_; }
  // Keeps what `state` was at `position`, where state.can_save(position). A position that is kept
  // already stays as it is.
  void keep(const SequenceState& state, uint32_t position, SnapshotKind kind);
  // The largest kept position <= `length`, 0 when there is none.
  uint32_t latest(uint32_t length) const;
  // `position` is one that latest() gave.
  void restore(SequenceState& state, uint32_t position) const;
  // The last turn boundary before `length`, 0 when there is none; and its bytes.
  uint32_t latest_turn(uint32_t length) const;
  std::span<const std::byte> bytes(uint32_t position) const;
  // A place for a snapshot that comes from elsewhere, to be filled with bytes(position) of another
  // Snapshots. Empty when nothing can be kept.
  std::span<std::byte> place(uint32_t position, SnapshotKind kind);

  // Drops what was kept beyond `length`: those positions have other tokens now.
  void forget_after(uint32_t length);

 private:
  struct Entry {
    SnapshotMark mark;
    size_t slot;
  };
  uint64_t snapshot_bytes_ = 0, bytes_each_ = 0;  // of one, and to the next
  uint32_t capacity_ = 0;
  AlignedBuffer memory_;
  std::vector<Entry> entries_;  // in order of position
  std::vector<size_t> free_;
  std::vector<SnapshotMark> marks_;  // scratch of keep()
};

}  // namespace wader
