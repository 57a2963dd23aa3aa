#include "engine/state_file.h"

#include <unistd.h>

#include <algorithm>
#include <cstring>
#include <system_error>

#include "base/error.h"
#include "base/hash.h"
#include "base/units.h"
#include "engine/engine.h"
#include "io/file.h"

namespace wader {
namespace {

namespace fs = std::filesystem;

constexpr char kMagic[8] = {'W', 'A', 'D', 'E', 'R', 'S', 'T', '3'};
constexpr size_t kBufferBytes = kMiB;  // a ring's pieces are a few hundred bytes each

struct Header {
  char magic[8];
  uint64_t model, kernels, tokens, note_bytes, state_bytes, snapshot_position, snapshot_bytes;
};
static_assert(sizeof(Header) == 64);
// Of the hybrids' largest, Qwen3-Next's, a snapshot has 90 MiB.
constexpr uint64_t kMaxSnapshotBytes = 4 * kGiB;

// Appends to a file through a buffer, hashing what goes by.
class HashedWriter {
 public:
  explicit HashedWriter(File& file) : file_(file) { buffer_.reserve(kBufferBytes); }

  Status append(std::span<const std::byte> bytes) {
    digest_.update(bytes);
    while (!bytes.empty()) {
      const size_t n = std::min(bytes.size(), kBufferBytes - buffer_.size());
      buffer_.insert(buffer_.end(), bytes.begin(), bytes.begin() + static_cast<ptrdiff_t>(n));
      bytes = bytes.subspan(n);
      if (buffer_.size() == kBufferBytes) RETURN_IF_ERROR(flush());
    }
    return {};
  }
  Status finish() {
    const uint64_t digest = digest_.digest();
    RETURN_IF_ERROR(append(std::as_bytes(std::span(&digest, 1))));
    return flush();
  }

 private:
  Status flush() {
    RETURN_IF_ERROR(file_.write_at(offset_, buffer_));
    offset_ += buffer_.size();
    buffer_.clear();
    return {};
  }

  File& file_;
  std::vector<std::byte> buffer_;
  uint64_t offset_ = 0;
  Xxh3Stream digest_;
};

// The same for reading. The whole file's size was checked.
class HashedReader {
 public:
  HashedReader(const File& file, uint64_t file_bytes) : file_(file), file_bytes_(file_bytes) {}

  Status read(std::span<std::byte> into) {
    const std::span<std::byte> whole = into;
    while (!into.empty()) {
      if (at_ == buffer_.size()) RETURN_IF_ERROR(fill());
      const size_t n = std::min(into.size(), buffer_.size() - at_);
      std::memcpy(into.data(), buffer_.data() + at_, n);
      at_ += n;
      into = into.subspan(n);
    }
    digest_.update(whole);
    return {};
  }
  Status skip(uint64_t bytes) {
    std::byte ignored[4096];
    for (; bytes > 0; bytes -= std::min<uint64_t>(bytes, sizeof ignored))
      RETURN_IF_ERROR(read(std::span(ignored).first(std::min<uint64_t>(bytes, sizeof ignored))));
    return {};
  }
  // After all but the digest was read.
  Status check_digest() {
    const uint64_t expected = digest_.digest();
    uint64_t stored = 0;
    RETURN_IF_ERROR(read(std::as_writable_bytes(std::span(&stored, 1))));
    if (stored == expected) return {};
    return corrupt_error("{}: does not match its checksum; it was damaged", file_.path());
  }

 private:
  Status fill() {
    buffer_.resize(std::min<uint64_t>(kBufferBytes, file_bytes_ - offset_));
    CHECK(!buffer_.empty());
    RETURN_IF_ERROR(file_.read_at(offset_, buffer_));
    offset_ += buffer_.size();
    at_ = 0;
    return {};
  }

  const File& file_;
  uint64_t file_bytes_, offset_ = 0;
  std::vector<std::byte> buffer_;
  size_t at_ = 0;
  Xxh3Stream digest_;
};

uint64_t pieces_bytes(const SequenceState& state, uint32_t length) {
  uint64_t bytes = 0;
  const Status counted = state.for_each_piece(length, [&](std::span<std::byte> piece) -> Status {
    bytes += piece.size();
    return {};
  });
  CHECK(counted.ok());
  return bytes;
}

Status write_all(File& file, const Header& header, const SequenceState& state,
                 std::span<const std::byte> snapshot, std::span<const TokenId> tokens,
                 std::string_view note) {
  HashedWriter writer(file);
  RETURN_IF_ERROR(writer.append(std::as_bytes(std::span(&header, 1))));
  RETURN_IF_ERROR(writer.append(std::as_bytes(tokens)));
  RETURN_IF_ERROR(writer.append(std::as_bytes(std::span(note))));
  RETURN_IF_ERROR(state.for_each_piece(
      state.length(), [&](std::span<std::byte> piece) { return writer.append(piece); }));
  RETURN_IF_ERROR(writer.append(snapshot));
  RETURN_IF_ERROR(writer.finish());
  RETURN_IF_ERROR(file.sync());
  return file.close();
}

Status check_header(const Header& header, const StateIdentity& identity, const SequenceState& state,
                    uint64_t file_bytes, uint64_t max_note_bytes) {
  if (std::memcmp(header.magic, kMagic, sizeof kMagic) != 0)
    return corrupt_error("not a saved state of this version of wader");
  if (header.model != identity.model)
    return invalid_argument_error("was saved with another model; a state only fits its own");
  if (header.kernels != identity.kernels)
    return invalid_argument_error(
        "was saved with other kernels, or by an older wader, whose bits differ; use the --kernels "
        "it was "
        "saved with, or begin a new conversation");
  if (header.tokens > state.context())
    return over_budget_error("holds {} tokens, the context is {}; raise --context", header.tokens,
                             state.context());
  if (header.note_bytes > std::min(max_note_bytes, kMaxNoteBytes))
    return over_budget_error("carries {} of text, more than the {} that fit here",
                             format_bytes(header.note_bytes), format_bytes(max_note_bytes));
  const uint64_t state_bytes = pieces_bytes(state, static_cast<uint32_t>(header.tokens));
  if (header.state_bytes != state_bytes || header.snapshot_bytes > kMaxSnapshotBytes ||
      header.snapshot_position > header.tokens ||
      file_bytes != sizeof(Header) + header.tokens * sizeof(TokenId) + header.note_bytes +
                        state_bytes + header.snapshot_bytes + sizeof(uint64_t))
    return corrupt_error("has {} bytes, which is not what its header says", file_bytes);
  return {};
}

}  // namespace

StateIdentity state_identity(const Container& container, const Kernels& kernels) {
  // All back ends but ref give the same bits: a conversation may move between their machines. A
  // change of their arithmetic (ops.h) takes another name: the 64 was for its wide blocks.
  return {container.identity(), xxh3_64(&kernels == &kRefKernels ? "ref" : "lanes-64")};
}

Status save_state(const fs::path& path, const StateIdentity& identity, const SequenceState& state,
                  const Snapshots& snapshots, std::span<const TokenId> tokens,
                  std::string_view note) {
  CHECK(state.whole() && tokens.size() == state.length());
  if (note.size() > kMaxNoteBytes)
    return invalid_argument_error("{} of text are more than a saved state may carry ({})",
                                  format_bytes(note.size()), format_bytes(kMaxNoteBytes));
  Header header{};
  std::memcpy(header.magic, kMagic, sizeof kMagic);
  header.model = identity.model;
  header.kernels = identity.kernels;
  header.tokens = tokens.size();
  header.note_bytes = note.size();
  header.state_bytes = pieces_bytes(state, state.length());
  header.snapshot_position = snapshots.latest_turn(state.length());
  std::span<const std::byte> snapshot;
  if (header.snapshot_position > 0)
    snapshot = snapshots.bytes(static_cast<uint32_t>(header.snapshot_position));
  header.snapshot_bytes = snapshot.size();

  // Through a link the file that it names is replaced, not the link.
  std::error_code error;
  const fs::path target = fs::is_symlink(path, error) ? fs::weakly_canonical(path, error) : path;
  fs::path aside = target;
  aside += fmt::format(".{}.tmp", ::getpid());
  ASSIGN_OR_RETURN(File file, File::open(aside, File::Mode::create_own));
  Status written = write_all(file, header, state, snapshot, tokens, note);
  if (written.ok()) {
    fs::rename(aside, target, error);
    if (error) written = errno_error(error.value(), target.string());
  }
  if (!written.ok()) {
    fs::remove(aside, error);
    return written;
  }
  return sync_directory(target.has_parent_path() ? target.parent_path() : fs::path("."));
}

Result<LoadedState> load_state(const fs::path& path, const StateIdentity& identity,
                               SequenceState& state, Snapshots& snapshots,
                               uint64_t max_note_bytes) {
  CHECK(state.length() == 0);
  ASSIGN_OR_RETURN(const File file, File::open(path, File::Mode::read));
  ASSIGN_OR_RETURN(const uint64_t file_bytes, file.size());
  if (file_bytes < sizeof(Header) + sizeof(uint64_t))
    return corrupt_error("{}: too short for a saved state", path.string());
  HashedReader reader(file, file_bytes);
  Header header{};
  RETURN_IF_ERROR(reader.read(std::as_writable_bytes(std::span(&header, 1))));
  if (Status status = check_header(header, identity, state, file_bytes, max_note_bytes);
      !status.ok())
    return std::move(status).error().within(path.string());

  LoadedState loaded;
  loaded.tokens.resize(header.tokens);
  loaded.note.resize(header.note_bytes);
  const auto length = static_cast<uint32_t>(header.tokens);
  RETURN_IF_ERROR(reader.read(std::as_writable_bytes(std::span(loaded.tokens))));
  RETURN_IF_ERROR(reader.read(std::as_writable_bytes(std::span(loaded.note))));
  RETURN_IF_ERROR(
      state.for_each_piece(length, [&](std::span<std::byte> piece) { return reader.read(piece); }));
  std::span<std::byte> snapshot;
  if (header.snapshot_bytes == snapshots.snapshot_bytes())
    snapshot = snapshots.place(static_cast<uint32_t>(header.snapshot_position),
                               SnapshotKind::turn_boundary);
  if (snapshot.empty())
    RETURN_IF_ERROR(reader.skip(header.snapshot_bytes));
  else
    RETURN_IF_ERROR(reader.read(snapshot));
  RETURN_IF_ERROR(reader.check_digest());
  state.adopt(length);
  return loaded;
}

}  // namespace wader
