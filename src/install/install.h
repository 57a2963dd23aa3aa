// Installing: a checkpoint → a container, streamed in bounded memory, resumable, finished
// atomically.
#pragma once

#include <cstdint>
#include <filesystem>
#include <limits>
#include <memory>
#include <optional>
#include <string>
#include <vector>

#include "base/progress.h"
#include "base/result.h"
#include "tensor/dtype.h"

namespace wader {

class HubSession;  // install/hub_tree.h

struct InstallOptions {
  std::filesystem::path source;            // checkpoint directory or file
  std::filesystem::path destination = {};  // the container directory, NAME.wader
  // What experts and the trunk's matrices are stored in; nothing is auto (install/formats.h has the
  // whole table). Experts: mxfp4, affine4, affine8 or bf16. Trunk: affine8 or bf16.
  std::optional<DType> experts = {}, trunk = {};
  // The experts stay where they are: they are read and checked, but only their digests are written.
  // For sources whose experts are runs of bytes as a record has them (in_place.h).
  bool in_place = false;
  uint32_t layers = 0;   // keep only the first N layers; 0 = all (for tests and measurements)
  uint32_t threads = 0;  // that quantise; 0 = what the machine gives. The bytes do not depend on it
  std::shared_ptr<HubSession> hub = {};  // instead of `source`: a repository of the hub
};

// One half of a model, in words.
struct StoredPart {
  std::string source, stored;  // formats: "bf16", "affine4"
  // Signal to error of what quantising changed, mean over its matrices; infinite when nothing was
  // lost.
  double snr_db = std::numeric_limits<double>::infinity();
};

struct InstallReport {
  std::filesystem::path container;
  uint64_t source_bytes_read = 0;
  uint64_t container_bytes = 0;
  bool resumed = false;  // a journal of an earlier, unfinished run was continued
  bool started_over =
      false;  // an unfinished run with another source or other options was thrown away first
  StoredPart experts, trunk;
  // Of a hub source: what came over the network, and its weight files. Of those that are not proven
  // the bytes that were needed came out of the file's order, or in several runs: the container's
  // own digests cover them from then on.
  uint64_t fetched_bytes = 0;
  struct WeightFile {
    std::string name;
    uint64_t bytes;
    std::string sha256;  // empty where the hub gives none
    bool is_proven;      // all bytes passed by, and had it
  };
  std::vector<WeightFile> weight_files = {};
};

// What an install would do, found out from headers alone. Where the destination or the source is
// one that install() refuses, that error.
struct InstallPreview {
  std::string source, revision;                 // as the manifest will have them
  uint64_t fetch_bytes = 0;                     // over the network; of local sources 0
  uint64_t read_bytes = 0;                      // of the source's weights
  uint64_t source_bytes = 0;                    // of all its weight files
  uint64_t write_bytes = 0;                     // the finished container
  uint64_t peak_bytes = 0;                      // of disk, with what is removed at the end
  uint64_t held_bytes = 0;                      // of these an unfinished install holds already
  uint64_t free_bytes = 0;                      // of the destination's disk
  size_t provable_files = 0, weight_files = 0;  // of a hub source: by SHA-256, and all
  double bytes_per_second = 0;                  // of a short measurement; 0: not measured
  std::string experts, trunk;                   // formats in words
};
Result<InstallPreview> preview_install(const InstallOptions& options);

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
