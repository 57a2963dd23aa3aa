#include "install/sha_check.h"

#include <fmt/format.h>

#include <cstring>

#include "base/check.h"
#include "install/crypto_library.h"

namespace wader {
namespace {

std::string hex_of(std::span<const unsigned char> digest) {
  std::string hex;
  for (const unsigned char byte : digest) hex += fmt::format("{:02x}", byte);
  return hex;
}

std::string sha256_end(SHA256_CTX& context) {
  std::array<unsigned char, SHA256_DIGEST_LENGTH> digest;
  CHECK(crypto().SHA256_Final(digest.data(), &context) == 1);
  return hex_of(digest);
}

}  // namespace

std::string sha256_hex(std::string_view bytes) {
  SHA256_CTX context;
  CHECK(crypto().SHA256_Init(&context) == 1);
  CHECK(crypto().SHA256_Update(&context, bytes.data(), bytes.size()) == 1);
  return sha256_end(context);
}

std::string git_blob_hex(std::string_view bytes) {
  SHA_CTX context;
  CHECK(crypto().SHA1_Init(&context) == 1);
  const std::string head = fmt::format("blob {}", bytes.size());
  CHECK(crypto().SHA1_Update(&context, head.c_str(), head.size() + 1) == 1);
  CHECK(crypto().SHA1_Update(&context, bytes.data(), bytes.size()) == 1);
  std::array<unsigned char, SHA_DIGEST_LENGTH> digest;
  CHECK(crypto().SHA1_Final(digest.data(), &context) == 1);
  return hex_of(digest);
}

static_assert(sizeof(SHA256_CTX) <= sizeof(ShaCheck::State));

ShaCheck::ShaCheck(uint64_t file_bytes) : file_bytes_(file_bytes) {
  SHA256_CTX context;
  CHECK(crypto().SHA256_Init(&context) == 1);
  std::memcpy(state_.data(), &context, sizeof context);
}

void ShaCheck::pass(uint64_t offset, std::span<const std::byte> bytes) {
  if (offset > frontier_ || offset + bytes.size() <= frontier_) return;
  bytes = bytes.subspan(frontier_ - offset);
  SHA256_CTX context;
  std::memcpy(&context, state_.data(), sizeof context);
  CHECK(crypto().SHA256_Update(&context, bytes.data(), bytes.size()) == 1);
  std::memcpy(state_.data(), &context, sizeof context);
  frontier_ += bytes.size();
}

std::string ShaCheck::hex() const {
  CHECK(whole());
  SHA256_CTX context;
  std::memcpy(&context, state_.data(), sizeof context);
  return sha256_end(context);
}

ShaCheck::State ShaCheck::state() const {
  return state_;
}

bool ShaCheck::restore(uint64_t frontier, const State& state) {
  SHA256_CTX context;
  std::memcpy(&context, state.data(), sizeof context);
  // The length in bits and what is left of a block must be those of the frontier, or OpenSSL would
  // write outside of its buffer.
  const uint64_t bits = uint64_t{context.Nh} << 32 | context.Nl;
  if (frontier > file_bytes_ || bits != frontier * 8 || context.num != frontier % SHA256_CBLOCK ||
      context.md_len != SHA256_DIGEST_LENGTH)
    return false;
  state_ = state;
  frontier_ = frontier;
  return true;
}

}  // namespace wader
