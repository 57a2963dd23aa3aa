#include "io/aligned_buffer.h"

#include <sys/mman.h>
#include <unistd.h>

#include <cerrno>
#include <utility>

#include "base/check.h"
#include "base/error.h"
#include "base/units.h"

namespace wader {
namespace {

// A start on a huge page's boundary lets one of 2 MiB back it from its first byte, whoever turns
// them on. It costs address space only.
constexpr uint64_t kHugePage = 2 * kMiB;

// More than a 47-bit address space holds: refused before the rounding below could overflow.
constexpr uint64_t kMaxBytes = 1ull << 46;

uint64_t page_bytes() {
  static const auto bytes = static_cast<uint64_t>(::sysconf(_SC_PAGESIZE));
  return bytes;
}

// Page sizes are powers of two and at least 4 KiB on every Linux we build for.
std::byte* align_pointer(std::byte* pointer, uint64_t alignment) {
  return pointer + (align_up(reinterpret_cast<uintptr_t>(pointer), alignment) -
                    reinterpret_cast<uintptr_t>(pointer));
}

}  // namespace

AlignedBuffer::~AlignedBuffer() {
  if (data_ != nullptr) ::munmap(data_, size_);
}

AlignedBuffer::AlignedBuffer(AlignedBuffer&& other) noexcept
    : data_(std::exchange(other.data_, nullptr)),
      size_(std::exchange(other.size_, 0)),
      huge_(other.huge_) {}

AlignedBuffer& AlignedBuffer::operator=(AlignedBuffer&& other) noexcept {
  AlignedBuffer taken(std::move(other));  // leaves with the old pages, so they are given back now
  std::swap(data_, taken.data_);
  std::swap(size_, taken.size_);
  std::swap(huge_, taken.huge_);
  return *this;
}

Result<AlignedBuffer> AlignedBuffer::allocate(uint64_t bytes, Pages pages) {
  AlignedBuffer buffer;
  if (bytes == 0) return buffer;
  if (bytes > kMaxBytes) return over_budget_error("no memory for a buffer of {} bytes", bytes);
  const uint64_t size = align_up(bytes, page_bytes());
  const uint64_t slack = size >= kHugePage ? kHugePage : 0;

  void* mapped = ::mmap(nullptr, size + slack, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS,
                        /*fd=*/-1, /*offset=*/0);
  if (mapped == MAP_FAILED)
    return over_budget_error("no memory for a buffer of {}", format_bytes(bytes));
  auto* const begin = static_cast<std::byte*>(mapped);
  auto* const end = begin + size + slack;
  buffer.data_ = slack > 0 ? align_pointer(begin, kHugePage) : begin;
  buffer.size_ = size;
  if (buffer.data_ != begin) ::munmap(begin, static_cast<size_t>(buffer.data_ - begin));
  if (buffer.data_ + size != end)
    ::munmap(buffer.data_ + size, static_cast<size_t>(end - (buffer.data_ + size)));
  // Refused where the kernel was built without them: then pages stay as they are.
  buffer.huge_ = pages == Pages::huge && size >= kHugePage;
  if (buffer.huge_) (void)::madvise(buffer.data_, size, MADV_HUGEPAGE);
  return buffer;
}

std::span<std::byte> AlignedBuffer::whole_pages(uint64_t offset, uint64_t bytes) {
  CHECK(offset <= size_ && bytes <= size_ - offset);
  const uint64_t begin = align_up(offset, page_bytes());
  const uint64_t end = (offset + bytes) / page_bytes() * page_bytes();
  return {data_ + begin, begin < end ? static_cast<size_t>(end - begin) : 0};
}

// MADV_DONTNEED alone lets the resident size fall, but a huge page of which a part is still in use
// stays charged whole until the kernel splits it in need: 256 MiB half given back in records of
// 300 KiB were charged 256 MiB. MADV_FREE splits it now: 128 MiB. And without MADV_NOHUGEPAGE
// khugepaged, which scans ranges that asked for huge pages, would fill the hole again.
// All of it is advice: what a kernel refuses only costs memory.
void AlignedBuffer::release(uint64_t offset, uint64_t bytes) {
  const auto pages = whole_pages(offset, bytes);
  if (pages.empty()) return;
  if (huge_) {
    (void)::madvise(pages.data(), pages.size(), MADV_NOHUGEPAGE);
    (void)::madvise(pages.data(), pages.size(), MADV_FREE);
  }
  (void)::madvise(pages.data(), pages.size(), MADV_DONTNEED);
}

void AlignedBuffer::reclaim(uint64_t offset, uint64_t bytes) {
  const auto pages = whole_pages(offset, bytes);
  if (huge_ && !pages.empty()) (void)::madvise(pages.data(), pages.size(), MADV_HUGEPAGE);
}

}  // namespace wader
