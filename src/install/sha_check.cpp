#include "install/sha_check.h"

#include <fmt/format.h>
#include <openssl/evp.h>

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

std::string end(const Context& context) {
  unsigned char digest[EVP_MAX_MD_SIZE];
  unsigned bytes = 0;
  CHECK(EVP_DigestFinal_ex(context.get(), digest, &bytes) == 1);
  std::string hex;
  for (unsigned i = 0; i < bytes; ++i) hex += fmt::format("{:02x}", digest[i]);
  return hex;
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

struct ShaCheck::State {
  Context context = begin(EVP_sha256());
};

ShaCheck::ShaCheck(uint64_t file_bytes)
    : state_(std::make_unique<State>()), file_bytes_(file_bytes) {}
ShaCheck::~ShaCheck() = default;
ShaCheck::ShaCheck(ShaCheck&&) noexcept = default;
ShaCheck& ShaCheck::operator=(ShaCheck&&) noexcept = default;

void ShaCheck::pass(uint64_t offset, std::span<const std::byte> bytes) {
  if (state_ == nullptr || bytes.empty()) return;
  if (offset != frontier_) {
    state_.reset();
    return;
  }
  add(state_->context, bytes.data(), bytes.size());
  frontier_ += bytes.size();
}

std::string ShaCheck::hex() {
  CHECK(whole());
  const std::string hex = end(state_->context);
  state_.reset();
  return hex;
}

}  // namespace wader
