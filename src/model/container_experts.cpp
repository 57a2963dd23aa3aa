#include "model/container_experts.h"

#include "base/error.h"

namespace wader {

Result<std::unique_ptr<ContainerExperts>> ContainerExperts::open(const Container& container,
                                                                 DirectIo direct) {
  std::unique_ptr<ContainerExperts> source(new ContainerExperts(container));
  const uint32_t layers = container.spec().layer_count();
  if (direct != DirectIo::off) {
    source->direct_ = direct_reads_work((container.directory() / expert_file_name(0)).string());
    if (!source->direct_ && direct == DirectIo::on)
      return unsupported_error("{}: the file system does not read with O_DIRECT; use --direct auto",
                               container.directory().string());
  }
  for (uint32_t layer = 0; layer < layers; ++layer) {
    ASSIGN_OR_RETURN(File file,
                     File::open(container.directory() / expert_file_name(layer),
                                source->direct_ ? File::Mode::read_direct : File::Mode::read));
    source->files_.push_back(std::move(file));
  }
  for (uint32_t layer = 0; layer < layers; ++layer)
    for (uint32_t expert = 0; expert < source->experts(); ++expert)
      source->extents_.push_back(
          {&source->files_[layer], expert * source->record_bytes(), source->record_bytes()});
  return source;
}

}  // namespace wader
