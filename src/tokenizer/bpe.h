// Byte-pair merging (Sennrich, Haddow & Birch 2016): of all adjacent pairs that the merge list
// names, the one named earliest is joined, the leftmost of equals first, until none is left.
#pragma once

#include <cstddef>
#include <cstdint>
#include <limits>
#include <vector>

namespace wader {

struct Merge {
  uint32_t left, right;  // token ids
  uint32_t result;
};

// (left, right) → rank in the list and resulting id. An open-addressing table: 24 bytes a merge.
class MergeTable {
 public:
  static constexpr uint32_t kNoRank = std::numeric_limits<uint32_t>::max();

  MergeTable() = default;
  // False, with *culprit the index of a merge: the list names its pair twice, or its pairs were
  // chosen to collide (so many do not by chance). merges.size() < 2^31.
  bool build(std::vector<Merge> merges, size_t* culprit);

  uint32_t rank(uint32_t left, uint32_t right) const;  // kNoRank: no such merge
  uint32_t result(uint32_t rank) const { return results_[rank]; }

 private:
  struct Slot {
    uint32_t left, right;
    uint32_t rank = kNoRank;  // kNoRank: empty
  };
  size_t home(uint32_t left, uint32_t right) const;

  std::vector<Slot> slots_;
  std::vector<uint32_t> results_;  // by rank
};

// Merges sequences of ids in place. Keeps its memory between calls, about 32 bytes an id of the
// longest sequence; one per thread.
class BpeMerger {
 public:
  explicit BpeMerger(const MergeTable& merges) : merges_(merges) {}

  // O(n log n). Fewer than 2^32 - 1 ids.
  void merge(std::vector<uint32_t>& ids);

  // The two ways behind merge(), equal in result: the scan is O(n²), and faster up to kScanMax ids.
  static constexpr size_t kScanMax = 48;
  void merge_by_scan(std::vector<uint32_t>& ids);
  void merge_by_heap(std::vector<uint32_t>& ids);

 private:
  struct Symbol {
    uint32_t id;
    uint32_t previous, next;  // neighbours' indices, kNone at the ends
    uint32_t rank;  // of the pair (this, next); kNoRank also once this symbol is merged away
  };
  static constexpr uint32_t kNone = std::numeric_limits<uint32_t>::max();
  void update_rank(uint32_t index);

  const MergeTable& merges_;
  std::vector<uint32_t> ranks_;
  std::vector<Symbol> symbols_;
  std::vector<uint64_t>
      heap_;  // rank << 32 | index, smallest first; stale entries are skipped when met
};

}  // namespace wader
