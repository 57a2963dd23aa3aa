// Reads from a disk measured: each way to read (io_uring or threads, O_DIRECT or the page cache)
// at each size, with a steady number of reads in flight and in bursts as decoding makes them. One
// thread. Buffered reads meet the disk: what they are to read is dropped from the page cache first.
#pragma once

#include <atomic>
#include <cstdint>
#include <filesystem>
#include <functional>
#include <span>
#include <string>
#include <vector>

#include "base/result.h"
#include "base/units.h"
#include "experts/expert_cache.h"
#include "io/burst.h"
#include "io/read_method.h"

namespace wader {

struct IoSetting {
  ReadMethod method;
  uint64_t read_bytes;  // multiple of kDirectAlignment
  uint32_t depth;       // reads in flight; of a burst: submitted together, all waited for
  bool burst;
};

struct IoBenchOptions {
  uint32_t rounds = 5;
  uint64_t round_bytes = 128 * kMiB;  // read in a round of a setting, but at least two depths
  uint64_t seed = 1;                  // of the places
  const std::atomic<bool>* cancel = nullptr;
  std::function<void(const std::string& step)> on_step = {};  // "round 2 of 5"
};

struct IoRun {
  IoSetting setting;
  std::string refused;            // why this system has no such reads; then nothing else is here
  std::vector<double> rates;      // bytes per second, by round
  std::vector<double> latencies;  // seconds from submission to return, of all reads, ascending
  double cpu_seconds = 0;         // of the process, kernel included
  uint64_t bytes = 0;             // of all rounds
};

// Rounds take turns over the settings. Places are multiples of the read's size, at random in
// `files`. Takes the memory of the largest setting's depth. An error names a file that cannot be
// read or holds no read of a size; cancelled when options.cancel was set.
Result<std::vector<IoRun>> bench_io(std::span<const std::filesystem::path> files,
                                    std::span<const IoSetting> settings,
                                    const IoBenchOptions& options);

// Where `count` random experts of `source` stand: records for burst_rate().
std::vector<std::vector<Extent>> random_expert_places(const ExpertSource& source,
                                                      std::span<const uint32_t> layers,
                                                      size_t count, uint64_t seed);

}  // namespace wader
