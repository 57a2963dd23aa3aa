// Bursts of reads, as decoding makes them: some reads submitted together, all waited for, then the
// next. One thread, as of the queue.
#pragma once

#include <cstdint>
#include <span>
#include <vector>

#include "base/result.h"
#include "io/read_queue.h"

namespace wader {

// Seconds from the submission of `places` together until the last has landed in `memory`, one after
// the other in it; at most the queue's capacity of them, and nothing else may be in flight. With
// `landed_seconds`, as long as `places`, also when each did. The error of the first read that
// failed, after all are back.
Result<double> burst_seconds(ReadQueue& queue, std::span<const Extent> places,
                             std::span<std::byte> memory, std::span<double> landed_seconds = {});

// So many bursts of so many records each.
struct BurstCount {
  uint32_t records;
  uint64_t bursts;
};

// Bytes per second of all these bursts, with nothing between two of them: what the disk gives to
// reads that come as these do. Sizes are mixed evenly. Takes `records`, all places of each, one
// after the other and from the start again; memory holds the largest burst, each place in whole
// blocks. 0 without any read.
Result<double> burst_rate(ReadQueue& queue, std::span<const std::vector<Extent>> records,
                          std::span<const BurstCount> bursts, std::span<std::byte> memory);

// What of `places` the page cache holds is dropped where the system lets us (clean pages; no right
// is needed), so that buffered reads meet the disk.
void drop_cached(std::span<const Extent> places);

}  // namespace wader
