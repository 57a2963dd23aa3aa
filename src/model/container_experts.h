// The expert records of a container as an ExpertSource. Of its own files a record is one extent. Of
// a checkpoint in place each section is one, at any byte: through the page cache it is read to its
// place in the record; with O_DIRECT the whole blocks around it are read beside each other into the
// slot, and assemble() moves the sections together.
#pragma once

#include <memory>
#include <string_view>
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
  // What slot_bytes() will be, however the records are read.
  static uint64_t slot_bytes(const Container& container);
  // A file with experts, to try things on.
  static std::filesystem::path probe_file(const Container& container);

  uint32_t layers() const override { return container_.spec().layer_count(); }
  uint32_t experts() const override { return container_.spec().experts; }
  uint64_t record_bytes() const override { return container_.manifest().experts.stride_bytes; }
  uint64_t slot_bytes() const override { return slot_bytes_; }
  std::span<const SlotExtent> extents(uint32_t layer, uint32_t expert) const override {
    const size_t record = record_index(layer, expert);
    return std::span(extents_).subspan(first_extents_[record],
                                       first_extents_[record + 1] - first_extents_[record]);
  }
  uint64_t assemble(uint32_t layer, uint32_t expert, std::span<std::byte> slot) const override;
  uint64_t digest(uint32_t layer, uint32_t expert) const override {
    return container_.expert_digest(layer, expert);
  }
  std::string_view repair() const override;
  bool direct() const { return direct_; }

 private:
  ContainerExperts(const Container& container, bool direct)
      : container_(container), slot_bytes_(slot_bytes(container)), direct_(direct) {}
  size_t record_index(uint32_t layer, uint32_t expert) const {
    return size_t{container_.spec().moe_layers_before(layer)} * experts() + expert;
  }
  Status open_files();
  void add_windows(const std::vector<RecordPiece>& pieces);

  const Container& container_;
  const uint64_t slot_bytes_;
  const bool direct_;
  std::vector<File> files_;                  // container_.expert_files(), those that hold experts
  std::vector<File> tails_;                  // the same without O_DIRECT: for the last, odd block
  std::vector<uint64_t> direct_ends_;        // of files_: where whole blocks end
  std::vector<SlotExtent> extents_;          // of all records
  std::vector<size_t> first_extents_ = {0};  // by record, and the end
  std::vector<uint64_t> section_offsets_;    // in their files, (records, sections); with windows
};

}  // namespace wader
