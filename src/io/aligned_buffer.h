// AlignedBuffer: anonymous pages, zeroed, aligned for O_DIRECT; nothing is resident before it is
// touched.
#pragma once

#include <cstddef>
#include <cstdint>
#include <span>

#include "base/result.h"

namespace wader {

class AlignedBuffer {
 public:
  AlignedBuffer() = default;
  ~AlignedBuffer();
  AlignedBuffer(AlignedBuffer&& other) noexcept;
  AlignedBuffer& operator=(AlignedBuffer&& other) noexcept;

  // At least `bytes` bytes (rounded up to whole pages). over_budget when the kernel refuses.
  // huge: ask for transparent huge pages, for what will be touched whole and read in long runs; a
  // kernel that has none gives ordinary ones.
  enum class Pages : uint8_t { ordinary, huge };
  static Result<AlignedBuffer> allocate(uint64_t bytes, Pages pages = Pages::ordinary);

  // Gives the memory of whole pages inside [offset, offset + bytes) back to the system, at once and
  // however they are backed; they read as zeros when they are touched again. reclaim() says that
  // they will be: the same range, before it is used.
  void release(uint64_t offset, uint64_t bytes);
  void reclaim(uint64_t offset, uint64_t bytes);

  std::byte* data() { return data_; }
  const std::byte* data() const { return data_; }
  uint64_t size() const { return size_; }
  std::span<std::byte> span() { return {data_, static_cast<size_t>(size_)}; }
  std::span<const std::byte> span() const { return {data_, static_cast<size_t>(size_)}; }

 private:
  std::span<std::byte> whole_pages(uint64_t offset, uint64_t bytes);

  std::byte* data_ = nullptr;
  uint64_t size_ = 0;
  bool huge_ = false;
};

}  // namespace wader
