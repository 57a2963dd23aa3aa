// Byte counts as text, both ways, and overflow-checked arithmetic on them.
#pragma once

#include <cstdint>
#include <optional>
#include <string>
#include <string_view>

#include "base/result.h"

namespace wader {

constexpr uint64_t kKiB = 1024, kMiB = 1024 * kKiB, kGiB = 1024 * kMiB;

// "59.2 GiB", "512 B". For people; machines get plain byte counts.
std::string format_bytes(uint64_t bytes);

// "4GiB", "512 MiB", "1.5G", "4096", "2gb" → bytes. K, M, G, T with or without "iB" are binary;
// "GB" is decimal. Refuses signs, garbage, and values over 2^63.
Result<uint64_t> parse_bytes(std::string_view text);

// a · b and a + b, or nothing when 64 bits do not hold it: sizes from files are never trusted.
inline std::optional<uint64_t> checked_mul(uint64_t a, uint64_t b) {
  uint64_t product;
  if (__builtin_mul_overflow(a, b, &product)) return std::nullopt;
  return product;
}
inline std::optional<uint64_t> checked_add(uint64_t a, uint64_t b) {
  uint64_t sum;
  if (__builtin_add_overflow(a, b, &sum)) return std::nullopt;
  return sum;
}

// True iff [offset, offset + bytes) lies inside a file of `size` bytes. Cannot overflow.
constexpr bool in_file(uint64_t offset, uint64_t bytes, uint64_t size) {
  return offset <= size && bytes <= size - offset;
}

// Smallest multiple of `alignment` (a power of two) that is >= value. The caller keeps value <
// 2^63.
constexpr uint64_t align_up(uint64_t value, uint64_t alignment) {
  return (value + alignment - 1) & ~(alignment - 1);
}

}  // namespace wader
