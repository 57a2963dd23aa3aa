// Experts in memory-mapped files, as other programs run models larger than memory: the page cache
// is the cache, page faults of the compute threads are the reads. To measure against; nothing is
// verified.
#pragma once

#include <memory>

#include "base/result.h"
#include "container/container.h"
#include "experts/experts.h"

namespace wader {

// Maps all expert files read-only, with the kernel's own read-ahead. unsupported for experts in
// place. The container must outlive the result.
Result<std::unique_ptr<Experts>> map_experts(const Container& container);

}  // namespace wader
