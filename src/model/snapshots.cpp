#include "model/snapshots.h"

#include <algorithm>
#include <tuple>

#include "base/check.h"
#include "base/units.h"

namespace wader {

size_t replaceable(std::span<const SnapshotMark> marks, size_t incoming) {
  CHECK(marks.size() >= 2 && incoming < marks.size());
  const auto periodic = [](const SnapshotMark& m) { return m.kind == SnapshotKind::periodic; };
  if (periodic(marks[incoming]) && std::count_if(marks.begin(), marks.end(), periodic) == 1)
    return incoming;
  // The stretch between the neighbours of a mark that is gone; nothing follows the last one.
  const auto cost = [&](size_t i) {
    const uint32_t before = i > 0 ? marks[i - 1].position : 0;
    const uint32_t after = i + 1 < marks.size() ? marks[i + 1].position : marks[i].position;
    return std::tuple(marks[i].kind, after - before);
  };
  size_t best = incoming == 0 ? 1 : 0;
  for (size_t i = best + 1; i < marks.size(); ++i)
    if (i != incoming && cost(i) < cost(best)) best = i;
  return best;
}

Result<Snapshots> Snapshots::create(uint64_t bytes_each, uint32_t count) {
  Snapshots snapshots;
  if (bytes_each == 0 || count == 0) return snapshots;
  snapshots.snapshot_bytes_ = bytes_each;
  snapshots.bytes_each_ = align_up(bytes_each, 64);
  snapshots.capacity_ = count;
  ASSIGN_OR_RETURN(snapshots.memory_, AlignedBuffer::allocate(snapshots.bytes_each_ * count));
  snapshots.entries_.reserve(count);
  snapshots.marks_.reserve(count + 1);
  for (size_t i = 0; i < count; ++i) snapshots.free_.push_back(i);
  return snapshots;
}

void Snapshots::keep(const SequenceState& state, uint32_t position, SnapshotKind kind) {
  if (const auto into = place(position, kind); !into.empty()) state.save(into, position);
}

std::span<std::byte> Snapshots::place(uint32_t position, SnapshotKind kind) {
  if (!enabled() || position == 0) return {};
  const auto at = [&] {
    return std::lower_bound(entries_.begin(), entries_.end(), position,
                            [](const Entry& e, uint32_t p) { return e.mark.position < p; });
  };
  if (const auto same = at(); same != entries_.end() && same->mark.position == position) {
    same->mark.kind = std::max(same->mark.kind, kind);
    return {};
  }
  if (free_.empty()) {
    const size_t incoming = static_cast<size_t>(at() - entries_.begin());
    marks_.clear();
    for (const Entry& entry : entries_) marks_.push_back(entry.mark);
    marks_.insert(marks_.begin() + static_cast<ptrdiff_t>(incoming), {position, kind});
    const size_t gone = replaceable(marks_, incoming);
    if (gone == incoming) return {};
    const auto victim =
        entries_.begin() + static_cast<ptrdiff_t>(gone < incoming ? gone : gone - 1);
    free_.push_back(victim->slot);
    entries_.erase(victim);
  }
  const size_t slot = free_.back();
  free_.pop_back();
  entries_.insert(at(), Entry{{position, kind}, slot});
  return memory_.span().subspan(slot * bytes_each_, snapshot_bytes_);
}

std::span<const std::byte> Snapshots::bytes(uint32_t position) const {
  for (const Entry& entry : entries_)
    if (entry.mark.position == position)
      return memory_.span().subspan(entry.slot * bytes_each_, snapshot_bytes_);
  UNREACHABLE("no snapshot at this position");
}

uint32_t Snapshots::latest_turn(uint32_t length) const {
  uint32_t found = 0;
  for (const Entry& entry : entries_)
    if (entry.mark.position < length && entry.mark.kind == SnapshotKind::turn_boundary)
      found = entry.mark.position;
  return found;
}

uint32_t Snapshots::latest(uint32_t length) const {
  uint32_t found = 0;
  for (const Entry& entry : entries_)
    if (entry.mark.position <= length) found = entry.mark.position;
  return found;
}

void Snapshots::restore(SequenceState& state, uint32_t position) const {
  state.restore(bytes(position), position);
}

void Snapshots::forget_after(uint32_t length) {
  while (!entries_.empty() && entries_.back().mark.position > length) {
    free_.push_back(entries_.back().slot);
    entries_.pop_back();
  }
}

}  // namespace wader
