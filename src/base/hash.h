// XXH3-64 (xxHash, https://xxhash.com): the checksum of everything Wader writes and reads back.
// It finds damage, not forgery.
#pragma once

#include <cstddef>
#include <cstdint>
#include <memory>
#include <span>
#include <string>
#include <string_view>

namespace wader {

uint64_t xxh3_64(std::span<const std::byte> bytes);
inline uint64_t xxh3_64(std::string_view text) {
  return xxh3_64(std::as_bytes(std::span(text)));
}

// The same digest over a stream of pieces.
class Xxh3Stream {
 public:
  Xxh3Stream();
  ~Xxh3Stream();
  Xxh3Stream(Xxh3Stream&&) noexcept;
  Xxh3Stream& operator=(Xxh3Stream&&) noexcept;
  void update(std::span<const std::byte> bytes);
  uint64_t digest() const;

 private:
  struct State;
  std::unique_ptr<State> state_;
};

// 16 lower-case hex digits, and back (false when the text is anything else).
std::string digest_to_hex(uint64_t digest);
bool digest_from_hex(std::string_view hex, uint64_t* digest);

}  // namespace wader
