// Experts: what a layer asks for its experts' records, wherever they come from. One owner thread,
// one pass at a time.
#pragma once

#include <cstddef>
#include <cstdint>
#include <optional>
#include <span>
#include <utility>

#include "base/result.h"

namespace wader {

class Experts {
 public:
  virtual ~Experts() = default;

  // An expert of the pass whose record is in memory, and stays there while the lease lives.
  class Lease {
   public:
    Lease(Experts* owner, std::span<const std::byte> record, uint32_t slot, uint32_t index)
        : owner_(owner), record_(record), slot_(slot), index_(index) {}
    Lease(Lease&& other) noexcept
        : owner_(std::exchange(other.owner_, nullptr)),
          record_(other.record_),
          slot_(other.slot_),
          index_(other.index_) {}
    Lease& operator=(Lease&& other) noexcept {
      Lease taken(std::move(other));
      std::swap(owner_, taken.owner_);
      std::swap(record_, taken.record_);
      std::swap(slot_, taken.slot_);
      std::swap(index_, taken.index_);
      return *this;
    }
    ~Lease() {
      if (owner_ != nullptr) owner_->release(slot_);
    }
    uint32_t index() const { return index_; }  // into the ids of the pass
    std::span<const std::byte> record() const { return record_; }

   private:
    Experts* owner_;
    std::span<const std::byte> record_;
    uint32_t slot_, index_;
  };

  // Opens a pass over `ids`, distinct experts of `layer`, of which any number may be asked; they
  // are fetched in this order. uses[i]: tokens that want ids[i]. Both must live until end().
  virtual void begin(uint32_t layer, std::span<const uint32_t> ids,
                     std::span<const uint32_t> uses) = 0;
  virtual std::span<const uint32_t> ids() const = 0;  // of the open pass

  // Experts that the next pass over `layer` will ask, to be fetched in this order behind all that
  // the open pass asks for. begin() takes them over and drops those it does not ask for.
  enum class Certainty : uint8_t { likely, sure };
  virtual void predict(uint32_t layer, std::span<const uint32_t> ids, Certainty certainty) = 0;

  // The next expert, those at hand first; nothing when all were handed out. An error (a failed
  // read, a wrong checksum) names file and expert; call end() then. While it waits no lease may be
  // alive: their slots may be what the missing ones wait for.
  virtual Result<std::optional<Lease>> next() = 0;
  // The next expert that is at hand already; leases may be alive.
  virtual std::optional<Lease> next_resident() = 0;
  // Closes the pass. No lease may be alive.
  virtual void end() = 0;

 protected:
  virtual void release(uint32_t slot) = 0;  // a lease of it ended
};

}  // namespace wader
