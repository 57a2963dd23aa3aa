#include "model/container_experts.h"

#include "base/error.h"

namespace wader {

Result<std::unique_ptr<ContainerExperts>> ContainerExperts::open(const Container& container,
                                                                 DirectIo direct) {
  std::unique_ptr<ContainerExperts> source(new ContainerExperts(container));
  const ArchitectureSpec& spec = container.spec();
  const std::vector<std::filesystem::path> paths = container.expert_files();
  if (container.in_place() && direct == DirectIo::on) return in_place_is_buffered(container);
  if (!container.in_place() && direct != DirectIo::off) {
    source->direct_ = direct_reads_work(paths.front().string());
    if (!source->direct_ && direct == DirectIo::on)
      return unsupported_error("{}: the file system does not read with O_DIRECT; use --direct auto",
                               container.directory().string());
  }
  for (const std::filesystem::path& path : paths) {
    ASSIGN_OR_RETURN(
        File file, File::open(path, source->direct_ ? File::Mode::read_direct : File::Mode::read));
    source->files_.push_back(std::move(file));
  }
  for (uint32_t layer = 0; layer < spec.layer_count(); ++layer) {
    if (spec.layers[layer].ffn != FfnKind::moe) continue;
    for (uint32_t expert = 0; expert < spec.experts; ++expert) {
      const std::vector<RecordPiece> pieces = container.expert_pieces(layer, expert);
      source->pieces_ = pieces.size();  // of all records
      for (const RecordPiece& piece : pieces)
        source->extents_.push_back({{&source->files_[piece.file], piece.offset_bytes, piece.bytes},
                                    piece.record_offset_bytes});
    }
  }
  return source;
}

std::string_view ContainerExperts::repair() const {
  return container_.in_place()
             ? "the checkpoint was damaged or changed while it was in use: get that file again, "
               "then `wader rm` what was made of it"
             : ExpertSource::repair();
}

Error in_place_is_buffered(const Container& container) {
  return unsupported_error(
      "{}: the experts of a checkpoint in place do not stand at block borders, as O_DIRECT needs; "
      "use --direct auto, or make a container with `wader install`",
      container.directory().string());
}

}  // namespace wader
