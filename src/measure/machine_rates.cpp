#include "measure/machine_rates.h"

#include <algorithm>
#include <atomic>
#include <cstring>

#include "base/check.h"
#include "base/units.h"
#include "io/aligned_buffer.h"
#include "kernels/ops.h"
#include "measure/peak.h"
#include "measure/stopwatch.h"

namespace wader {
namespace {

constexpr uint64_t kSampleBytes = uint64_t{128} << 20;  // of reads, more passes over less memory
constexpr int64_t kGrainLines = 1024;  // of 64 bytes: long runs, as a matrix is read

}  // namespace

MachineRates::MachineRates(ThreadPool& threads, std::span<const std::byte> memory)
    : threads_(threads), memory_(memory.first(memory.size() / 64 * 64)) {
  CHECK(memory.size() >= 4096);
  for (const Kernels* kernels : available_kernels()) {
    has_vnni_ = has_vnni_ || kernels->name == "avx512";
    has_amx_ = has_amx_ || kernels->name == "amx";
  }
}

double MachineRates::read_bytes_per_second() {
  const uint64_t passes = std::max<uint64_t>(1, kSampleBytes / memory_.size());
  std::atomic<uint64_t> sink = 0;  // what read_all() returns is used, so that it reads
  const double seconds = seconds_of([&] {
    for (uint64_t pass = 0; pass < passes; ++pass)
      threads_.parallel_for(static_cast<int64_t>(memory_.size() / 64), kGrainLines,
                            [&](ThreadPool::Slice slice) {
                              sink = read_all(memory_.data() + slice.begin * 64,
                                              static_cast<size_t>(slice.end - slice.begin) * 64);
                            });
  });
  return static_cast<double>(passes * memory_.size()) / seconds;
}

std::optional<double> MachineRates::int8_operations_per_second(std::string_view kernels) {
  if (!has_vnni_) return std::nullopt;
  const bool tiles = has_amx_ && kernels == "amx";
  // Of 16 instructions, or of four tile products: a few milliseconds.
  const uint64_t iterations = tiles ? 100'000 : 400'000;
  std::atomic<uint64_t> operations = 0;
  const double seconds = seconds_of([&] {
    threads_.parallel_for(threads_.size(), 1, [&](ThreadPool::Slice slice) {
      for (int64_t i = slice.begin; i < slice.end; ++i)
        operations += tiles ? run_amx_peak(iterations) : run_vnni_peak(iterations);
    });
  });
  if (operations == 0) return std::nullopt;  // a build without the instruction
  return static_cast<double>(operations) / seconds;
}

Result<MeasuredRates> measure_rates(uint32_t threads, std::string_view kernels,
                                    uint64_t memory_bytes) {
  ASSIGN_OR_RETURN(AlignedBuffer memory, AlignedBuffer::allocate(std::max(memory_bytes, kMiB),
                                                                 AlignedBuffer::Pages::huge));
  std::memset(memory.data(), 1, memory.size());
  ThreadPool pool(static_cast<int>(threads));
  MachineRates rates(pool, memory.span());
  MeasuredRates best{};
  for (int sample = 0; sample < 3; ++sample) {
    best.read_bytes_per_second =
        std::max(best.read_bytes_per_second, rates.read_bytes_per_second());
    if (const auto int8 = rates.int8_operations_per_second(kernels))
      best.int8_operations_per_second =
          std::max(best.int8_operations_per_second.value_or(0), *int8);
  }
  return best;
}

}  // namespace wader
