// Which files of a source can be held against their SHA-256 while an install fetches them. A digest
// takes a file's bytes from the first to the last, an install takes them in the order in which the
// container is made: where the two differ, bytes that were used wait until it is their turn to be
// hashed. How many, and so what can be proven within some room, is known before the first byte.
// Pure.
#pragma once

#include <cstdint>
#include <span>
#include <vector>

#include "install/fetch_plan.h"

namespace wader {

struct ProofFile {
  uint32_t file;          // as in the plan's ranges
  uint64_t bytes;         // of the whole file
  uint64_t hashed_bytes;  // from its first on, that need not come again
};

constexpr uint64_t kMaxGapBytes = 1 << 20;  // of a file, fetched only to be hashed
constexpr uint64_t kMaxEarlyRunBytes = 4
                                       << 20;  // pieces up to this come early, not to be waited for

struct ProofPlan {
  std::vector<uint32_t> files;  // that can be proven
  uint64_t held_bytes = 0;      // the most that waits at a time
};

// Adds to `plan` what is fetched only for digests, and the order of fetching. `kept`: ranges that
// an earlier run left, which need not be fetched. Files of which more than kMaxGapBytes is neither
// read nor kept cannot be proven; of the others as many are as `room_bytes` lets wait.
ProofPlan plan_proofs(FetchPlan& plan, std::span<const ProofFile> files,
                      std::span<const SourceRange> kept, uint64_t room_bytes);

}  // namespace wader
