#include "chat/call_id.h"

#include <atomic>
#include <cstdint>
#include <random>
#include <span>

#include "base/hash.h"

namespace wader {

std::string new_call_id() {
  static const uint64_t base = [] {
    std::random_device device;
    return (uint64_t{device()} << 32) | device();
  }();
  static std::atomic<uint64_t> count{0};
  const uint64_t parts[2] = {base, count.fetch_add(1, std::memory_order_relaxed)};
  return "call_" + digest_to_hex(xxh3_64(std::as_bytes(std::span(parts))));
}

}  // namespace wader
