#include "io/aligned_buffer.h"

#include <sys/mman.h>
#include <unistd.h>

#include <cerrno>
#include <utility>

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
    : data_(std::exchange(other.data_, nullptr)), size_(std::exchange(other.size_, 0)) {}

AlignedBuffer& AlignedBuffer::operator=(AlignedBuffer&& other) noexcept {
  AlignedBuffer taken(std::move(other));  // leaves with the old pages, so they are given back now
  std::swap(data_, taken.data_);
  std::swap(size_, taken.size_);
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
  if (pages == Pages::huge && size >= kHugePage) (void)::madvise(buffer.data_, size, MADV_HUGEPAGE);
  return buffer;
}

}  // namespace wader
