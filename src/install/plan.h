// InstallPlan: a checked source and the container that it becomes, decided before anything is
// written.
#pragma once

#include <cstdint>
#include <memory>
#include <optional>
#include <string>
#include <vector>

#include "base/result.h"
#include "checkpoint/checkpoint.h"
#include "container/writer.h"
#include "install/install.h"

namespace wader {

class HubSession;

struct InstallPlan {
  std::unique_ptr<Checkpoint> checkpoint;
  std::shared_ptr<HubSession> hub;  // null for local sources
  std::vector<SourceStamp> stamps;  // of checkpoint->files(), in order, when the plan was made

  // A file to copy, or a text to write.
  struct PlannedFile {
    std::string name;
    std::optional<std::string> text;
    File file;          // not open when there is a text
    SourceStamp stamp;  // … and this only its size
  };
  std::vector<PlannedFile> small_files;

  std::vector<TrunkTensorSpec> trunk;  // in manifest order
  std::vector<TensorSource> trunk_sources;
  std::string trunk_source_text;     // formats of the source's matrices, most values first
  uint64_t expert_source_bytes = 0;  // of the largest expert in the source's files
  ContainerPlan container;

  // What is made after what (install/source_order.h): the experts of a layer, or the trunk's
  // tensors container.trunk_order[first, end). The last step ends the trunk.
  struct Step {
    std::optional<uint32_t> layer;
    size_t first, end;
  };
  std::vector<Step> steps;
  // Of a hub source: how many weight files can be held against their SHA-256, and how much room
  // that takes in the window.
  size_t provable_files = 0;
  uint64_t proof_bytes = 0;

  // What one expert is made of: two matrices, and where the spec has them their biases.
  struct ExpertPart {
    ExpertMatrix matrix;
    bool is_bias;
    TensorSource source;
  };
  Result<std::vector<ExpertPart>> expert_parts(uint32_t layer, uint32_t expert) const;

  // corrupt, by name, when a source file is not what it was: its bytes could be of two models.
  Status check_source_unchanged() const;
  // Fills `into` from a weight file. A read that fails because the file changed says so.
  Status read_source(uint32_t file, uint64_t offset_bytes, std::span<std::byte> into) const;
  // How much of a hub source was read; and that the container has all that was made of what was
  // read before `position`: what was fetched for it can go.
  size_t source_position() const;
  void source_kept(size_t position) const;
  // In whole disk blocks: files, directories, and the journal that stands beside them until the
  // end.
  uint64_t disk_bytes() const;
  // Of what was fetched and waits; 0 for local sources. And of these what waits to be used.
  uint64_t window_bytes() const;
  uint64_t ahead_bytes() const { return window_bytes() - proof_bytes; }
};

Result<InstallPlan> make_install_plan(const InstallOptions& options);
// The same for a source that is open already; options.source is not looked at.
Result<InstallPlan> make_install_plan(std::unique_ptr<Checkpoint> checkpoint,
                                      const InstallOptions& options);

}  // namespace wader
