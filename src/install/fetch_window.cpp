#include "install/fetch_window.h"

#include <sys/mman.h>

#include <algorithm>
#include <array>
#include <atomic>
#include <cerrno>
#include <cstddef>
#include <cstring>
#include <fstream>
#include <string>
#include <utility>

#include "base/error.h"
#include "base/hash.h"
#include "base/units.h"

namespace wader {
namespace {

constexpr uint64_t kUnitBytes = 4 * kKiB;
constexpr uint32_t kEntries = 8192;
constexpr uint64_t kMagic = 0x3230'6864'6177'6a66;

std::array<char, 40> boot_id() {
  std::array<char, 40> id{};
  std::ifstream("/proc/sys/kernel/random/boot_id").read(id.data(), 36);
  return id;
}

}  // namespace

struct FetchWindow::Entry {
  uint32_t used, file;
  uint64_t offset, bytes, place, received;
};

// Two of a file in turns, each with a digest of itself: one is always whole.
struct FetchWindow::ProofSlot {
  struct Half {
    uint64_t sequence, frontier, file;
    ShaCheck::State state;
    uint64_t digest;
    uint64_t own_digest() const {
      return xxh3_64(std::as_bytes(std::span(this, 1)).first(offsetof(Half, digest)));
    }
  };
  Half halves[2];
};

struct FetchWindow::Header {
  uint64_t magic, identity, capacity_bytes;
  std::array<char, 40> boot;
  Entry entries[kEntries];
  ProofSlot proofs[kProofs];
};

FetchWindow::FetchWindow(FetchWindow&& other) noexcept {
  *this = std::move(other);
}

FetchWindow& FetchWindow::operator=(FetchWindow&& other) noexcept {
  file_ = std::move(other.file_);
  std::swap(memory_, other.memory_);
  std::swap(mapped_bytes_, other.mapped_bytes_);
  capacity_bytes_ = other.capacity_bytes_;
  free_ = std::move(other.free_);
  idle_ = std::move(other.idle_);
  kept_ = std::move(other.kept_);
  kept_proofs_ = std::move(other.kept_proofs_);
  return *this;
}

FetchWindow::~FetchWindow() {
  if (memory_ != nullptr) ::munmap(memory_, mapped_bytes_);
}

FetchWindow::Entry& FetchWindow::entry(uint32_t place) {
  CHECK(place < kEntries);
  return reinterpret_cast<Header*>(memory_)->entries[place];
}

Result<FetchWindow> FetchWindow::open(const std::filesystem::path& path, uint64_t capacity_bytes,
                                      uint64_t identity) {
  FetchWindow window;
  window.capacity_bytes_ = align_up(capacity_bytes, kUnitBytes);
  window.mapped_bytes_ = align_up(sizeof(Header), kUnitBytes) + window.capacity_bytes_;
  int flags = MAP_PRIVATE | MAP_ANONYMOUS;
  if (!path.empty()) {
    ASSIGN_OR_RETURN(window.file_, File::open(path, File::Mode::update));
    // Reserved: a full disk must show here, not as a signal when memory is touched.
    RETURN_IF_ERROR(window.file_.allocate(window.mapped_bytes_));
    flags = MAP_SHARED;
  }
  void* memory = ::mmap(nullptr, window.mapped_bytes_, PROT_READ | PROT_WRITE, flags,
                        window.file_.is_open() ? window.file_.fd() : -1, 0);
  if (memory == MAP_FAILED && errno != ENOMEM && flags == MAP_SHARED)
    return open({}, capacity_bytes, identity);
  if (memory == MAP_FAILED)
    return over_budget_error("no memory for the {} that wait while fetching",
                             format_bytes(window.mapped_bytes_));
  window.memory_ = static_cast<std::byte*>(memory);
  auto* const header = reinterpret_cast<Header*>(memory);
  const std::array<char, 40> boot = boot_id();
  if (header->magic != kMagic || header->identity != identity || header->boot != boot ||
      header->capacity_bytes != window.capacity_bytes_ || boot[0] == '\0') {
    std::memset(memory, 0, sizeof(Header));
    header->identity = identity;
    header->capacity_bytes = window.capacity_bytes_;
    header->boot = boot;
    header->magic = kMagic;
  }
  window.adopt();
  return window;
}

// Entries of an earlier run: ours, but checked all the same, since the file lay on a disk.
void FetchWindow::adopt() {
  std::vector<std::pair<uint64_t, uint64_t>> taken;  // begin, end
  for (uint32_t i = 0; i < kEntries; ++i) {
    Entry& e = entry(i);
    const uint64_t size = align_up(std::min(e.bytes, capacity_bytes_), kUnitBytes);
    const bool sane = e.used == 1 && e.bytes > 0 && e.bytes <= kMaxChunkBytes &&
                      e.received <= e.bytes && e.place % kUnitBytes == 0 &&
                      in_file(e.place, size, capacity_bytes_) && e.offset <= UINT64_MAX - e.bytes &&
                      std::none_of(taken.begin(), taken.end(), [&](const auto& t) {
                        return e.place < t.second && t.first < e.place + size;
                      });
    if (!sane || e.received == 0) {
      e.used = 0;
      idle_.push_back(i);
      continue;
    }
    taken.emplace_back(e.place, e.place + size);
    kept_.push_back({i, {e.file, e.offset, e.bytes}, e.received});
  }
  for (const ProofSlot& slot : reinterpret_cast<const Header*>(memory_)->proofs) {
    const ProofSlot::Half* best = nullptr;
    for (const ProofSlot::Half& half : slot.halves)
      if (half.sequence > 0 && half.digest == half.own_digest() &&
          (best == nullptr || half.sequence > best->sequence))
        best = &half;
    if (best != nullptr && best->file <= UINT32_MAX)
      kept_proofs_.push_back({static_cast<uint32_t>(best->file), best->frontier, best->state});
  }
  std::sort(taken.begin(), taken.end());
  uint64_t at = 0;
  taken.emplace_back(capacity_bytes_, capacity_bytes_);
  for (const auto& [begin, end] : taken) {
    if (begin > at) free_[at] = begin - at;
    at = end;
  }
}

std::optional<uint32_t> FetchWindow::take(const SourceRange& range) {
  const uint64_t size = align_up(range.bytes, kUnitBytes);
  const auto found =
      std::find_if(free_.begin(), free_.end(), [&](const auto& f) { return f.second >= size; });
  if (found == free_.end() || idle_.empty()) return std::nullopt;
  const auto [at, bytes] = *found;
  free_.erase(found);
  if (bytes > size) free_[at + size] = bytes - size;
  const uint32_t place = idle_.back();
  idle_.pop_back();
  // Marked as used last: a kill in between leaves an entry that nobody believes.
  entry(place) = {0, range.file, range.offset, range.bytes, at, 0};
  std::atomic_signal_fence(std::memory_order_release);
  entry(place).used = 1;
  return place;
}

std::span<std::byte> FetchWindow::bytes(uint32_t place) {
  const Entry& e = entry(place);
  return {memory_ + align_up(sizeof(Header), kUnitBytes) + e.place, e.bytes};
}

void FetchWindow::set_received(uint32_t place, uint64_t bytes) {
  std::atomic_signal_fence(std::memory_order_release);  // the bytes stand before they count
  entry(place).received = bytes;
}

void FetchWindow::note_proof(uint32_t slot, const KeptProof& proof) {
  CHECK(slot < kProofs);
  auto& halves = reinterpret_cast<Header*>(memory_)->proofs[slot].halves;
  const uint64_t sequence = std::max(halves[0].sequence, halves[1].sequence) + 1;
  ProofSlot::Half& half = halves[sequence % 2];
  half = {sequence, proof.frontier, proof.file, proof.state, 0};
  half.digest = half.own_digest();
}

void FetchWindow::clear_proof(uint32_t file) {
  for (ProofSlot& slot : reinterpret_cast<Header*>(memory_)->proofs)
    for (ProofSlot::Half& half : slot.halves)
      if (half.file == file) half = {};
}

void FetchWindow::set_aside(uint32_t place) {
  const Entry& e = entry(place);
  if (is_kept())
    ::madvise(memory_ + align_up(sizeof(Header), kUnitBytes) + e.place,
              align_up(e.bytes, kUnitBytes), MADV_DONTNEED);
}

void FetchWindow::give_back(uint32_t place) {
  Entry& e = entry(place);
  CHECK(e.used == 1);
  e.used = 0;
  idle_.push_back(place);
  uint64_t at = e.place, size = align_up(e.bytes, kUnitBytes);
  const auto after = free_.lower_bound(at);
  if (after != free_.begin()) {
    const auto before = std::prev(after);
    if (before->first + before->second == at) {
      at = before->first;
      size += before->second;
      free_.erase(before);
    }
  }
  if (after != free_.end() && after->first == at + size) {
    size += after->second;
    free_.erase(after);
  }
  free_[at] = size;
}

}  // namespace wader
