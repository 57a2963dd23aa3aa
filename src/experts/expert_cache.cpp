#include "experts/expert_cache.h"

#include <algorithm>

#include "base/check.h"
#include "base/error.h"
#include "base/hash.h"
#include "base/units.h"

namespace wader {
namespace {

// Of one record; the tag of a read is slot · kMaxPieces + piece.
constexpr uint64_t kMaxPieces = 64;
static_assert(2 * kMaxRecordExtents <= kMaxPieces);

// A read ahead that may be wrong is made in pieces, of which those that have not started are taken
// back when its pass comes: 2 MiB are 0.5 ms of a fast disk, 4 ms of a slow one, and large enough
// for its full rate.
constexpr uint64_t kAheadPieceBytes = 2 * kMiB;

// Of a record in the most extents still no more than kMaxPieces: each may end in a smaller one.
uint64_t ahead_piece_bytes(uint64_t slot_bytes) {
  constexpr uint64_t kWhole = kMaxPieces - kMaxRecordExtents;
  return std::max(kAheadPieceBytes, align_up((slot_bytes + kWhole - 1) / kWhole, kDirectAlignment));
}

// Of `extents`, each once.
std::string file_names(std::span<const SlotExtent> extents) {
  std::string names;
  for (size_t i = 0; i < extents.size(); ++i) {
    const File* const file = extents[i].from.file;
    const auto before = extents.first(i);
    if (std::any_of(before.begin(), before.end(), [&](const SlotExtent& other) {
          return other.from.file->path() == file->path();
        }))
      continue;
    names += (names.empty() ? "" : ", ") + file->path();
  }
  return names;
}

double seconds_between(std::chrono::steady_clock::time_point from,
                       std::chrono::steady_clock::time_point to) {
  return std::chrono::duration<double>(to - from).count();
}

}  // namespace

void ExpertCache::release(uint32_t slot) {
  policy_.unpin(slot);
  --leases_;
}

Result<std::unique_ptr<ExpertCache>> ExpertCache::create(const ExpertSource& source, uint32_t slots,
                                                         EvictionRule rule, ReadQueue& queue,
                                                         ThreadPool& threads) {
  CHECK(slots >= 1 && source.slot_bytes() % kDirectAlignment == 0 &&
        source.slot_bytes() >= source.record_bytes());
  const auto bytes = checked_mul(slots, source.slot_bytes());
  if (!bytes) return over_budget_error("{} slots are more than an address space holds", slots);
  ASSIGN_OR_RETURN(AlignedBuffer memory,
                   AlignedBuffer::allocate(*bytes, AlignedBuffer::Pages::huge));
  return std::unique_ptr<ExpertCache>(
      new ExpertCache(source, slots, rule, queue, threads, std::move(memory)));
}

ExpertCache::ExpertCache(const ExpertSource& source, uint32_t slots, EvictionRule rule,
                         ReadQueue& queue, ThreadPool& threads, AlignedBuffer memory)
    : source_(source),
      queue_(queue),
      threads_(threads),
      piece_bytes_(ahead_piece_bytes(source.slot_bytes())),
      policy_(slots, source.layers(), source.experts(), rule),
      memory_(std::move(memory)),
      record_starts_(slots),
      predictions_(source.layers()),
      reads_(slots),
      piece_digests_(record_pieces(source.record_bytes())),
      landed_(queue.capacity()) {
  ready_.reserve(source.experts());
  missing_.reserve(source.experts());
  predicted_.reserve(source.experts());
  pinned_.reserve(source.experts());
  loose_.reserve(slots);
  requests_.reserve(kMaxPieces);
}

// A read writes into the slots until it is complete.
ExpertCache::~ExpertCache() {
  if (open_) end();
  settle();
}

void ExpertCache::begin(uint32_t layer, std::span<const uint32_t> ids,
                        std::span<const uint32_t> uses) {
  CHECK(!open_ && layer < source_.layers() && ids.size() <= source_.experts() &&
        uses.size() == ids.size());
  open_ = true;
  layer_ = layer;
  ids_ = ids;
  uses_ = uses;
  ready_.clear();
  missing_.clear();
  ready_head_ = missing_head_ = 0;
  pass_reads_ = 0;
  pass_bytes_ = 0;
  waited_ = took_over_ = false;
  pass_start_ = Clock::now();
  (void)take_in(queue_.poll(landed_));  // what was read ahead; its errors are nobody's
  // Residents are pinned before any slot is given to a missing one, so that no hit of this pass is
  // evicted by it.
  for (uint32_t i = 0; i < ids.size(); ++i) {
    if (const auto loose = find_loose(layer, ids[i])) {
      const uint32_t slot = loose_[*loose];
      loose_.erase(loose_.begin() + static_cast<ptrdiff_t>(*loose));
      adopt(slot, i, uses[i]);
      ++counters_.misses;
    } else if (const auto slot = policy_.pin_resident(layer, ids[i], uses[i])) {
      ready_.push_back({*slot, i});
      ++counters_.hits;
    } else {
      missing_.push_back(i);
      ++counters_.misses;
    }
  }
  drop_ahead();
  if (!missing_.empty()) ++counters_.bursts[std::min(missing_.size(), ExpertCounters::kBursts)];
  submit_more();
}

// Makes a record that was read ahead, or is being read, the pass's own.
void ExpertCache::adopt(uint32_t slot, uint32_t index, uint32_t uses) {
  Read& read = reads_[slot];
  policy_.count_uses(read.layer, read.expert, uses);
  count_prediction(read.layer, /*right=*/true);
  read.reader = ReadFor::pass;
  read.index = index;
  counters_.hidden_seconds += seconds_of(read.bytes_landed);
  if (read.pieces_in_flight == 0) {
    ready_.push_back({slot, index});
    return;
  }
  ++pass_reads_;
  took_over_ = true;
  // What has not started goes to the end of the reads that are asked for, before all others ahead.
  uint64_t withdrawn = 0;
  for (uint64_t piece = 0; piece < pieces_of(read); ++piece)
    if (queue_.withdraw(slot * kMaxPieces + piece)) withdrawn |= uint64_t{1} << piece;
  if (withdrawn != 0) submit_pieces(slot, withdrawn);
}

void ExpertCache::predict(uint32_t layer, std::span<const uint32_t> ids, Certainty certainty) {
  CHECK(layer < source_.layers() && ids.size() <= source_.experts() && (!open_ || layer != layer_));
  drop_ahead();
  ahead_layer_ = layer;
  ahead_certainty_ = certainty;
  predicted_.assign(ids.begin(), ids.end());
  submit_more();
}

// Gives up every prediction that no pass has taken over.
void ExpertCache::drop_ahead() {
  predicted_.clear();
  predicted_head_ = 0;
  std::erase_if(loose_, [this](uint32_t slot) { return drop(slot); });
  note_idle();
}

// True when nothing of the slot's read is left in flight: it is then free, or an unpinned resident.
bool ExpertCache::drop(uint32_t slot) {
  Read& read = reads_[slot];
  if (read.reader == ReadFor::nobody) return false;
  read.reader = ReadFor::nobody;
  counters_.wasted_bytes += read.bytes_landed;
  if (read.pieces_in_flight == 0) {
    count_prediction(read.layer, /*right=*/false);
    policy_.unpin(slot);
    return true;
  }
  uint64_t bytes_in_flight = read.bytes - read.bytes_landed;
  for (uint64_t piece = 0; piece < pieces_of(read); ++piece)
    if (queue_.withdraw(slot * kMaxPieces + piece)) {
      --read.pieces_in_flight;
      bytes_in_flight -= piece_of(read, piece).from.bytes;
    }
  if (read.bytes_landed > 0 || read.pieces_in_flight > 0)
    count_prediction(read.layer, /*right=*/false);
  if (read.pieces_in_flight > 0) {
    if (!missing_.empty()) counters_.delay_seconds += seconds_of(bytes_in_flight);
    return false;
  }
  policy_.release_failed(slot);
  return true;
}

void ExpertCache::count_prediction(uint32_t layer, bool right) {
  ++counters_.predicted;
  ++predictions_[layer].predicted;
  if (!right) return;
  ++counters_.predicted_right;
  ++predictions_[layer].right;
}

void ExpertCache::submit_more() {
  if (submit_missing()) submit_ahead();
}

// Submits what slots and queue have room for; true when nothing is left.
bool ExpertCache::submit_missing() {
  for (; missing_head_ < missing_.size(); ++missing_head_) {
    const uint32_t index = missing_[missing_head_];
    const auto slot = submit_record(layer_, ids_[index], uses_[index], ReadFor::pass);
    if (!slot) return false;
    reads_[*slot].index = index;
    ++pass_reads_;
    pass_bytes_ += reads_[*slot].bytes;
  }
  return true;
}

// What is only likely one after the other: a slot given to a read that then does not start has lost
// what it held for nothing. A predicted expert that is resident is no victim of one that is not.
void ExpertCache::submit_ahead() {
  if (predicted_head_ == predicted_.size() ||
      (ahead_certainty_ == Certainty::likely && reads_ahead()))
    return;
  pinned_.clear();
  for (const uint32_t expert : predicted_) {
    if (find_loose(ahead_layer_, expert)) continue;  // pinned since it was submitted
    if (const auto slot = policy_.pin_resident(ahead_layer_, expert, 0)) pinned_.push_back(*slot);
  }
  for (; predicted_head_ < predicted_.size(); ++predicted_head_) {
    const uint32_t expert = predicted_[predicted_head_];
    if (policy_.is_resident(ahead_layer_, expert)) continue;
    if (ahead_certainty_ == Certainty::likely && reads_ahead()) break;
    const auto slot = submit_record(ahead_layer_, expert, 0, ReadFor::ahead);
    if (!slot) break;
    loose_.push_back(*slot);
  }
  for (const uint32_t slot : pinned_) policy_.unpin(slot);
}

bool ExpertCache::reads_ahead() const {
  return std::any_of(loose_.begin(), loose_.end(),
                     [this](uint32_t slot) { return reads_[slot].pieces_in_flight > 0; });
}

// The slot, or nothing when no slot or no place in the queue is free.
std::optional<uint32_t> ExpertCache::submit_record(uint32_t layer, uint32_t expert, uint32_t uses,
                                                   ReadFor reader) {
  Read read;
  read.layer = layer;
  read.expert = expert;
  read.reader = reader;
  read.submitted = Clock::now();
  for (const SlotExtent& extent : source_.extents(layer, expert)) read.bytes += extent.from.bytes;
  read.split = reader == ReadFor::ahead && ahead_certainty_ == Certainty::likely;
  if (read.split && pieces_of(read) > queue_.capacity()) read.split = false;
  const uint64_t pieces = pieces_of(read);
  CHECK(pieces >= 1 && pieces <= kMaxPieces && pieces <= queue_.capacity());
  if (queue_.in_flight() + pieces > queue_.capacity()) return {};
  const auto slot = policy_.reserve(layer, expert, uses);
  if (!slot) return {};
  read.pieces_in_flight = static_cast<uint32_t>(pieces);
  reads_[*slot] = read;
  submit_pieces(*slot, pieces == kMaxPieces ? ~uint64_t{0} : (uint64_t{1} << pieces) - 1);
  return slot;
}

// A record is read in its extents, or these in parts.
uint64_t ExpertCache::pieces_of(const Read& read) const {
  const std::span<const SlotExtent> extents = source_.extents(read.layer, read.expert);
  if (!read.split) return extents.size();
  uint64_t pieces = 0;
  for (const SlotExtent& extent : extents) pieces += pieces_in(extent);
  return pieces;
}

uint64_t ExpertCache::pieces_in(const SlotExtent& extent) const {
  return (extent.from.bytes + piece_bytes_ - 1) / piece_bytes_;
}

SlotExtent ExpertCache::piece_of(const Read& read, uint64_t piece) const {
  const std::span<const SlotExtent> extents = source_.extents(read.layer, read.expert);
  if (!read.split) return extents[piece];
  size_t i = 0;
  for (; piece >= pieces_in(extents[i]); ++i) piece -= pieces_in(extents[i]);
  const auto& [from, slot_offset_bytes] = extents[i];
  const uint64_t begin = piece * piece_bytes_;
  return {{from.file, from.offset_bytes + begin, std::min(piece_bytes_, from.bytes - begin)},
          slot_offset_bytes + begin};
}

// What reading so many bytes takes the disk.
double ExpertCache::seconds_of(uint64_t bytes) const {
  return waited_bytes_ == 0 ? 0 : waited_seconds_ * static_cast<double>(bytes) / waited_bytes_;
}

// The pieces of the slot's record whose bits are set.
void ExpertCache::submit_pieces(uint32_t slot, uint64_t pieces) {
  const Read& read = reads_[slot];
  requests_.clear();
  const std::span<std::byte> into = slot_of(slot);
  for (uint64_t piece = 0; piece < pieces_of(read); ++piece) {
    if ((pieces >> piece & 1) == 0) continue;
    const auto [from, slot_offset_bytes] = piece_of(read, piece);
    CHECK(in_file(slot_offset_bytes, from.bytes, into.size()));
    requests_.push_back({from, into.data() + slot_offset_bytes, slot * kMaxPieces + piece});
  }
  if (!busy_) busy_since_ = Clock::now();
  busy_ = true;
  queue_.submit(requests_, read.reader == ReadFor::pass ? ReadClass::demand : ReadClass::ahead);
}

std::optional<size_t> ExpertCache::find_loose(uint32_t layer, uint32_t expert) const {
  for (size_t i = 0; i < loose_.size(); ++i)
    if (const Read& read = reads_[loose_[i]]; read.reader == ReadFor::ahead &&
                                              read.layer == layer && read.expert == expert &&
                                              !read.failure)
      return i;
  return {};
}

Result<std::optional<ExpertCache::Lease>> ExpertCache::next() {
  CHECK(open_ && leases_ == 0);
  RETURN_IF_ERROR(std::exchange(failed_while_polling_, {}));
  // What landed while the owner computed was not waited for.
  RETURN_IF_ERROR(take_in(queue_.poll(landed_)));
  submit_more();
  if (ready_head_ == ready_.size() && pass_reads_ + missing_.size() > missing_head_) {
    const auto start = Clock::now();
    waited_ = true;
    while (ready_head_ == ready_.size() && pass_reads_ + missing_.size() > missing_head_) {
      // With no lease a slot is free, or one will be when a wrong prediction lands.
      CHECK(queue_.in_flight() > 0);
      RETURN_IF_ERROR(wait_for_reads());
      submit_more();
    }
    counters_.wait_seconds += seconds_between(start, Clock::now());
  }
  if (ready_head_ == ready_.size()) return std::optional<Lease>();
  return next_resident();
}

std::optional<ExpertCache::Lease> ExpertCache::next_resident() {
  CHECK(open_);
  if (queue_.in_flight() > 0) {
    Status status = take_in(queue_.poll(landed_));
    if (!status.ok() && failed_while_polling_.ok()) failed_while_polling_ = std::move(status);
    submit_more();
  }
  if (ready_head_ == ready_.size()) return {};
  const Ready ready = ready_[ready_head_++];
  ++leases_;
  return Lease(this, record_of(ready.slot), ready.slot, ready.index);
}

Status ExpertCache::wait_for_reads() {
  const size_t count = queue_.wait(landed_);
  const Clock::time_point now = Clock::now();
  const Read& read = reads_[landed_[0].tag / kMaxPieces];
  // Only a landing that was waited for tells how long reads take.
  uint64_t bytes = 0;
  for (const ReadCompletion& completion : std::span(landed_).first(count))
    bytes += completion.bytes_read;
  if (bytes > 0) {
    // The last eight records or so, of which what landed may be a small piece.
    const double records = static_cast<double>(bytes) / static_cast<double>(read.bytes);
    const double kept = 1 - std::min(records, 1.0) / 8;
    waited_bytes_ = waited_bytes_ * kept + static_cast<double>(bytes);
    waited_seconds_ = waited_seconds_ * kept +
                      seconds_between(std::max({read.submitted, last_landing_, busy_since_}), now);
  }
  return take_in(count);
}

// The first `count` of landed_. All are taken in before an error is returned: their slots and
// counts stay right.
Status ExpertCache::take_in(size_t count) {
  Status status;
  if (count == 0) return status;
  last_landing_ = Clock::now();
  for (size_t i = 0; i < count; ++i) {
    Status one = land(landed_[i]);
    if (!one.ok() && status.ok()) status = std::move(one);
  }
  note_idle();
  return status;
}

void ExpertCache::note_idle() {
  if (queue_.in_flight() > 0 || !busy_) return;
  busy_ = false;
  counters_.busy_seconds += seconds_between(busy_since_, Clock::now());
}

Status ExpertCache::land(const ReadCompletion& completion) {
  const auto slot = static_cast<uint32_t>(completion.tag / kMaxPieces);
  Read& read = reads_[slot];
  counters_.bytes_read += completion.bytes_read;
  read.bytes_landed += completion.bytes_read;
  if (read.reader == ReadFor::nobody) counters_.wasted_bytes += completion.bytes_read;
  if (completion.errno_value != 0 ||
      completion.bytes_read != piece_of(read, completion.tag % kMaxPieces).from.bytes)
    read.failure = completion;
  return --read.pieces_in_flight == 0 ? finish_record(slot) : Status();
}

// An error is the pass's alone.
Status ExpertCache::finish_record(uint32_t slot) {
  const Read& read = reads_[slot];
  const ReadFor reader = read.reader;
  if (reader == ReadFor::pass) {
    --pass_reads_;
    pass_landing_ = last_landing_;
  }
  if (reader == ReadFor::nobody) {
    give_up(slot);
    return {};
  }
  Status status = check_record(slot);
  if (!status.ok()) {
    give_up(slot);
    return reader == ReadFor::pass ? std::move(status) : Status();
  }
  policy_.commit(slot);
  if (reader == ReadFor::pass) ready_.push_back({slot, read.index});
  return {};
}

Status ExpertCache::check_record(uint32_t slot) {
  const Read& read = reads_[slot];
  if (read.failure)
    return read_error(*read.failure, piece_of(read, read.failure->tag % kMaxPieces).from)
        .within(fmt::format("layer {} expert {}", read.layer, read.expert));
  record_starts_[slot] = source_.assemble(read.layer, read.expert, slot_of(slot));
  if (record_digest(record_of(slot), threads_, piece_digests_) !=
      source_.digest(read.layer, read.expert))
    return corrupt_error("{}: layer {} expert {} does not match its checksum; {}",
                         file_names(source_.extents(read.layer, read.expert)), read.layer,
                         read.expert, source_.repair());
  return {};
}

// The slot is free again.
void ExpertCache::give_up(uint32_t slot) {
  if (reads_[slot].reader != ReadFor::pass) std::erase(loose_, slot);
  policy_.release_failed(slot);
}

void ExpertCache::end() {
  CHECK(open_ && leases_ == 0);
  // Only after an error is anything left here. What still lands is kept if it is good.
  while (pass_reads_ > 0) (void)wait_for_reads();
  for (; ready_head_ < ready_.size(); ++ready_head_) policy_.unpin(ready_[ready_head_].slot);
  failed_while_polling_ = {};
  missing_.clear();
  missing_head_ = 0;
  ids_ = uses_ = {};
  if (waited_ && !took_over_) {
    counters_.waited_bytes += pass_bytes_;
    counters_.waited_seconds += seconds_between(pass_start_, pass_landing_);
  }
  open_ = false;
}

void ExpertCache::settle() {
  CHECK(!open_);
  drop_ahead();
  while (queue_.in_flight() > 0) (void)wait_for_reads();
}

void ExpertCache::set_usable_slots(uint32_t slots) {
  CHECK(!open_ && slots >= 1 && slots <= policy_.slot_count());
  drop_ahead();
  while (policy_.usable_count() > slots) {
    const auto slot = policy_.retire();
    if (!slot) return;  // all others are pinned: the next call goes on
    memory_.release(*slot * source_.slot_bytes(), source_.slot_bytes());
  }
  while (policy_.usable_count() < slots) {
    const auto slot = policy_.restore();
    memory_.reclaim(*slot * source_.slot_bytes(), source_.slot_bytes());
  }
}

}  // namespace wader
