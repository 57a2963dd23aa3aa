#include "experts/usage_file.h"

#include <algorithm>
#include <cmath>
#include <cstring>

#include "base/check.h"
#include "base/error.h"
#include "base/hash.h"
#include "io/file.h"

namespace wader {
namespace {

constexpr char kMagic[8] = {'W', 'A', 'D', 'E', 'R', 'U', 'S', '1'};

struct Header {
  char magic[8];
  uint64_t model;
  uint32_t layers, experts;
};
static_assert(sizeof(Header) == 24);

uint64_t file_bytes(const UsageIdentity& identity) {
  return sizeof(Header) + uint64_t{identity.layers} * identity.experts * sizeof(float) +
         sizeof(uint64_t);
}

void append(std::string& text, const void* from, size_t bytes) {
  text.append(static_cast<const char*>(from), bytes);
}

}  // namespace

Result<std::vector<float>> parse_usage(std::string_view bytes, const UsageIdentity& identity,
                                       std::string_view what) {
  Header header{};
  if (bytes.size() < sizeof header) return corrupt_error("{}: too short for a usage file", what);
  std::memcpy(&header, bytes.data(), sizeof header);
  if (std::memcmp(header.magic, kMagic, sizeof kMagic) != 0)
    return corrupt_error("{}: not a usage file of this version of wader", what);
  if (header.model != identity.model || header.layers != identity.layers ||
      header.experts != identity.experts)
    return invalid_argument_error("{}: the usage of another model", what);
  if (bytes.size() != file_bytes(identity))
    return corrupt_error("{}: {} bytes, and {} layers with {} experts have {}", what, bytes.size(),
                         header.layers, header.experts, file_bytes(identity));
  const size_t digest_at = bytes.size() - sizeof(uint64_t);
  uint64_t digest = 0;
  std::memcpy(&digest, bytes.data() + digest_at, sizeof digest);
  if (digest != xxh3_64(bytes.substr(0, digest_at)))
    return corrupt_error("{}: does not match its checksum", what);
  std::vector<float> shares(size_t{identity.layers} * identity.experts);
  std::memcpy(shares.data(), bytes.data() + sizeof header, shares.size() * sizeof(float));
  if (!std::all_of(shares.begin(), shares.end(),
                   [](float share) { return share >= 0 && share <= 1; }))
    return corrupt_error("{}: has a share of uses that is not between 0 and 1", what);
  return shares;
}

Result<std::vector<float>> read_usage_file(const std::filesystem::path& path,
                                           const UsageIdentity& identity) {
  ASSIGN_OR_RETURN(const std::string bytes, read_text_file(path, file_bytes(identity)));
  return parse_usage(bytes, identity, path.string());
}

Status write_usage_file(const std::filesystem::path& path, const UsageIdentity& identity,
                        std::span<const float> shares) {
  CHECK(shares.size() == size_t{identity.layers} * identity.experts);
  Header header{
      .magic = {}, .model = identity.model, .layers = identity.layers, .experts = identity.experts};
  std::memcpy(header.magic, kMagic, sizeof kMagic);
  std::string text;
  append(text, &header, sizeof header);
  append(text, shares.data(), shares.size_bytes());
  const uint64_t digest = xxh3_64(text);
  append(text, &digest, sizeof digest);
  return write_file_atomically(path, text);
}

}  // namespace wader
