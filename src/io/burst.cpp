#include "io/burst.h"

#include <fcntl.h>

#include <algorithm>
#include <chrono>
#include <vector>

#include "base/check.h"
#include "base/units.h"
#include "io/aligned_buffer.h"

namespace wader {

using Clock = std::chrono::steady_clock;

Result<double> burst_seconds(ReadQueue& queue, std::span<const Extent> places,
                             std::span<std::byte> memory, std::span<double> landed_seconds) {
  CHECK(places.size() <= queue.capacity() && queue.in_flight() == 0);
  CHECK(landed_seconds.empty() || landed_seconds.size() == places.size());
  std::vector<ReadRequest> requests;
  std::vector<ReadCompletion> landed(places.size());
  uint64_t used_bytes = 0;
  for (size_t i = 0; i < places.size(); ++i) {
    requests.push_back({places[i], memory.data() + used_bytes, i});
    used_bytes += align_up(places[i].bytes, kDirectAlignment);
  }
  CHECK(used_bytes <= memory.size());
  Status status;
  const auto start = Clock::now();
  double seconds = 0;
  queue.submit(requests);
  while (queue.in_flight() > 0) {
    const size_t n = queue.wait(landed);
    seconds = std::chrono::duration<double>(Clock::now() - start).count();
    for (const ReadCompletion& c : std::span(landed).first(n)) {
      if (!landed_seconds.empty()) landed_seconds[c.tag] = seconds;
      if (status.ok() && (c.errno_value != 0 || c.bytes_read != places[c.tag].bytes))
        status = read_error(c, places[c.tag]);
    }
  }
  RETURN_IF_ERROR(std::move(status));
  return seconds;
}

Result<double> burst_rate(ReadQueue& queue, std::span<const std::vector<Extent>> records,
                          std::span<const BurstCount> bursts, std::span<std::byte> memory) {
  std::vector<uint64_t> done(bursts.size());
  std::vector<Extent> burst;
  double seconds = 0;
  uint64_t bytes = 0;
  for (size_t next = 0;;) {
    // The size that is furthest behind its share.
    size_t chosen = bursts.size();
    double least = 1;
    for (size_t i = 0; i < bursts.size(); ++i) {
      if (bursts[i].records == 0 || done[i] >= bursts[i].bursts) continue;
      const double share = static_cast<double>(done[i]) / static_cast<double>(bursts[i].bursts);
      if (share < least) least = share, chosen = i;
    }
    if (chosen == bursts.size()) break;
    ++done[chosen];
    CHECK(!records.empty());
    burst.clear();
    for (uint32_t i = 0; i < bursts[chosen].records; ++i, ++next) {
      const std::vector<Extent>& record = records[next % records.size()];
      burst.insert(burst.end(), record.begin(), record.end());
      for (const Extent& place : record) bytes += place.bytes;
    }
    ASSIGN_OR_RETURN(const double took, burst_seconds(queue, burst, memory));
    seconds += took;
  }
  return seconds > 0 ? static_cast<double>(bytes) / seconds : 0;
}

void drop_cached(std::span<const Extent> places) {
  for (const Extent& place : places)
    (void)::posix_fadvise(place.file->fd(), static_cast<off_t>(place.offset_bytes),
                          static_cast<off_t>(place.bytes), POSIX_FADV_DONTNEED);
}

}  // namespace wader
