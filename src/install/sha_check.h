// Digests that the hub gives of its files: SHA-256 of the contents, or git's SHA-1 of the blob.
// All after load_crypto() (install/crypto_library.h), which the hub's client calls.
#pragma once

#include <array>
#include <cstddef>
#include <cstdint>
#include <span>
#include <string>
#include <string_view>

namespace wader {

std::string sha256_hex(std::string_view bytes);
// SHA-1 of "blob N\0" and the bytes: git's name for them.
std::string git_blob_hex(std::string_view bytes);

// SHA-256 over a file whose bytes pass by from its first on. What comes before its turn is not
// taken: who wants it to count passes it again. One thread at a time.
class ShaCheck {
 public:
  explicit ShaCheck(uint64_t file_bytes);

  // Takes what lies at the frontier and after it.
  void pass(uint64_t offset, std::span<const std::byte> bytes);
  uint64_t file_bytes() const { return file_bytes_; }
  uint64_t frontier() const { return frontier_; }  // bytes before it are hashed
  bool whole() const { return frontier_ == file_bytes_; }
  std::string hex() const;  // when whole()

  // Where it stands, for a later process on this machine to go on.
  using State = std::array<std::byte, 128>;
  State state() const;
  // False, and unchanged, when that is no state of a file of this size.
  bool restore(uint64_t frontier, const State& state);

 private:
  alignas(8) State state_{};  // OpenSSL's SHA256_CTX
  uint64_t file_bytes_, frontier_ = 0;
};

}  // namespace wader
