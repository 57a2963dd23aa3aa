// Mending a container: what does not match its checksum is made again from the source, and nothing
// else is read from there or written.
#pragma once

#include <cstdint>

#include "base/progress.h"
#include "base/result.h"
#include "install/install.h"

namespace wader {

struct RepairReport {
  uint64_t parts = 0;  // that were mended
  uint64_t source_bytes_read = 0;
  uint64_t fetched_bytes = 0;  // of a hub source
};

// `options` as for the install that made the container in options.destination. Its manifest and
// digests.bin must be whole. corrupt when the source does not give the very bytes that were there:
// it is another one, or other options were meant; what was damaged stays so. Killed half-way, the
// container is less damaged than before, and the same call goes on.
Result<RepairReport> repair(const InstallOptions& options, const ProgressFn& progress);

}  // namespace wader
