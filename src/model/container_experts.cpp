#include "model/container_experts.h"

#include "base/error.h"

namespace wader {

Result<std::unique_ptr<ContainerExperts>> ContainerExperts::open(const Container& container,
                                                                 DirectIo direct) {
  std::unique_ptr<ContainerExperts> source(new ContainerExperts(container));
  const ArchitectureSpec& spec = container.spec();
  std::vector<std::string> paths;
  for (uint32_t layer = 0; layer < spec.layer_count(); ++layer)
    if (spec.layers[layer].ffn == FfnKind::moe)
      paths.push_back((container.directory() / expert_file_name(layer)).string());
  if (direct != DirectIo::off) {
    source->direct_ = direct_reads_work(paths.front());
    if (!source->direct_ && direct == DirectIo::on)
      return unsupported_error("{}: the file system does not read with O_DIRECT; use --direct auto",
                               container.directory().string());
  }
  for (const std::string& path : paths) {
    ASSIGN_OR_RETURN(
        File file, File::open(path, source->direct_ ? File::Mode::read_direct : File::Mode::read));
    source->files_.push_back(std::move(file));
  }
  for (const File& file : source->files_)
    for (uint32_t expert = 0; expert < source->experts(); ++expert)
      source->extents_.push_back({&file, expert * source->record_bytes(), source->record_bytes()});
  return source;
}

}  // namespace wader
