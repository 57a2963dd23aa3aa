// ExpertCache: the slots, and one pass's experts in them. Reads what is missing, verifies it, hands
// it out. One owner thread. Allocates nothing after construction.
#pragma once

#include <array>
#include <cstdint>
#include <memory>
#include <optional>
#include <span>
#include <string>
#include <vector>

#include "base/result.h"
#include "experts/slot_policy.h"
#include "io/aligned_buffer.h"
#include "io/read_queue.h"

namespace wader {

// Where expert records stand and what they must hash to. Immutable.
class ExpertSource {
 public:
  virtual ~ExpertSource() = default;
  virtual uint32_t layers() const = 0;
  virtual uint32_t experts() const = 0;
  virtual uint64_t record_bytes() const = 0;  // the same for all
  // Pieces of the record in its order, together record_bytes(): one in a container, several in a
  // released file.
  virtual std::span<const Extent> extents(uint32_t layer, uint32_t expert) const = 0;
  virtual uint64_t digest(uint32_t layer, uint32_t expert) const = 0;
};

struct ExpertCounters {
  uint64_t hits = 0, misses = 0;  // one a distinct expert of a pass
  uint64_t bytes_read = 0;
  double wait_seconds = 0;  // next() had nothing to hand out and waited for a read
};

class ExpertCache {
 public:
  // `slots` records of memory. Everything passed by reference must outlive the cache.
  static Result<std::unique_ptr<ExpertCache>> create(const ExpertSource& source, uint32_t slots,
                                                     EvictionRule rule, ReadQueue& queue);
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
  // the rest follow as leases end. `ids` must live until end().
  void begin(uint32_t layer, std::span<const uint32_t> ids);
  // The next expert: resident ones first, then as reads land; nothing when all were handed out. An
  // error (a failed read, a wrong checksum) names file and expert; call end() then.
  // While it waits no lease may be alive: their slots may be what the missing ones wait for.
  Result<std::optional<Lease>> next();
  // The next expert that is resident already; leases may be alive.
  std::optional<Lease> next_resident();
  // Closes the pass: waits for reads still in flight, unpins. No lease may be alive.
  void end();

  // Between passes: gives the memory of slots back until at most `slots` are usable, or takes slots
  // into use again until so many are. What a retired slot held is read again when it is wanted.
  // `slots`: 1 to slot_count().
  void set_usable_slots(uint32_t slots);

  uint32_t slot_count() const { return policy_.slot_count(); }
  uint32_t usable_count() const { return policy_.usable_count(); }
  uint32_t resident_count() const { return policy_.resident_count(); }
  const ExpertCounters& counters() const { return counters_; }
  void reset_counters() { counters_ = {}; }

 private:
  ExpertCache(const ExpertSource& source, uint32_t slots, EvictionRule rule, ReadQueue& queue,
              AlignedBuffer memory);

  struct Read {          // of a reserved slot, while in flight
    uint32_t index = 0;  // into ids_
    uint32_t pieces_in_flight = 0;
    bool failed = false;
  };

  std::byte* record_of(uint32_t slot) { return memory_.data() + slot * source_.record_bytes(); }
  void submit_missing();
  void submit_record(uint32_t slot, uint32_t index);
  Status land(const ReadCompletion& completion);
  Status finish_record(uint32_t slot);
  Status wait_for_reads();

  const ExpertSource& source_;
  ReadQueue& queue_;
  SlotPolicy policy_;
  AlignedBuffer memory_;  // (slots, record_bytes)
  ExpertCounters counters_;

  // The open pass.
  bool open_ = false;
  uint32_t layer_ = 0;
  std::span<const uint32_t> ids_;
  struct Ready {
    uint32_t slot, index;
  };
  std::vector<Ready> ready_;  // resident and pinned, not yet handed out; taken from ready_head_ on
  size_t ready_head_ = 0;
  std::vector<uint32_t>
      missing_;  // indices into ids_ whose reads are not submitted yet, from missing_head_ on
  size_t missing_head_ = 0;
  uint32_t leases_ = 0;
  std::vector<Read> reads_;  // by slot
  std::vector<ReadCompletion> landed_;
  std::vector<ReadRequest> requests_;
};

}  // namespace wader
