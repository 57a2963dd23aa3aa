#include "install/disk_room.h"

#include <sys/stat.h>

#include <string>
#include <system_error>
#include <vector>

#include "base/error.h"
#include "base/units.h"
#include "container/manifest.h"
#include "io/file.h"

namespace wader {

namespace fs = std::filesystem;

namespace {

bool is_inside(const fs::path& path, const fs::path& directory) {
  const fs::path relative = path.lexically_relative(directory);
  return !relative.empty() && *relative.begin() != "..";
}

}  // namespace

Status check_apart(const fs::path& source, const fs::path& destination) {
  std::error_code error;
  const fs::path from = fs::weakly_canonical(source, error);
  if (error) return errno_error(error.value(), source.string());
  const fs::path to = fs::weakly_canonical(destination, error);
  if (error) return errno_error(error.value(), destination.string());
  if (is_inside(from, to))
    return invalid_argument_error("the source {} lies in the destination {}", source.string(),
                                  destination.string());
  for (fs::path above = to.parent_path(); above.has_relative_path(); above = above.parent_path())
    if (fs::exists(above / kManifestFile, error) || fs::exists(above / kJournalFile, error))
      return invalid_argument_error("{} lies in the container {}; choose a place outside of it",
                                    destination.string(), above.string());
  return {};
}

uint64_t held_bytes(const fs::path& destination, const InstallPlan& plan) {
  uint64_t bytes = 0;
  struct stat info {};
  std::vector<std::string> names = plan.container.scratch_files;
  names.emplace_back(kJournalFile);
  for (const auto& [name, record] : plan.container.manifest.files) names.push_back(name);
  for (const std::string& name : names)
    if (::stat((destination / name).c_str(), &info) == 0)
      bytes += static_cast<uint64_t>(info.st_blocks) * 512;
  return bytes;
}

Result<uint64_t> free_bytes_of(const fs::path& destination) {
  fs::path existing = fs::absolute(destination);
  std::error_code error;
  while (!fs::exists(existing, error) && existing.has_relative_path())
    existing = existing.parent_path();
  return free_disk_bytes(existing);
}

Status check_disk(const fs::path& destination, const InstallPlan& plan) {
  ASSIGN_OR_RETURN(const uint64_t free, free_bytes_of(destination));
  const uint64_t held = held_bytes(destination, plan);
  const uint64_t total = plan.disk_bytes();
  const uint64_t needed = total > held ? total - held : 0;
  if (needed <= free) return {};
  return over_budget_error("{} needs {} ({} bytes) on its disk, and {} ({} bytes) are free",
                           destination.string(), format_bytes(needed), needed, format_bytes(free),
                           free);
}

}  // namespace wader
