// File: one open file, all its reads and writes checked. Errors name the path. EINTR and short
// transfers are finished here. Movable, not copyable. read_at and write_at may be called from
// several threads.
#pragma once

#include <cstddef>
#include <cstdint>
#include <filesystem>
#include <span>
#include <string>

#include "base/result.h"
#include "io/byte_source.h"

namespace wader {

class File final : public ByteSource {
 public:
  enum class Mode : uint8_t {
    read,         // existing file, read only
    read_direct,  // the same with O_DIRECT; refused with unsupported where the file system has none
    create,       // new or truncated, read and write
    create_own,   // new, read and write by its owner only; already_exists where the name is taken
    update,       // existing or new, read and write, contents kept
    update_direct,  // existing, read and write with O_DIRECT; unsupported as above
  };

  File() = default;
  ~File() override;
  File(File&& other) noexcept;
  File& operator=(File&& other) noexcept;

  // Opens regular files only (no FIFO or device can make a reader hang). Close-on-exec.
  static Result<File> open(const std::filesystem::path& path, Mode mode);

  bool is_open() const { return fd_ >= 0; }
  int fd() const { return fd_; }
  const std::string& path() const override { return path_; }
  bool is_direct() const { return direct_; }  // opened with O_DIRECT

  Result<uint64_t> size() const override;
  // Fills `into` from `offset`, or fails: "ends at byte N, M bytes short" is corrupt.
  Status read_at(uint64_t offset, std::span<std::byte> into) const override;
  Result<SourceStamp> stamp() const override;
  void will_read(uint64_t offset, uint64_t bytes) const override;  // starts read-ahead
  Status write_at(uint64_t offset, std::span<const std::byte> from);
  // Sets the length and reserves the blocks, so that a full disk shows here and not later.
  Status allocate(uint64_t bytes);
  Status truncate(uint64_t bytes);
  Status sync();  // fdatasync
  // Has the kernel begin to write these bytes out, so that a later sync finds little to do.
  void start_writeback(uint64_t offset, uint64_t bytes) const;
  Status close();  // reports what close(2) reports; the destructor ignores it

 private:
  int fd_ = -1;
  bool direct_ = false;
  std::string path_;
};

// Whole small file, refused when larger than max_bytes.
Result<std::string> read_text_file(const std::filesystem::path& path, uint64_t max_bytes);

// Writes path.tmp, syncs, renames over path, syncs the directory: the file is old or new, never
// half.
Status write_file_atomically(const std::filesystem::path& path, std::string_view text);

// fsync of a directory, so that names created or renamed in it survive a power cut.
Status sync_directory(const std::filesystem::path& directory);

// Bytes that an unprivileged writer may still put on the file system of `path` (which must exist).
Result<uint64_t> free_disk_bytes(const std::filesystem::path& path);

}  // namespace wader
