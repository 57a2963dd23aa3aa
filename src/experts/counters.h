// What an expert cache did: counts, bytes, and seconds of its owner's clock, since its start.
#pragma once

#include <array>
#include <cstddef>
#include <cstdint>

namespace wader {

struct ExpertCounters {
  uint64_t hits = 0, misses = 0;  // one a distinct expert of a pass; a miss was read for the pass
  uint64_t bytes_read = 0;
  double wait_seconds = 0;  // next() had nothing to hand out and waited for a read
  double busy_seconds = 0;  // at least one read was outstanding
  // Passes that had to wait, and took over no read that lookahead had started: what they read, and
  // the time from begin() to their last read.
  uint64_t waited_bytes = 0;
  double waited_seconds = 0;
  // Passes by the number of records that begin() had to read; the last counts all larger numbers.
  static constexpr size_t kBursts = 16;
  std::array<uint64_t, kBursts + 1> bursts{};

  uint64_t predicted = 0;        // reads started ahead
  uint64_t predicted_right = 0;  // and asked for by their pass
  uint64_t wasted_bytes = 0;     // read ahead for nothing
  double hidden_seconds = 0;     // of right ones' reads, before their pass asked
  double delay_seconds = 0;      // by which wrong ones kept the disk from a pass's reads

  // What came after `before`, an earlier state of the same counters.
  ExpertCounters since(const ExpertCounters& before) const;
};

// Reads started ahead for one layer, and how many of them its passes asked for.
struct LayerPredictions {
  uint64_t predicted = 0, right = 0;
};

}  // namespace wader
