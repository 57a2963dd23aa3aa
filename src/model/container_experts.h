// The expert records of a container as an ExpertSource: one extent each, or where the experts are a
// checkpoint's in place, one for each section.
#pragma once

#include <memory>
#include <string_view>
#include <vector>

#include "container/container.h"
#include "experts/expert_cache.h"
#include "io/file.h"

namespace wader {

enum class DirectIo : uint8_t { on, off, automatic };

// Why --direct on is refused where experts are in place.
Error in_place_is_buffered(const Container& container);

class ContainerExperts final : public ExpertSource {
 public:
  // automatic: O_DIRECT where a probe read of the first layer's file proves it, the page cache
  // otherwise, and always for experts in place. on: refused where it cannot be. The container must
  // outlive the result.
  static Result<std::unique_ptr<ContainerExperts>> open(const Container& container,
                                                        DirectIo direct);

  uint32_t layers() const override { return container_.spec().layer_count(); }
  uint32_t experts() const override { return container_.spec().experts; }
  uint64_t record_bytes() const override { return container_.manifest().experts.stride_bytes; }
  std::span<const RecordExtent> extents(uint32_t layer, uint32_t expert) const override {
    const size_t record = container_.spec().moe_layers_before(layer) * experts() + expert;
    return {&extents_[record * pieces_], pieces_};
  }
  uint64_t digest(uint32_t layer, uint32_t expert) const override {
    return container_.expert_digest(layer, expert);
  }
  std::string_view repair() const override;
  bool direct() const { return direct_; }

 private:
  explicit ContainerExperts(const Container& container) : container_(container) {}
  const Container& container_;
  std::vector<File> files_;            // container_.expert_files()
  std::vector<RecordExtent> extents_;  // (moe layers, experts, pieces_)
  size_t pieces_ = 1;
  bool direct_ = false;
};

}  // namespace wader
