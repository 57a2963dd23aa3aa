// InstallPlan: a checked source and the container that it becomes, decided before anything is
// written.
#pragma once

#include <cstdint>
#include <string>
#include <vector>

#include "base/result.h"
#include "checkpoint/checkpoint.h"
#include "container/writer.h"
#include "install/install.h"

namespace wader {

// How a source file looked when the plan was made.
struct SourceStamp {
  uint64_t bytes;
  int64_t modified_ns;

  bool operator==(const SourceStamp&) const = default;
};

struct InstallPlan {
  Checkpoint checkpoint;
  std::vector<SourceStamp> stamps;  // of checkpoint.files(), in order

  struct SmallFile {
    std::string name;
    File file;
    SourceStamp stamp;
  };
  std::vector<SmallFile> small_files;

  std::vector<TrunkTensorSpec> trunk;  // in manifest order
  std::vector<TensorRef> trunk_sources;
  ContainerPlan container;

  // corrupt, by name, when a source file is not what it was: its bytes could be of two models.
  Status check_source_unchanged() const;
  // Fills `into` from a weight file. A read that fails because the file changed says so.
  Status read_source(uint32_t file, uint64_t offset_bytes, std::span<std::byte> into) const;
  // In whole disk blocks: files, directories, and the journal that stands beside them until the
  // end.
  uint64_t disk_bytes() const;
};

Result<InstallPlan> make_install_plan(const InstallOptions& options);

}  // namespace wader
