// A short measurement of the ways to read some files: bursts of records at random places, the
// methods taking turns. Takes no memory but the caller's and a few KiB.
#pragma once

#include <filesystem>
#include <span>
#include <vector>

#include "base/result.h"
#include "io/read_method.h"

namespace wader {

struct ProbeJob {
  std::vector<std::filesystem::path> files;
  uint64_t record_bytes = 0;    // multiple of kDirectAlignment
  uint64_t records_a_file = 0;  // they stand one after the other from the start
  uint64_t seed = 1;            // of the places
  // Of at least one record; bursts are as long as it allows, up to four. Written over.
  std::span<std::byte> memory;
  double target_seconds = 0.25;  // on a disk that needs longer for it, one record a method
};

// Rates of those of `methods` that work here, of the fastest of up to four rounds each; what was refused
// is left out. An error only when none works.
Result<std::vector<MeasuredMethod>> measure_methods(const ProbeJob& job,
                                                    std::span<const ReadMethod> methods);

}  // namespace wader
