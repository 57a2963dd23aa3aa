#include "model/container_experts.h"

#include <algorithm>
#include <cstring>

#include "base/check.h"
#include "base/error.h"
#include "base/units.h"

namespace wader {
namespace {

// A section's whole blocks, wherever in the first of them it begins, take at most so many bytes.
constexpr uint64_t window_bytes(uint64_t section_bytes) {
  return align_up(section_bytes, kDirectAlignment) + kDirectAlignment;
}

// Where in a block the record's first section may begin so that it need not be moved: the kernels
// take any address, but are not meant to take a word across its own borders.
constexpr uint64_t kRecordStartAlignment = 8;

// Of a record whose first section begins at `file_offset`: where in its slot it begins.
constexpr uint64_t record_start(uint64_t file_offset) {
  const uint64_t in_block = file_offset % kDirectAlignment;
  return in_block % kRecordStartAlignment == 0 ? in_block : 0;
}

}  // namespace

uint64_t ContainerExperts::slot_bytes(const Container& container) {
  const ExpertLayout& layout = container.manifest().experts;
  if (!container.in_place()) return layout.stride_bytes;
  uint64_t bytes = 0;
  for (const ExpertSection& section : layout.sections) bytes += window_bytes(section.bytes);
  return std::max(bytes, layout.stride_bytes + kDirectAlignment);
}

std::filesystem::path ContainerExperts::probe_file(const Container& container) {
  const ArchitectureSpec& spec = container.spec();
  for (uint32_t layer = 0; layer < spec.layer_count(); ++layer)
    if (spec.layers[layer].ffn == FfnKind::moe)
      return container.expert_files()[container.expert_pieces(layer, 0)[0].file];
  UNREACHABLE("a spec has a layer with experts");
}

Result<std::unique_ptr<ContainerExperts>> ContainerExperts::open(const Container& container,
                                                                 bool direct) {
  std::unique_ptr<ContainerExperts> source(new ContainerExperts(container, direct));
  RETURN_IF_ERROR(source->open_files());
  const ArchitectureSpec& spec = container.spec();
  for (uint32_t layer = 0; layer < spec.layer_count(); ++layer) {
    if (spec.layers[layer].ffn != FfnKind::moe) continue;
    for (uint32_t expert = 0; expert < spec.experts; ++expert) {
      const std::vector<RecordPiece> pieces = container.expert_pieces(layer, expert);
      if (direct && container.in_place()) {
        source->add_windows(pieces);
      } else {
        for (const RecordPiece& piece : pieces)
          source->extents_.push_back(
              {{&source->files_[piece.file], piece.offset_bytes, piece.bytes},
               piece.record_offset_bytes});
      }
      source->first_extents_.push_back(source->extents_.size());
    }
  }
  return source;
}

// A checkpoint may have files without experts: they stay closed.
Status ContainerExperts::open_files() {
  const std::vector<std::filesystem::path> paths = container_.expert_files();
  const bool windows = direct_ && container_.in_place();
  std::vector<bool> has_experts(paths.size(), !container_.in_place());
  if (container_.in_place())
    for (const auto& runs : container_.in_place()->layers)
      for (const SourceRun& run : runs) has_experts[run.file] = true;
  for (size_t i = 0; i < paths.size(); ++i) {
    files_.emplace_back();
    tails_.emplace_back();
    direct_ends_.push_back(0);
    if (!has_experts[i]) continue;
    ASSIGN_OR_RETURN(files_.back(),
                     File::open(paths[i], direct_ ? File::Mode::read_direct : File::Mode::read));
    if (!windows) continue;
    ASSIGN_OR_RETURN(tails_.back(), File::open(paths[i], File::Mode::read));
    direct_ends_.back() =
        container_.in_place()->files[i].bytes / kDirectAlignment * kDirectAlignment;
  }
  return {};
}

// The blocks of each section, at places in the slot that are the same for all records. What stands
// in a file's last block, which is no whole one, follows through the page cache.
void ContainerExperts::add_windows(const std::vector<RecordPiece>& pieces) {
  uint64_t at = 0;
  for (const RecordPiece& piece : pieces) {
    const uint64_t end = piece.offset_bytes + piece.bytes;
    const uint64_t begin = piece.offset_bytes / kDirectAlignment * kDirectAlignment;
    const uint64_t direct_end = std::min(align_up(end, kDirectAlignment), direct_ends_[piece.file]);
    if (begin < direct_end)
      extents_.push_back({{&files_[piece.file], begin, direct_end - begin}, at});
    if (const uint64_t tail = std::max(begin, direct_end); tail < end)
      extents_.push_back({{&tails_[piece.file], tail, end - tail}, at + (tail - begin)});
    section_offsets_.push_back(piece.offset_bytes);
    at += window_bytes(piece.bytes);
  }
}

// Front to back: a section's place ends before the next one's window, which begins at least a block
// later for every section before it.
uint64_t ContainerExperts::assemble(uint32_t layer, uint32_t expert,
                                    std::span<std::byte> slot) const {
  if (section_offsets_.empty()) return 0;
  const std::vector<ExpertSection>& sections = container_.manifest().experts.sections;
  const uint64_t* offsets = &section_offsets_[record_index(layer, expert) * sections.size()];
  const uint64_t start = record_start(offsets[0]);
  uint64_t window = 0, end = start;
  for (size_t i = 0; i < sections.size(); ++i) {
    const uint64_t from = window + offsets[i] % kDirectAlignment;
    const uint64_t to = start + sections[i].offset_bytes;
    std::memset(&slot[end], 0, to - end);
    if (from != to) std::memmove(&slot[to], &slot[from], sections[i].bytes);
    end = to + sections[i].bytes;
    window += window_bytes(sections[i].bytes);
  }
  std::memset(&slot[end], 0, start + record_bytes() - end);
  return start;
}

std::string_view ContainerExperts::repair() const {
  return container_.in_place()
             ? "the checkpoint was damaged, or changed while it was in use: get that file again"
             : ExpertSource::repair();
}

}  // namespace wader
