// How many reads a back end hands to the kernel at a time: enough to keep the disk busy, and no
// more, since what is handed over can be neither overtaken nor withdrawn. Pure.
//
// Some disks finish all that they were given at the same time (measured on a virtio disk of
// 3.6 GB/s: eight reads of 13 MB handed over together land all after 27 ms, one by one at 3.5, 7.1,
// 10.6, ... ms, at the same rate). So large reads go one by one, the next one waiting in the kernel
// (IOSQE_IO_DRAIN) to start without the owner's help. Small reads go together, since one alone
// leaves the disk idle between two (1 MiB: 3.0 GB/s alone, 3.4 by four; 256 KiB: 1.7 and 2.8).
#pragma once

#include <cstdint>

#include "base/units.h"
#include "io/read_queue.h"

namespace wader {

constexpr uint32_t kMostReadsInKernel = 32;
// Reads through the page cache are copied by workers of the kernel, each its own.
constexpr uint32_t kBufferedReadsInKernel = 4;

// Bytes that may be read side by side. Less for reading ahead: a demand waits for it.
constexpr uint64_t kDemandWindowBytes = 8 * kMiB;
constexpr uint64_t kAheadWindowBytes = 4 * kMiB;
// A read that keeps the disk busy alone.
constexpr uint64_t kLargeReadBytes = 4 * kMiB;

struct KernelLoad {
  uint32_t reads = 0;
  uint64_t bytes = 0;
  bool one_waits = false;  // the last of them was handed over to start behind the others
};

enum class HandOver : uint8_t { later, together, behind };

// What to do with the next read of the owner's lists.
constexpr HandOver hand_over(const KernelLoad& load, uint64_t bytes, ReadClass read_class,
                             bool direct) {
  if (load.reads == 0) return HandOver::together;
  if (!direct)
    return load.reads < kBufferedReadsInKernel && !load.one_waits ? HandOver::together
                                                                  : HandOver::later;
  if (load.reads >= kMostReadsInKernel || load.one_waits) return HandOver::later;
  const bool demand = read_class == ReadClass::demand;
  if (load.bytes + bytes <= (demand ? kDemandWindowBytes : kAheadWindowBytes))
    return HandOver::together;
  return demand && bytes >= kLargeReadBytes ? HandOver::behind : HandOver::later;
}

}  // namespace wader
