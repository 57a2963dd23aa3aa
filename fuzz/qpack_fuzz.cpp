// The JSON files of Swiftlet's .qpack directories: manifest.json and packed_experts/layout.json.
#include <cstddef>
#include <cstdint>
#include <string_view>

#include "base/check.h"
#include "base/units.h"
#include "checkpoint/index.h"
#include "checkpoint/qpack_layout.h"

extern "C" int LLVMFuzzerTestOneInput(const uint8_t* data, size_t size) {
  using namespace wader;
  const std::string_view text(reinterpret_cast<const char*>(data), size);
  if (const auto manifest = parse_qpack_manifest(text); manifest.ok())
    for (const auto& file : manifest->files) CHECK(check_relative_name(file.name).ok());
  const auto layout = parse_qpack_layout(text);
  if (!layout.ok()) return 0;
  CHECK(checked_mul(layout->stride_bytes, layout->experts).has_value());
  CHECK(layout->linear_layers.size() == layout->layers);
  for (const QpackSection& a : layout->sections) {
    CHECK(in_file(a.offset_bytes, a.bytes, layout->stride_bytes));
    CHECK(a.bytes == a.rows * a.cols * dtype_bytes(a.dtype));
    for (const QpackSection& b : layout->sections)
      CHECK(&a == &b || a.offset_bytes + a.bytes <= b.offset_bytes ||
            b.offset_bytes + b.bytes <= a.offset_bytes);
  }
  return 0;
}
