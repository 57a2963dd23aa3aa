// Digests that the hub gives of its files: SHA-256 of the contents, or git's SHA-1 of the blob.
#pragma once

#include <cstdint>
#include <memory>
#include <span>
#include <string>
#include <string_view>

namespace wader {

std::string sha256_hex(std::string_view bytes);
// SHA-1 of "blob N\0" and the bytes: git's name for them.
std::string git_blob_hex(std::string_view bytes);

// SHA-256 over a file for as long as its bytes pass by in order; the first that do not end it.
class ShaCheck {
 public:
  explicit ShaCheck(uint64_t file_bytes);
  ~ShaCheck();
  ShaCheck(ShaCheck&&) noexcept;
  ShaCheck& operator=(ShaCheck&&) noexcept;

  void pass(uint64_t offset, std::span<const std::byte> bytes);
  bool whole() const { return state_ != nullptr && frontier_ == file_bytes_; }
  std::string hex();  // once, when whole()

 private:
  struct State;
  std::unique_ptr<State> state_;  // null: given up
  uint64_t file_bytes_, frontier_ = 0;
};

}  // namespace wader
