#include "base/hash.h"

#include <fmt/format.h>
#include <xxhash.h>

#include <algorithm>
#include <bit>
#include <charconv>

#include "base/check.h"

namespace wader {

uint64_t xxh3_64(std::span<const std::byte> bytes) {
  return XXH3_64bits(bytes.data(), bytes.size());
}

struct Xxh3Stream::State {
  XXH3_state_t* xxh = XXH3_createState();
  ~State() { XXH3_freeState(xxh); }
};

Xxh3Stream::Xxh3Stream() : state_(std::make_unique<State>()) {
  CHECK(state_->xxh != nullptr);
  XXH3_64bits_reset(state_->xxh);
}
Xxh3Stream::~Xxh3Stream() = default;

Xxh3Stream Xxh3Stream::copy() const {
  Xxh3Stream other;
  XXH3_copyState(other.state_->xxh, state_->xxh);
  return other;
}

Xxh3Stream::Xxh3Stream(Xxh3Stream&&) noexcept = default;
Xxh3Stream& Xxh3Stream::operator=(Xxh3Stream&&) noexcept = default;

void Xxh3Stream::update(std::span<const std::byte> bytes) {
  XXH3_64bits_update(state_->xxh, bytes.data(), bytes.size());
}

uint64_t Xxh3Stream::digest() const {
  return XXH3_64bits_digest(state_->xxh);
}

void Xxh3Stream::reset() {
  XXH3_64bits_reset(state_->xxh);
}

namespace {

static_assert(std::endian::native == std::endian::little);

std::span<const std::byte> piece_of(std::span<const std::byte> record, size_t piece) {
  const size_t begin = piece * kRecordPieceBytes;
  return record.subspan(begin, std::min(kRecordPieceBytes, record.size() - begin));
}

}  // namespace

uint64_t record_digest(std::span<const std::byte> record) {
  RecordDigestStream stream;
  stream.update(record);
  return stream.digest();
}

uint64_t record_digest(std::span<const std::byte> record, ThreadPool& threads,
                       std::span<uint64_t> piece_digests) {
  const size_t pieces = record_pieces(record.size());
  CHECK(piece_digests.size() >= pieces);
  threads.parallel_for(static_cast<int64_t>(pieces), 1, [&](ThreadPool::Slice slice) {
    for (auto i = static_cast<size_t>(slice.begin); i < static_cast<size_t>(slice.end); ++i)
      piece_digests[i] = xxh3_64(piece_of(record, i));
  });
  return xxh3_64(std::as_bytes(piece_digests.first(pieces)));
}

void RecordDigestStream::update(std::span<const std::byte> bytes) {
  while (!bytes.empty()) {
    const size_t n = std::min(bytes.size(), kRecordPieceBytes - piece_bytes_);
    piece_.update(bytes.first(n));
    bytes = bytes.subspan(n);
    piece_bytes_ += n;
    if (piece_bytes_ < kRecordPieceBytes) return;
    const uint64_t whole = piece_.digest();
    pieces_.update(std::as_bytes(std::span(&whole, 1)));
    piece_.reset();
    piece_bytes_ = 0;
  }
}

uint64_t RecordDigestStream::digest() const {
  if (piece_bytes_ == 0) return pieces_.digest();
  Xxh3Stream pieces = pieces_.copy();
  const uint64_t last = piece_.digest();
  pieces.update(std::as_bytes(std::span(&last, 1)));
  return pieces.digest();
}

std::string digest_to_hex(uint64_t digest) {
  return fmt::format("{:016x}", digest);
}

bool digest_from_hex(std::string_view hex, uint64_t* digest) {
  if (hex.size() != 16) return false;
  for (char c : hex)
    if (!((c >= '0' && c <= '9') || (c >= 'a' && c <= 'f'))) return false;
  return std::from_chars(hex.data(), hex.data() + hex.size(), *digest, 16).ec == std::errc{};
}

}  // namespace wader
