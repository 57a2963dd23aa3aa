// manifest.json of Godwit's .gwt directories → spec and places.
#include <cstddef>
#include <cstdint>
#include <string_view>

#include "arch/spec.h"
#include "base/check.h"
#include "base/units.h"
#include "checkpoint/gwt_manifest.h"

extern "C" int LLVMFuzzerTestOneInput(const uint8_t* data, size_t size) {
  using namespace wader;
  const std::string_view text(reinterpret_cast<const char*>(data), size);
  const auto manifest = parse_gwt_manifest(text);
  if (!manifest.ok()) return 0;
  const ArchitectureSpec& spec = manifest->spec;
  CHECK(spec_from_json(spec_to_json(spec)).ok());
  CHECK(checked_mul(manifest->stride_bytes, spec.experts).has_value());
  for (const GwtSpan& span : {manifest->gate_up_blocks, manifest->gate_up_scales,
                              manifest->down_blocks, manifest->down_scales})
    CHECK(span.bytes > 0 && in_file(span.offset_bytes, span.bytes, manifest->stride_bytes));
  CHECK(spec.expert_bias == manifest->gate_up_bias.has_value());
  CHECK(spec.expert_bias == manifest->down_bias.has_value());
  for (const auto& [name, tensor] : manifest->trunk)
    CHECK(in_file(tensor.span.offset_bytes, tensor.span.bytes, manifest->trunk_bytes));
  return 0;
}
