// The manifest's parser on any text: it never crashes, and what it accepts, it writes and reads
// back the same. A text's digest would stop nearly every mutation at the door, so each input is
// also tried with a right one.
#include <cstddef>
#include <cstdint>
#include <string_view>

#include "base/check.h"
#include "container/manifest.h"
#include "sealed_text.h"

namespace {

void check(std::string_view text) {
  const auto manifest = wader::parse_manifest(text);
  if (!manifest.ok()) {
    CHECK(!manifest.error().message.empty());
    return;
  }
  // Accepted: sizes add up, nothing overlaps, no name leaves the directory.
  uint64_t end = 0;
  for (const wader::TrunkTensor& tensor : manifest->trunk) {
    CHECK(tensor.offset_bytes >= end && tensor.offset_bytes % wader::kSectionAlignment == 0);
    end = tensor.offset_bytes + tensor.bytes;
    CHECK(end >= tensor.offset_bytes && end <= manifest->trunk_bytes());
  }
  for (const auto& [name, record] : manifest->files)
    CHECK(name.find("..") == std::string::npos || name.find('/') == std::string::npos);
  CHECK(manifest->expert_bytes() / manifest->spec.moe_layer_count() / manifest->spec.experts ==
        manifest->experts.stride_bytes);
  const std::string written = wader::manifest_to_text(*manifest);
  const auto again = wader::parse_manifest(written);
  CHECK(again.ok());
  CHECK(wader::manifest_to_text(*again) == written);
}

}  // namespace

extern "C" int LLVMFuzzerTestOneInput(const uint8_t* data, size_t size) {
  return check_sealed(data, size, check);
}
