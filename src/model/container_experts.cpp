#include "model/container_experts.h"

namespace wader {

Result<std::unique_ptr<ContainerExperts>> ContainerExperts::open(const Container& container,
                                                                 bool direct) {
  std::unique_ptr<ContainerExperts> source(new ContainerExperts(container, direct));
  for (const std::filesystem::path& path : container.expert_files()) {
    ASSIGN_OR_RETURN(
        File file, File::open(path.string(), direct ? File::Mode::read_direct : File::Mode::read));
    source->files_.push_back(std::move(file));
  }
  for (const File& file : source->files_)
    for (uint32_t expert = 0; expert < source->experts(); ++expert)
      source->extents_.push_back({&file, expert * source->record_bytes(), source->record_bytes()});
  return source;
}

}  // namespace wader
