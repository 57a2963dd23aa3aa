// What the machine can do at best, measured beside what it is asked to do: reads of memory and
// 8-bit products by all threads of a pool. The pool's owner calls.
#pragma once

#include <cstddef>
#include <cstdint>
#include <optional>
#include <span>
#include <string_view>

#include "base/result.h"
#include "base/thread_pool.h"

namespace wader {

// Far more than the last-level cache of any machine that this runs on.
constexpr uint64_t kBandwidthBytes = uint64_t{256} << 20;

class MachineRates {
 public:
  // `memory` is what the reads go over: written before, and outliving this. What fits a cache gives
  // the cache's rate. At least 4 KiB.
  MachineRates(ThreadPool& threads, std::span<const std::byte> memory);

  double read_bytes_per_second();  // one sample, of some milliseconds
  // Multiplications and additions of 8-bit integers that a back end's instructions could do: in
  // tiles for amx, in AVX-512's registers for all others; one sample of some milliseconds. Nothing
  // where this build or CPU has neither.
  std::optional<double> int8_operations_per_second(std::string_view kernels);

 private:
  ThreadPool& threads_;
  std::span<const std::byte> memory_;
  bool has_vnni_ = false, has_amx_ = false;
};

// Both rates, each the best of three samples, over `memory_bytes` of memory of its own, which is
// given back. over_budget when the system refuses it.
struct MeasuredRates {
  double read_bytes_per_second;
  std::optional<double> int8_operations_per_second;
};
Result<MeasuredRates> measure_rates(uint32_t threads, std::string_view kernels,
                                    uint64_t memory_bytes);

}  // namespace wader
