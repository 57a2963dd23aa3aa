// Installing: a checkpoint → a container, streamed in bounded memory, resumable, finished
// atomically.
#pragma once

#include <cstdint>
#include <filesystem>
#include <string>

#include "base/progress.h"
#include "base/result.h"
#include "tensor/dtype.h"

namespace wader {

struct InstallOptions {
  std::filesystem::path source;       // checkpoint directory or file
  std::filesystem::path destination;  // the container directory, NAME.wader
  // affine8 or bf16, for TrunkRole::matrix tensors (others stay as released; a matrix whose columns
  // are not whole groups falls back to bf16).
  DType trunk = DType::affine8;
  uint32_t layers = 0;  // keep only the first N layers; 0 = all (for tests and measurements)
};

struct InstallReport {
  std::filesystem::path container;
  uint64_t source_bytes_read = 0;
  uint64_t container_bytes = 0;
  bool resumed = false;  // a journal of an earlier, unfinished run was continued
  bool started_over =
      false;  // an unfinished run with another source or other options was thrown away first
  double trunk_snr_db = 0;  // mean over quantised matrices; infinite when none was
};

// Disk space that installing takes, in whole blocks and with the journal; what install() checks
// against the free disk before it writes. The finished container is a little smaller.
Result<uint64_t> planned_container_bytes(const InstallOptions& options);

// Refuses a destination that holds a complete container (already_exists) or anything that is not
// ours. Two installs of the same destination at once: the second is refused. Killed at any moment,
// the directory keeps install.json and is not a container; the same call then continues after the
// last finished file. A source that is bad, or that changes meanwhile, is refused as corrupt and
// what was written is removed.
Result<InstallReport> install(const InstallOptions& options, const ProgressFn& progress);

}  // namespace wader
