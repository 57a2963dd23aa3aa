#include "container/digest_file.h"

#include <algorithm>
#include <vector>

#include "base/hash.h"
#include "base/units.h"
#include "io/file.h"

namespace wader {

Result<uint64_t> digest_file(const std::filesystem::path& path) {
  ASSIGN_OR_RETURN(const File file, File::open(path, File::Mode::read));
  ASSIGN_OR_RETURN(const uint64_t bytes, file.size());
  Xxh3Stream stream;
  std::vector<std::byte> buffer(256 * kKiB);
  for (uint64_t at = 0; at < bytes;) {
    const auto piece = std::span(buffer).first(std::min<uint64_t>(buffer.size(), bytes - at));
    RETURN_IF_ERROR(file.read_at(at, piece));
    stream.update(piece);
    at += piece.size();
  }
  return stream.digest();
}

}  // namespace wader
