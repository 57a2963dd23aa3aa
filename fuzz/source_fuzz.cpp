// The parser of source.json on any text: it never crashes, and what it accepts stays inside the
// files that it names, and is written and read back the same. As with manifests, each input is also
// tried with a right digest.
#include <cstddef>
#include <cstdint>
#include <string>
#include <string_view>

#include "base/check.h"
#include "base/units.h"
#include "container/in_place.h"
#include "container/manifest.h"
#include "sealed_text.h"

namespace {

// Two layers of four experts in six sections, as GPT-OSS has them.
const wader::Manifest& manifest() {
  static const wader::Manifest kManifest = [] {
    wader::Manifest m{};
    wader::ArchitectureSpec& spec = m.spec;
    spec.hidden = spec.expert_inner = 64;
    spec.experts = 4;
    spec.expert_bias = true;
    spec.layers = {wader::LayerKind::sliding_attention, wader::LayerKind::full_attention};
    m.experts = wader::expert_layout(spec, {wader::DType::mxfp4, wader::DType::mxfp4});
    return m;
  }();
  return kManifest;
}

void check(std::string_view text) {
  const auto source = wader::parse_in_place(text, manifest());
  if (!source.ok()) {
    CHECK(!source.error().message.empty());
    return;
  }
  CHECK(source->directory.is_absolute());
  for (const wader::SourceFile& file : source->files)
    for (const auto& part : std::filesystem::path(file.name)) CHECK(part != ".." && part != "/");
  const auto& sections = manifest().experts.sections;
  for (const auto& runs : source->layers)
    for (size_t i = 0; i < sections.size(); ++i)
      for (uint64_t expert = 0; expert < 4; ++expert)
        CHECK(wader::in_file(runs[i].offset_bytes + expert * runs[i].step_bytes, sections[i].bytes,
                             source->files[runs[i].file].bytes));
  const std::string written = wader::in_place_to_text(*source);
  const auto again = wader::parse_in_place(written, manifest());
  CHECK(again.ok() && *again == *source);
}

}  // namespace

extern "C" int LLVMFuzzerTestOneInput(const uint8_t* data, size_t size) {
  return check_sealed(data, size, check);
}
