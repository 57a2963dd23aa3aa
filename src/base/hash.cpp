#include "base/hash.h"

#include <fmt/format.h>
#include <xxhash.h>

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
Xxh3Stream::Xxh3Stream(Xxh3Stream&&) noexcept = default;
Xxh3Stream& Xxh3Stream::operator=(Xxh3Stream&&) noexcept = default;

void Xxh3Stream::update(std::span<const std::byte> bytes) {
  XXH3_64bits_update(state_->xxh, bytes.data(), bytes.size());
}

uint64_t Xxh3Stream::digest() const {
  return XXH3_64bits_digest(state_->xxh);
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
