// ExpertCache: the slots, and one pass's experts in them. Reads what is missing, verifies it, hands
// it out; reads ahead what the next pass will probably miss. One owner thread. Allocates nothing
// after construction.
#pragma once

#include <array>
#include <chrono>
#include <cstdint>
#include <memory>
#include <optional>
#include <span>
#include <string>
#include <string_view>
#include <vector>

#include "base/result.h"
#include "base/thread_pool.h"
#include "experts/counters.h"
#include "experts/slot_policy.h"
#include "io/aligned_buffer.h"
#include "io/read_queue.h"

namespace wader {

// A piece of what makes an expert's record: where it is read from, and where in a slot to.
struct SlotExtent {
  Extent from;
  uint64_t slot_offset_bytes;
};
constexpr uint64_t kMaxRecordPieces = 64;

// Where expert records stand and what they must hash to. Immutable.
class ExpertSource {
 public:
  virtual ~ExpertSource() = default;
  virtual uint32_t layers() const = 0;
  virtual uint32_t experts() const = 0;
  virtual uint64_t record_bytes() const = 0;  // the same for all
  // Of a slot, a multiple of kDirectAlignment: a record, and room for what is read beside it.
  virtual uint64_t slot_bytes() const { return record_bytes(); }
  // At most kMaxRecordPieces, none over another in the slot: the record itself in a container,
  // several pieces of a released file. What none of them fills is zero, or stays from earlier ones.
  virtual std::span<const SlotExtent> extents(uint32_t layer, uint32_t expert) const = 0;
  // Makes the record of what extents() brought, in one piece and with its padding zero, and returns
  // where in `slot` it begins. Allocates nothing.
  virtual uint64_t assemble(uint32_t layer, uint32_t expert, std::span<std::byte> slot) const {
    (void)layer, (void)expert, (void)slot;
    return 0;
  }
  virtual uint64_t digest(uint32_t layer, uint32_t expert) const = 0;
  // What to do about a record that is not what it was; ends an error message.
  virtual std::string_view repair() const {
    return "`wader verify` lists all damage, `wader rm` and installing again repairs it";
  }
};

class ExpertCache {
 public:
  // `slots` records of memory. `threads` check what was read. Everything passed by reference must
  // outlive the cache.
  static Result<std::unique_ptr<ExpertCache>> create(const ExpertSource& source, uint32_t slots,
                                                     EvictionRule rule, ReadQueue& queue,
                                                     ThreadPool& threads);
  ~ExpertCache();

  // A resident expert of the pass. Pinned while the lease lives.
  class Lease {
   public:
    Lease(Lease&& other) noexcept : cache_(other.cache_), slot_(other.slot_), index_(other.index_) {
      other.cache_ = nullptr;
    }
    Lease& operator=(Lease&& other) noexcept;
    ~Lease();
    uint32_t index() const { return index_; }  // into the ids of the pass
    std::span<const std::byte> record() const;

   private:
    friend class ExpertCache;
    Lease(ExpertCache* cache, uint32_t slot, uint32_t index)
        : cache_(cache), slot_(slot), index_(index) {}
    ExpertCache* cache_;
    uint32_t slot_, index_;
  };

  // Opens a pass over `ids`, distinct experts of `layer`, of which any number may be asked, and
  // submits the reads of the missing ones, in the order of `ids`, as far as slots and queue reach;
  // the rest follow as leases end. uses[i]: tokens that want ids[i]. Both must live until end().
  void begin(uint32_t layer, std::span<const uint32_t> ids, std::span<const uint32_t> uses);
  // Experts that the next pass over `layer` will probably ask, to be read in this order, at most
  // `most` that are not resident, once all reads of the open pass have been submitted. begin()
  // takes them over; those it does not ask for are withdrawn, or dropped when they land. An error
  // of such a read is nobody's until a pass asks for the expert and reads it again.
  void predict(uint32_t layer, std::span<const uint32_t> ids, uint32_t most);
  // The next expert: resident ones first, then as reads land; nothing when all were handed out. An
  // error (a failed read, a wrong checksum) names file and expert; call end() then.
  // While it waits no lease may be alive: their slots may be what the missing ones wait for.
  Result<std::optional<Lease>> next();
  // The next expert that is resident already; leases may be alive. Takes in what has landed.
  std::optional<Lease> next_resident();
  std::span<const uint32_t> ids() const { return ids_; }  // of the open pass
  // Closes the pass: waits for reads still in flight, unpins. No lease may be alive.
  void end();

  SlotPolicy& policy() { return policy_; }  // its history, for who keeps it between runs
  // Between passes: gives the memory of slots back until at most `slots` are usable, or takes slots
  // into use again until so many are. What a retired slot held is read again when it is wanted.
  // `slots`: 1 to slot_count().
  void set_usable_slots(uint32_t slots);

  uint32_t slot_count() const { return policy_.slot_count(); }
  uint32_t usable_count() const { return policy_.usable_count(); }
  uint32_t resident_count() const { return policy_.resident_count(); }
  double read_seconds() const { return read_seconds_; }
  double idle_seconds() const { return idle_seconds_; }
  const ExpertCounters& counters() const { return counters_; }
  void reset_counters() { counters_ = {}; }

 private:
  ExpertCache(const ExpertSource& source, uint32_t slots, EvictionRule rule, ReadQueue& queue,
              ThreadPool& threads, AlignedBuffer memory);

  using Clock = std::chrono::steady_clock;
  // Who waits for a slot's read. `ahead` keeps its slot pinned until a pass takes it or drops it;
  // `nobody` is a prediction that was wrong and could not be withdrawn.
  enum class ReadFor : uint8_t { pass, ahead, nobody };
  struct Read {  // of a reserved slot, from submission until the slot is handed out or given up
    uint32_t layer = 0, expert = 0;
    uint32_t index = 0;  // into ids_, of a pass's
    uint32_t pieces_in_flight = 0;
    ReadFor reader = ReadFor::pass;
    bool incomplete = false;  // a piece was withdrawn for good
    std::optional<ReadCompletion> failure;
    Clock::time_point submitted;
  };

  std::span<std::byte> slot_of(uint32_t slot) {
    return memory_.span().subspan(slot * source_.slot_bytes(), source_.slot_bytes());
  }
  std::span<const std::byte> record_of(uint32_t slot) {
    return slot_of(slot).subspan(record_starts_[slot], source_.record_bytes());
  }
  void submit_more();
  bool submit_missing();
  bool submit_ahead();
  std::optional<uint32_t> submit_record(uint32_t layer, uint32_t expert, uint32_t uses,
                                        ReadFor reader);
  void submit_pieces(uint32_t slot, uint64_t pieces);
  std::optional<size_t> find_loose(uint32_t layer, uint32_t expert) const;
  void adopt(uint32_t slot, uint32_t index, uint32_t uses, Clock::time_point now);
  void drop_ahead();
  bool drop(uint32_t slot);
  Status take_in(size_t count);
  void note_idle();
  Status land(const ReadCompletion& completion);
  Status finish_record(uint32_t slot);
  Status check_record(uint32_t slot);
  void give_up(uint32_t slot);
  Status wait_for_reads();

  const ExpertSource& source_;
  ReadQueue& queue_;
  ThreadPool& threads_;
  SlotPolicy policy_;
  AlignedBuffer memory_;                 // (slots, slot_bytes)
  std::vector<uint64_t> record_starts_;  // by slot: where in it its record begins
  ExpertCounters counters_;

  // The open pass.
  bool open_ = false;
  uint32_t layer_ = 0;
  std::span<const uint32_t> ids_, uses_;
  struct Ready {
    uint32_t slot, index;
  };
  std::vector<Ready> ready_;  // resident and pinned, not yet handed out; taken from ready_head_ on
  size_t ready_head_ = 0;
  std::vector<uint32_t>
      missing_;  // indices into ids_ whose reads are not submitted yet, from missing_head_ on
  size_t missing_head_ = 0;
  uint32_t leases_ = 0;
  uint32_t pass_reads_ = 0;  // records being read for it
  bool waited_ = false, took_over_ = false;
  uint64_t pass_bytes_ = 0;  // submitted since begin()
  Clock::time_point pass_start_;
  Status failed_while_polling_;

  // Predictions for the next pass.
  uint32_t ahead_layer_ = 0;
  std::vector<uint32_t> predicted_;  // not resident; submitted from predicted_head_ on
  size_t predicted_head_ = 0;
  std::vector<uint32_t> loose_;  // slots that are read ahead, or hold what was

  std::vector<Read> reads_;  // by slot
  std::vector<uint64_t> piece_digests_;
  std::vector<ReadCompletion> landed_;
  std::vector<ReadRequest> requests_;

  bool busy_ = false;  // a read is in flight, or landed unnoticed
  Clock::time_point busy_since_, idle_since_, last_landing_;
  double read_seconds_ = 0;  // of one record while the disk is busy; a moving average
  double idle_seconds_ = 0;  // of the disk before a pass begins; a moving average
};

}  // namespace wader
