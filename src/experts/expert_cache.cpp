#include "experts/expert_cache.h"

#include <chrono>

#include "base/check.h"
#include "base/error.h"
#include "base/hash.h"
#include "base/units.h"

namespace wader {
namespace {

constexpr uint64_t kMaxPieces =
    64;  // of one record; the tag of a read is slot · kMaxPieces + piece

}  // namespace

ExpertCache::Lease::~Lease() {
  if (cache_ == nullptr) return;
  cache_->policy_.unpin(slot_);
  --cache_->leases_;
}

ExpertCache::Lease& ExpertCache::Lease::operator=(Lease&& other) noexcept {
  Lease taken(std::move(other));
  std::swap(cache_, taken.cache_);
  std::swap(slot_, taken.slot_);
  std::swap(index_, taken.index_);
  return *this;
}

std::span<const std::byte> ExpertCache::Lease::record() const {
  return {cache_->record_of(slot_), static_cast<size_t>(cache_->source_.record_bytes())};
}

Result<std::unique_ptr<ExpertCache>> ExpertCache::create(const ExpertSource& source, uint32_t slots,
                                                         EvictionRule rule, ReadQueue& queue) {
  CHECK(slots >= 1 && source.record_bytes() % kDirectAlignment == 0);
  const auto bytes = checked_mul(slots, source.record_bytes());
  if (!bytes) return over_budget_error("{} slots are more than an address space holds", slots);
  ASSIGN_OR_RETURN(AlignedBuffer memory,
                   AlignedBuffer::allocate(*bytes, AlignedBuffer::Pages::huge));
  return std::unique_ptr<ExpertCache>(
      new ExpertCache(source, slots, rule, queue, std::move(memory)));
}

ExpertCache::ExpertCache(const ExpertSource& source, uint32_t slots, EvictionRule rule,
                         ReadQueue& queue, AlignedBuffer memory)
    : source_(source),
      queue_(queue),
      policy_(slots, source.layers(), source.experts(), rule),
      memory_(std::move(memory)),
      reads_(slots),
      landed_(queue.capacity()) {
  ready_.reserve(source.experts());
  missing_.reserve(source.experts());
  requests_.reserve(kMaxPieces);
}

ExpertCache::~ExpertCache() {
  if (open_) end();
}

void ExpertCache::begin(uint32_t layer, std::span<const uint32_t> ids) {
  CHECK(!open_ && layer < source_.layers() && ids.size() <= source_.experts());
  open_ = true;
  layer_ = layer;
  ids_ = ids;
  ready_.clear();
  missing_.clear();
  ready_head_ = missing_head_ = 0;
  // Residents are pinned before any slot is given to a missing one, so that no hit of this pass is
  // evicted by it.
  for (uint32_t i = 0; i < ids.size(); ++i) {
    if (const auto slot = policy_.pin_resident(layer, ids[i], 1)) {
      ready_.push_back({*slot, i});
      ++counters_.hits;
    } else {
      missing_.push_back(i);
      ++counters_.misses;
    }
  }
  submit_missing();
}

void ExpertCache::submit_missing() {
  while (missing_head_ < missing_.size()) {
    const uint32_t index = missing_[missing_head_];
    const auto pieces = source_.extents(layer_, ids_[index]).size();
    CHECK(pieces >= 1 && pieces <= kMaxPieces && pieces <= queue_.capacity());
    if (queue_.in_flight() + pieces > queue_.capacity()) return;
    const auto slot = policy_.reserve(layer_, ids_[index], 1);
    if (!slot) return;
    ++missing_head_;
    submit_record(*slot, index);
  }
}

void ExpertCache::submit_record(uint32_t slot, uint32_t index) {
  const auto extents = source_.extents(layer_, ids_[index]);
  reads_[slot] = {index, static_cast<uint32_t>(extents.size()), false};
  requests_.clear();
  std::byte* into = record_of(slot);
  for (uint64_t piece = 0; piece < extents.size(); ++piece) {
    requests_.push_back({extents[piece], into, slot * kMaxPieces + piece});
    into += extents[piece].bytes;
  }
  CHECK(into == record_of(slot) + source_.record_bytes());
  queue_.submit(requests_);
}

Result<std::optional<ExpertCache::Lease>> ExpertCache::next() {
  CHECK(open_ && leases_ == 0);
  submit_missing();
  if (ready_head_ == ready_.size() && queue_.in_flight() > 0) {
    const auto start = std::chrono::steady_clock::now();
    while (ready_head_ == ready_.size() && queue_.in_flight() > 0)
      RETURN_IF_ERROR(wait_for_reads());
    counters_.wait_seconds +=
        std::chrono::duration<double>(std::chrono::steady_clock::now() - start).count();
  }
  if (ready_head_ == ready_.size()) {
    CHECK(missing_head_ ==
          missing_.size());  // with no lease and nothing in flight, a slot is always free
    return std::optional<Lease>();
  }
  return next_resident();
}

std::optional<ExpertCache::Lease> ExpertCache::next_resident() {
  CHECK(open_);
  if (ready_head_ == ready_.size()) return {};
  const Ready ready = ready_[ready_head_++];
  ++leases_;
  return Lease(this, ready.slot, ready.index);
}

// All completions are taken in before an error is returned: their slots and counts stay right.
Status ExpertCache::wait_for_reads() {
  Status status;
  const size_t n = queue_.wait(landed_);
  for (size_t i = 0; i < n; ++i) {
    Status one = land(landed_[i]);
    if (!one.ok() && status.ok()) status = std::move(one);
  }
  return status;
}

Status ExpertCache::land(const ReadCompletion& completion) {
  const auto slot = static_cast<uint32_t>(completion.tag / kMaxPieces);
  Read& read = reads_[slot];
  const uint32_t expert = ids_[read.index];
  const Extent& extent = source_.extents(layer_, expert)[completion.tag % kMaxPieces];
  Status status;
  counters_.bytes_read += completion.bytes_read;
  if (completion.errno_value != 0 || completion.bytes_read != extent.bytes) {
    read.failed = true;
    status =
        read_error(completion, extent).within(fmt::format("layer {} expert {}", layer_, expert));
  }
  if (--read.pieces_in_flight > 0) return status;
  if (!read.failed) return finish_record(slot);
  policy_.release_failed(slot);
  return status;
}

Status ExpertCache::finish_record(uint32_t slot) {
  const Read& read = reads_[slot];
  const uint32_t expert = ids_[read.index];
  const std::span<const std::byte> record(record_of(slot),
                                          static_cast<size_t>(source_.record_bytes()));
  if (xxh3_64(record) != source_.digest(layer_, expert)) {
    policy_.release_failed(slot);
    return corrupt_error(
        "{}: layer {} expert {} does not match its checksum; `wader verify` lists all damage, "
        "`wader rm` and installing again repairs it",
        source_.extents(layer_, expert)[0].file->path(), layer_, expert);
  }
  policy_.commit(slot);
  ready_.push_back({slot, read.index});
  return {};
}

void ExpertCache::end() {
  CHECK(open_ && leases_ == 0);
  // Only after an error is anything left here. What still lands is kept if it is good.
  while (queue_.in_flight() > 0) (void)wait_for_reads();
  for (; ready_head_ < ready_.size(); ++ready_head_) policy_.unpin(ready_[ready_head_].slot);
  open_ = false;
}

void ExpertCache::set_usable_slots(uint32_t slots) {
  CHECK(!open_ && slots >= 1 && slots <= policy_.slot_count());
  while (policy_.usable_count() > slots) {
    const auto slot = policy_.retire();
    if (!slot) return;  // all others are pinned: the next call goes on
    memory_.release(*slot * source_.record_bytes(), source_.record_bytes());
  }
  while (policy_.usable_count() < slots) {
    const auto slot = policy_.restore();
    memory_.reclaim(*slot * source_.record_bytes(), source_.record_bytes());
  }
}

}  // namespace wader
