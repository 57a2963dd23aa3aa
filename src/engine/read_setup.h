// How an engine reads its experts: the method that the flags force, or the one that was fastest in
// a short measurement at the first use of a model on a disk. The rates are kept beside the model in
// reads.json; what is damaged there, or was measured elsewhere, is replaced.
#pragma once

#include <memory>
#include <string>
#include <vector>

#include "base/result.h"
#include "container/container.h"
#include "container/manifest.h"
#include "engine/engine.h"
#include "io/read_method.h"
#include "model/container_experts.h"

namespace wader {

// Refuses what --io and --direct do not take.
Status validate_read_options(const EngineOptions& options);

struct ReadSetup {
  std::unique_ptr<ContainerExperts> source;
  std::unique_ptr<ReadQueue> queue;  // must go before the source's files
};

// Opens the expert files and a queue for them. Where it measures, it takes up to `memory_bytes` of
// memory for some tenths of a second and gives it back: call it before the slots are touched. The
// container must outlive the result.
Result<ReadSetup> open_reads(const Container& container, const EngineOptions& options,
                             uint64_t memory_bytes);

// What open_reads would do, for `wader info`. Measures nothing.
struct ReadReport {
  enum class Why : uint8_t {
    forced,      // by the flags, or the only one that works
    measured,    // the fastest by the stored rates
    small,       // too little to read for a measurement: the preferred one that works
    unmeasured,  // will be measured at first use
  };
  ReadMethod method;  // when unmeasured, the preferred one
  Why why;
  ReadRates rates;  // as stored; when measured they have one for `method`
};
Result<ReadReport> report_reads(const Container& container, const EngineOptions& options);
// "io_uring, O_DIRECT: 3.61 GB/s (measured 2025-01-31)".
std::string read_report_text(const ReadReport& report);

}  // namespace wader
