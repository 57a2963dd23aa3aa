// Routing traces and usage files: any bytes are refused by name or give a routing that can be
// replayed. The first byte says which of both it is and whether the checksums are made right, which
// no fuzzer finds.
#include <algorithm>
#include <cstddef>
#include <cstdint>
#include <cstring>
#include <string>

#include "base/check.h"
#include "base/hash.h"
#include "experts/routing_trace.h"
#include "experts/simulate.h"
#include "experts/usage_file.h"

namespace wader {
namespace {

constexpr UsageIdentity kModel{0x6C65646F6DULL, 2, 4};

uint32_t u32_at(const std::string& bytes, size_t at) {
  uint32_t value = 0;
  std::memcpy(&value, bytes.data() + at, sizeof value);
  return value;
}
template <typename T>
void put(std::string& bytes, size_t at, T value) {
  std::memcpy(bytes.data() + at, &value, sizeof value);
}

void mend_trace(std::string& bytes) {
  if (bytes.size() < 48) return;
  std::memcpy(bytes.data(), "WADERTR1", 8);
  put(bytes, 20, uint32_t{0});
  put(bytes, 40, xxh3_64(std::string_view(bytes).substr(0, 40)));
  const uint64_t ids = uint64_t{u32_at(bytes, 8)} * u32_at(bytes, 16);
  const uint64_t width = u32_at(bytes, 12) <= 256 ? 1 : 2;
  for (size_t at = 48; at + 8 <= bytes.size();) {
    const uint64_t rows = u32_at(bytes, at);
    if (ids > (1u << 20) || rows > (1u << 20)) return;
    const uint64_t end = at + 8 + rows * ids * width;
    if (end + 4 > bytes.size()) return;
    put(bytes, end, static_cast<uint32_t>(xxh3_64(std::string_view(bytes).substr(at, end - at))));
    at = end + 4;
  }
}

void check_trace(const std::string& bytes) {
  const auto trace = parse_routing_trace(std::as_bytes(std::span(bytes)), "input");
  if (!trace.ok()) {
    CHECK(trace.error().message.starts_with("input"));
    return;
  }
  CHECK(check_trace_shape(trace->shape).ok());
  CHECK(trace->ids.size() ==
        trace->tokens() * trace->shape.layers * trace->shape.experts_per_token);
  for (const uint16_t id : trace->ids) CHECK(id < trace->shape.experts);
  if (trace->ids.size() > 4096 || uint64_t{trace->shape.layers} * trace->shape.experts > 4096)
    return;
  const SimulateOptions options{.slots = trace->shape.experts_per_token};
  const auto least = simulate_belady(*trace, options);
  const auto blend = simulate(*trace, EvictionRule::blend, options);
  CHECK(blend.wanted == least.wanted && blend.missed <= blend.wanted);
}

void check_usage(std::string bytes, bool mend) {
  if (mend && bytes.size() >= 32) {
    std::memcpy(bytes.data(), "WADERUS1", 8);
    put(bytes, 8, kModel.model);
    put(bytes, 16, kModel.layers);
    put(bytes, 20, kModel.experts);
    bytes.resize(24 + 32 + 8);
    put(bytes, 56, xxh3_64(std::string_view(bytes).substr(0, 56)));
  }
  const auto usage = parse_usage(bytes, kModel, "input");
  if (!usage.ok()) {
    CHECK(usage.error().message.starts_with("input"));
    return;
  }
  CHECK(usage->size() == 8);
  for (const float share : *usage) CHECK(share >= 0 && share <= 1);
  UseHistory history(kModel.layers, kModel.experts);
  history.begin_with(*usage);
  for (size_t key = 0; key < 8; ++key) CHECK(history.expected_wait(key) > 0);
}

}  // namespace
}  // namespace wader

extern "C" int LLVMFuzzerTestOneInput(const uint8_t* data, size_t size) {
  if (size == 0) return 0;
  std::string bytes(reinterpret_cast<const char*>(data) + 1, size - 1);
  if ((data[0] & 1) != 0) {
    wader::check_usage(std::move(bytes), (data[0] & 2) != 0);
    return 0;
  }
  if ((data[0] & 2) != 0) wader::mend_trace(bytes);
  wader::check_trace(bytes);
  return 0;
}
