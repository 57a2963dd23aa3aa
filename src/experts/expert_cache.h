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
#include "experts/experts.h"
#include "experts/slot_policy.h"
#include "io/aligned_buffer.h"
#include "io/read_queue.h"

namespace wader {

// A piece of what makes an expert's record: where it is read from, and where in a slot to.
struct SlotExtent {
  Extent from;
  uint64_t slot_offset_bytes;
};
constexpr uint64_t kMaxRecordExtents = 16;

// Where expert records stand and what they must hash to. Immutable.
class ExpertSource {
 public:
  virtual ~ExpertSource() = default;
  virtual uint32_t layers() const = 0;
  virtual uint32_t experts() const = 0;
  virtual uint64_t record_bytes() const = 0;  // the same for all
  // Of a slot, a multiple of kDirectAlignment: a record, and room for what is read beside it.
  virtual uint64_t slot_bytes() const { return record_bytes(); }
  // At most kMaxRecordExtents, none over another in the slot: the record itself in a container,
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

class ExpertCache final : public Experts {
 public:
  // `slots` records of memory. `threads` check what was read. Everything passed by reference must
  // outlive the cache.
  static Result<std::unique_ptr<ExpertCache>> create(const ExpertSource& source, uint32_t slots,
                                                     EvictionRule rule, ReadQueue& queue,
                                                     ThreadPool& threads);
  ~ExpertCache() override;

  // Submits the reads of the missing experts as far as slots and queue reach; the rest follow as
  // leases end.
  void begin(uint32_t layer, std::span<const uint32_t> ids,
             std::span<const uint32_t> uses) override;
  std::span<const uint32_t> ids() const override { return ids_; }
  // What is only likely is read in pieces, so that little is lost when it was wrong: those that
  // have not started are withdrawn. An error of such a read is nobody's until a pass asks for the
  // expert and reads it again.
  void predict(uint32_t layer, std::span<const uint32_t> ids, Certainty certainty) override;
  // Resident ones first, then as reads land.
  Result<std::optional<Lease>> next() override;
  std::optional<Lease> next_resident() override;  // takes in what has landed
  void end() override;                            // waits for reads still in flight

  SlotPolicy& policy() { return policy_; }  // its history, for who keeps it between runs
  // Between passes: drops what was read ahead and waits until no read is in flight.
  void settle();
  // Between passes: gives the memory of slots back until at most `slots` are usable, or takes slots
  // into use again until so many are. What a retired slot held is read again when it is wanted.
  // `slots`: 1 to slot_count().
  void set_usable_slots(uint32_t slots);

  uint32_t slot_count() const { return policy_.slot_count(); }
  uint32_t usable_count() const { return policy_.usable_count(); }
  uint32_t resident_count() const { return policy_.resident_count(); }
  const ExpertCounters& counters() const { return counters_; }
  std::span<const LayerPredictions> predictions() const { return predictions_; }  // by layer

 private:
  void release(uint32_t slot) override;
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
    bool split = false;  // read in pieces of piece_bytes_
    uint64_t bytes = 0, bytes_landed = 0;
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
  void submit_ahead();
  bool reads_ahead() const;
  std::optional<uint32_t> submit_record(uint32_t layer, uint32_t expert, uint32_t uses,
                                        ReadFor reader);
  void submit_pieces(uint32_t slot, uint64_t pieces);
  std::optional<size_t> find_loose(uint32_t layer, uint32_t expert) const;
  uint64_t pieces_of(const Read& read) const;
  uint64_t pieces_in(const SlotExtent& extent) const;
  SlotExtent piece_of(const Read& read, uint64_t piece) const;
  double seconds_of(uint64_t bytes) const;
  void adopt(uint32_t slot, uint32_t index, uint32_t uses);
  void drop_ahead();
  bool drop(uint32_t slot);
  void count_prediction(uint32_t layer, bool right);
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
  const uint64_t piece_bytes_;
  SlotPolicy policy_;
  AlignedBuffer memory_;                 // (slots, slot_bytes)
  std::vector<uint64_t> record_starts_;  // by slot: where in it its record begins
  ExpertCounters counters_;
  std::vector<LayerPredictions> predictions_;

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
  Clock::time_point pass_start_, pass_landing_;
  Status failed_while_polling_;

  // Predictions for the next pass.
  uint32_t ahead_layer_ = 0;
  Certainty ahead_certainty_ = Certainty::likely;
  std::vector<uint32_t> predicted_;  // submitted from predicted_head_ on, where not resident
  std::vector<uint32_t> pinned_;     // scratch of submit_ahead()
  size_t predicted_head_ = 0;
  std::vector<uint32_t> loose_;  // slots that are read ahead, or hold what was

  std::vector<Read> reads_;  // by slot
  std::vector<uint64_t> piece_digests_;
  std::vector<ReadCompletion> landed_;
  std::vector<ReadRequest> requests_;

  bool busy_ = false;  // a read is in flight, or landed unnoticed
  Clock::time_point busy_since_, last_landing_;
  double waited_seconds_ = 0, waited_bytes_ = 0;  // of landings waited for, the old ones fading
};

}  // namespace wader
