#include "tokenizer/bpe.h"

#include <algorithm>
#include <functional>
#include <utility>

#include "base/check.h"

namespace wader {
namespace {

// At the table's load of one half, linear probing's longest run over 2^20 keys is around 50.
constexpr int kMaxProbes = 512;

}  // namespace

size_t MergeTable::home(uint32_t left, uint32_t right) const {
  uint64_t hash = (uint64_t{left} << 32 | right) * 0x9E3779B97F4A7C15u;
  hash ^= hash >> 32;
  hash *= 0xD6E8FEB86659FD93u;
  // High bits of hash · size: [0, 2^32) scaled to any table size, without a division.
  return static_cast<size_t>((hash >> 32) * slots_.size() >> 32);
}

bool MergeTable::build(std::vector<Merge> merges, size_t* culprit) {
  CHECK(merges.size() < size_t{1} << 31);
  slots_.assign(merges.size() * 2, Slot{});
  results_.resize(merges.size());
  for (size_t i = 0; i < merges.size(); ++i) {
    const Merge& merge = merges[i];
    *culprit = i;
    size_t at = home(merge.left, merge.right);
    for (int probes = 0; slots_[at].rank != kNoRank; ++probes) {
      if (slots_[at].left == merge.left && slots_[at].right == merge.right) return false;
      if (probes == kMaxProbes) return false;
      if (++at == slots_.size()) at = 0;
    }
    slots_[at] = {merge.left, merge.right, static_cast<uint32_t>(i)};
    results_[i] = merge.result;
  }
  return true;
}

uint32_t MergeTable::rank(uint32_t left, uint32_t right) const {
  if (slots_.empty()) return kNoRank;
  size_t at = home(left, right);
  for (int probes = 0; probes <= kMaxProbes; ++probes) {  // no key is farther from home
    const Slot& slot = slots_[at];
    if (slot.rank == kNoRank || (slot.left == left && slot.right == right)) return slot.rank;
    if (++at == slots_.size()) at = 0;
  }
  return kNoRank;
}

void BpeMerger::merge(std::vector<uint32_t>& ids) {
  if (ids.size() < 2) return;
  if (ids.size() <= kScanMax) {
    merge_by_scan(ids);
  } else {
    merge_by_heap(ids);
  }
}

void BpeMerger::merge_by_scan(std::vector<uint32_t>& ids) {
  if (ids.size() < 2) return;
  ranks_.resize(ids.size() - 1);  // ranks_[i]: of the pair (i, i + 1)
  for (size_t i = 0; i + 1 < ids.size(); ++i) ranks_[i] = merges_.rank(ids[i], ids[i + 1]);
  while (!ranks_.empty()) {
    const auto best = std::min_element(ranks_.begin(), ranks_.end());  // the first of equals
    if (*best == MergeTable::kNoRank) break;
    const auto i = static_cast<size_t>(best - ranks_.begin());
    ids[i] = merges_.result(*best);
    ids.erase(ids.begin() + static_cast<ptrdiff_t>(i) + 1);
    ranks_.erase(best);
    if (i > 0) ranks_[i - 1] = merges_.rank(ids[i - 1], ids[i]);
    if (i < ranks_.size()) ranks_[i] = merges_.rank(ids[i], ids[i + 1]);
  }
}

void BpeMerger::update_rank(uint32_t index) {
  Symbol& symbol = symbols_[index];
  symbol.rank = symbol.next == kNone ? MergeTable::kNoRank
                                     : merges_.rank(symbol.id, symbols_[symbol.next].id);
  if (symbol.rank == MergeTable::kNoRank) return;
  heap_.push_back(uint64_t{symbol.rank} << 32 | index);
  std::push_heap(heap_.begin(), heap_.end(), std::greater<>());
}

void BpeMerger::merge_by_heap(std::vector<uint32_t>& ids) {
  if (ids.size() < 2) return;
  CHECK(ids.size() < kNone);
  const auto count = static_cast<uint32_t>(ids.size());
  symbols_.resize(count);
  heap_.clear();
  for (uint32_t i = 0; i < count; ++i) {
    const uint32_t next = i + 1 < count ? i + 1 : kNone;
    const uint32_t rank = next == kNone ? MergeTable::kNoRank : merges_.rank(ids[i], ids[next]);
    symbols_[i] = {ids[i], i > 0 ? i - 1 : kNone, next, rank};
    if (rank != MergeTable::kNoRank) heap_.push_back(uint64_t{rank} << 32 | i);
  }
  std::make_heap(heap_.begin(), heap_.end(), std::greater<>());
  while (!heap_.empty()) {
    const uint64_t top = heap_.front();
    std::pop_heap(heap_.begin(), heap_.end(), std::greater<>());
    heap_.pop_back();
    const auto index = static_cast<uint32_t>(top);
    Symbol& symbol = symbols_[index];
    // A rank names its pair, so an entry is stale exactly when the symbol's pair has another rank
    // by now.
    if (symbol.rank != top >> 32) continue;
    Symbol& absorbed = symbols_[symbol.next];
    symbol.id = merges_.result(symbol.rank);
    absorbed.rank = MergeTable::kNoRank;
    symbol.next = absorbed.next;
    if (symbol.next != kNone) symbols_[symbol.next].previous = index;
    update_rank(index);
    if (symbol.previous != kNone) update_rank(symbol.previous);
  }
  ids.clear();
  for (uint32_t i = 0; i != kNone; i = symbols_[i].next) ids.push_back(symbols_[i].id);
}

}  // namespace wader
