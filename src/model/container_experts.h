// The expert records of a container as an ExpertSource: one extent each.
#pragma once

#include <memory>
#include <vector>

#include "container/container.h"
#include "experts/expert_cache.h"
#include "io/file.h"

namespace wader {

class ContainerExperts final : public ExpertSource {
 public:
  // direct: past the page cache, where the caller knows that it works (direct_reads_work). The
  // container must outlive the result.
  static Result<std::unique_ptr<ContainerExperts>> open(const Container& container, bool direct);

  uint32_t layers() const override { return container_.spec().layer_count(); }
  uint32_t experts() const override { return container_.spec().experts; }
  uint64_t record_bytes() const override { return container_.manifest().experts.stride_bytes; }
  std::span<const Extent> extents(uint32_t layer, uint32_t expert) const override {
    const size_t moe_layer = container_.spec().moe_layers_before(layer);
    return {&extents_[moe_layer * experts() + expert], 1};
  }
  uint64_t digest(uint32_t layer, uint32_t expert) const override {
    return container_.expert_digest(layer, expert);
  }
  bool direct() const { return direct_; }

 private:
  ContainerExperts(const Container& container, bool direct)
      : container_(container), direct_(direct) {}
  const Container& container_;
  const bool direct_;
  std::vector<File> files_;      // of the moe layers
  std::vector<Extent> extents_;  // (moe layers, experts)
};

}  // namespace wader
