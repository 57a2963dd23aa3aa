// Saved states: any file is refused by name or restores exactly the tokens and bytes that it holds.
// The first byte says which model the state is of and whether the file is made whole: as long as
// its header says, with the right digest, which no fuzzer finds.
#include <fmt/format.h>
#include <sys/mman.h>
#include <unistd.h>

#include <array>
#include <cstddef>
#include <cstdint>
#include <cstring>
#include <string>
#include <string_view>

#include "arch/arch_testing.h"
#include "base/check.h"
#include "base/hash.h"
#include "engine/state_file.h"

namespace wader {
namespace {

constexpr uint32_t kContext = 1200, kChunk = 8;  // a ring of 1040 positions
constexpr StateIdentity kIdentity{0x6C65646F6DULL, 0x656E72656BULL};
constexpr uint64_t kHeaderBytes = 64, kMaxFileBytes = 1 << 20, kMaxTextBytes = 4096;

uint64_t u64_at(std::string_view file, size_t offset) {
  uint64_t value = 0;
  std::memcpy(&value, file.data() + offset, sizeof value);
  return value;
}

// Nothing where the header says more than any state of these models has.
void make_whole(std::string& file) {
  if (file.size() < kHeaderBytes) return;
  uint64_t bytes = kHeaderBytes;
  for (const auto& [offset, unit] : {std::pair(24, sizeof(TokenId)), {32, 1}, {40, 1}, {56, 1}}) {
    const uint64_t count = u64_at(file, static_cast<size_t>(offset));
    if (count > kMaxFileBytes) return;
    bytes += count * unit;
  }
  for (uint64_t i = file.size(); i < bytes; ++i) file += static_cast<char>(i % 251);
  file.resize(bytes);
  const uint64_t digest = xxh3_64(file);
  file.append(reinterpret_cast<const char*>(&digest), sizeof digest);
}

struct Model {
  explicit Model(const ArchitectureSpec& spec)
      : state(SequenceState::create(spec, {kContext, kChunk, DType::f16}).value()),
        snapshots(
            Snapshots::create(snapshot_bytes(spec, {kContext, kChunk, DType::f16}), 1).value()) {}

  SequenceState state;
  Snapshots snapshots;
};

void check_loaded(const LoadedState& loaded, Model& model, std::string_view file) {
  SequenceState& state = model.state;
  CHECK(state.whole() && state.length() == loaded.tokens.size());
  CHECK(state.length() <= kContext && state.length() == u64_at(file, 24));
  size_t at = kHeaderBytes;
  const auto same = [&](const void* bytes, size_t count) {
    CHECK(at + count <= file.size() && std::memcmp(file.data() + at, bytes, count) == 0);
    at += count;
  };
  if (!loaded.tokens.empty()) same(loaded.tokens.data(), loaded.tokens.size() * sizeof(TokenId));
  same(loaded.note.data(), loaded.note.size());
  const Status pieces =
      state.for_each_piece(state.length(), [&](std::span<std::byte> piece) -> Status {
        same(piece.data(), piece.size());
        return {};
      });
  CHECK(pieces.ok());
  const uint64_t position = u64_at(file, 48), bytes = u64_at(file, 56);
  const bool kept = position > 0 && bytes == model.snapshots.snapshot_bytes();
  CHECK(model.snapshots.latest(state.length()) == (kept ? position : 0));
  if (kept) {
    const auto snapshot = model.snapshots.bytes(static_cast<uint32_t>(position));
    same(snapshot.data(), snapshot.size());
    model.snapshots.restore(state, static_cast<uint32_t>(position));
    CHECK(state.length() == position);
  } else {
    at += bytes;
  }
  CHECK(at + sizeof(uint64_t) == file.size() && u64_at(file, at) == xxh3_64(file.substr(0, at)));
}

// A file in memory, written anew for each input.
class MemoryFile {
 public:
  MemoryFile() : fd_(::memfd_create("state", 0)) { CHECK(fd_ >= 0); }
  std::string path() const { return fmt::format("/proc/self/fd/{}", fd_); }
  void write(std::string_view bytes) {
    CHECK(::ftruncate(fd_, 0) == 0);
    CHECK(::pwrite(fd_, bytes.data(), bytes.size(), 0) == static_cast<ssize_t>(bytes.size()));
  }

 private:
  int fd_;
};

}  // namespace
}  // namespace wader

extern "C" int LLVMFuzzerTestOneInput(const uint8_t* data, size_t size) {
  using namespace wader;
  static MemoryFile memory;
  static std::array<Model, 2> models = {Model(testing::small_attention_spec()),
                                        Model(testing::small_hybrid_spec())};
  if (size == 0) return 0;
  Model& model = models[data[0] & 1];
  SequenceState& state = model.state;
  std::string file(reinterpret_cast<const char*>(data) + 1, size - 1);
  if ((data[0] & 2) != 0) make_whole(file);
  memory.write(file);
  const auto loaded = load_state(memory.path(), kIdentity, state, model.snapshots, kMaxTextBytes);
  if (loaded.ok())
    check_loaded(*loaded, model, file);
  else
    CHECK(state.length() == 0 && loaded.error().message.starts_with(memory.path()));
  CHECK(state.rewind(0));
  model.snapshots.forget_after(0);
  return 0;
}
