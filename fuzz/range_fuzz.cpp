// range.json: any text is refused by name or is a map that writes and reads back as itself.
#include <cstddef>
#include <cstdint>
#include <string_view>

#include "base/check.h"
#include "range/range_file.h"

extern "C" int LLVMFuzzerTestOneInput(const uint8_t* data, size_t size) {
  using namespace wader;
  constexpr uint64_t kModel = 0x0123456789abcdef;
  const RangeShape shape{{0, 3}, 2};
  const auto map =
      parse_range({reinterpret_cast<const char*>(data), size}, kModel, shape, "range.json");
  if (!map.ok()) {
    CHECK(!map.error().message.empty());
    return 0;
  }
  CHECK(map->experts.size() == shape.count());
  for (const ExpertRange& expert : map->experts)
    CHECK(!expert.topic || *expert.topic < map->topics.size());
  CHECK(*parse_range(range_to_text(*map), kModel, shape, "again") == *map);
  return 0;
}
