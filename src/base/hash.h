// XXH3-64 (xxHash, https://xxhash.com): the checksum of everything Wader writes and reads back.
// It finds damage, not forgery.
#pragma once

#include <cstddef>
#include <cstdint>
#include <memory>
#include <span>
#include <string>
#include <string_view>

#include "base/thread_pool.h"

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
  void reset();
  Xxh3Stream copy() const;

 private:
  struct State;
  std::unique_ptr<State> state_;
};

// The digest of a long record, which several threads can check together: XXH3-64 over the XXH3-64
// (little-endian) of each of its pieces of kRecordPieceBytes; the last may be shorter.
constexpr size_t kRecordPieceBytes = 256 * 1024;
constexpr size_t record_pieces(size_t bytes) {
  return (bytes + kRecordPieceBytes - 1) / kRecordPieceBytes;
}
uint64_t record_digest(std::span<const std::byte> record);
// piece_digests: room for record_pieces(record.size()). Allocates nothing.
uint64_t record_digest(std::span<const std::byte> record, ThreadPool& threads,
                       std::span<uint64_t> piece_digests);

// The same digest over a stream.
class RecordDigestStream {
 public:
  void update(std::span<const std::byte> bytes);
  uint64_t digest() const;

 private:
  Xxh3Stream piece_, pieces_;
  size_t piece_bytes_ = 0;  // of the open piece
};

// 16 lower-case hex digits, and back (false when the text is anything else).
std::string digest_to_hex(uint64_t digest);
bool digest_from_hex(std::string_view hex, uint64_t* digest);

}  // namespace wader
