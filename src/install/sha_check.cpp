#define OPENSSL_SUPPRESS_DEPRECATED  // SHA256_Init and its kin
#include "install/sha_check.h"

#include <fmt/format.h>
#include <openssl/evp.h>
#include <openssl/sha.h>

#include <cstring>

#include "base/check.h"

namespace wader {
namespace {

struct ContextDeleter {
  void operator()(EVP_MD_CTX* context) const { EVP_MD_CTX_free(context); }
};
using Context = std::unique_ptr<EVP_MD_CTX, ContextDeleter>;

Context begin(const EVP_MD* kind) {
  Context context(EVP_MD_CTX_new());
  CHECK(context != nullptr && EVP_DigestInit_ex(context.get(), kind, nullptr) == 1);
  return context;
}

void add(const Context& context, const void* bytes, size_t count) {
  CHECK(EVP_DigestUpdate(context.get(), bytes, count) == 1);
}

std::string hex_of(std::span<const unsigned char> digest) {
  std::string hex;
  for (const unsigned char byte : digest) hex += fmt::format("{:02x}", byte);
  return hex;
}

std::string end(const Context& context) {
  unsigned char digest[EVP_MAX_MD_SIZE];
  unsigned bytes = 0;
  CHECK(EVP_DigestFinal_ex(context.get(), digest, &bytes) == 1);
  return hex_of(std::span(digest).first(bytes));
}

}  // namespace

std::string sha256_hex(std::string_view bytes) {
  const Context context = begin(EVP_sha256());
  add(context, bytes.data(), bytes.size());
  return end(context);
}

std::string git_blob_hex(std::string_view bytes) {
  const Context context = begin(EVP_sha1());
  const std::string head = fmt::format("blob {}", bytes.size());
  add(context, head.c_str(), head.size() + 1);
  add(context, bytes.data(), bytes.size());
  return end(context);
}

// The plain functions of libcrypto and not EVP: their state is bytes that can be kept.
static_assert(sizeof(SHA256_CTX) <= sizeof(ShaCheck::State));

ShaCheck::ShaCheck(uint64_t file_bytes) : file_bytes_(file_bytes) {
  SHA256_CTX context;
  CHECK(SHA256_Init(&context) == 1);
  std::memcpy(state_.data(), &context, sizeof context);
}

void ShaCheck::pass(uint64_t offset, std::span<const std::byte> bytes) {
  if (offset > frontier_ || offset + bytes.size() <= frontier_) return;
  bytes = bytes.subspan(frontier_ - offset);
  SHA256_CTX context;
  std::memcpy(&context, state_.data(), sizeof context);
  CHECK(SHA256_Update(&context, bytes.data(), bytes.size()) == 1);
  std::memcpy(state_.data(), &context, sizeof context);
  frontier_ += bytes.size();
}

std::string ShaCheck::hex() const {
  CHECK(whole());
  SHA256_CTX context;
  std::memcpy(&context, state_.data(), sizeof context);
  std::array<unsigned char, SHA256_DIGEST_LENGTH> digest;
  CHECK(SHA256_Final(digest.data(), &context) == 1);
  return hex_of(digest);
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
