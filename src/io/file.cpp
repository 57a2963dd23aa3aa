#include "io/file.h"

#include <fcntl.h>
#include <sys/stat.h>
#include <sys/statvfs.h>
#include <unistd.h>

#include <algorithm>
#include <cerrno>
#include <cstdio>
#include <limits>
#include <optional>
#include <utility>

#include "base/error.h"
#include "base/units.h"

namespace wader {
namespace {

constexpr uint64_t kMaxOffset = std::numeric_limits<off_t>::max();
// Linux caps a single request for read-ahead at what the device takes at once, often 128 KiB.
constexpr uint64_t kAdviceBytes = 128 * kKiB;

// Calls a system call again for as long as a signal interrupts it.
template <typename Call>
auto retry(Call call) {
  decltype(call()) result;
  do result = call();
  while (result < 0 && errno == EINTR);
  return result;
}

Status require_regular(const struct stat& info, const std::string& path) {
  if (S_ISREG(info.st_mode)) return {};
  if (S_ISDIR(info.st_mode)) return invalid_argument_error("{} is a directory, not a file", path);
  return invalid_argument_error("{} is not a regular file", path);
}

int open_flags(File::Mode mode) {
  switch (mode) {
    case File::Mode::read:
      return O_RDONLY;
    case File::Mode::read_direct:
      return O_RDONLY | O_DIRECT;
    case File::Mode::create:
    case File::Mode::update:
      return O_RDWR | O_CREAT;
    case File::Mode::create_own:
      return O_RDWR | O_CREAT | O_EXCL;  // which also follows no link
    case File::Mode::update_direct:
      return O_RDWR | O_DIRECT;
  }
  return O_RDONLY;
}

// Whether [offset, offset + bytes) can be named by off_t at all.
Status check_range(uint64_t offset, uint64_t bytes, const std::string& path) {
  if (in_file(offset, bytes, kMaxOffset)) return {};
  return invalid_argument_error("{}: {} bytes at offset {} are beyond any file", path, bytes,
                                offset);
}

std::filesystem::path directory_of(const std::filesystem::path& path) {
  return path.has_parent_path() ? path.parent_path() : std::filesystem::path(".");
}

}  // namespace

File::~File() {
  if (fd_ >= 0) ::close(fd_);
}

File::File(File&& other) noexcept
    : ByteSource(),
      fd_(std::exchange(other.fd_, -1)),
      direct_(other.direct_),
      path_(std::move(other.path_)) {}

File& File::operator=(File&& other) noexcept {
  File taken(std::move(other));  // leaves with the old descriptor, so it is closed now
  std::swap(fd_, taken.fd_);
  std::swap(direct_, taken.direct_);
  std::swap(path_, taken.path_);
  return *this;
}

Result<File> File::open(const std::filesystem::path& path, Mode mode) {
  File file;
  file.path_ = path.string();
  file.direct_ = mode == Mode::read_direct || mode == Mode::update_direct;
  if (file.path_.find('\0') != std::string::npos)
    return invalid_argument_error("a file name with a NUL byte in it cannot be opened");
  struct stat info {};
  // First look, because opening some devices already does something.
  if (::stat(file.path_.c_str(), &info) == 0) RETURN_IF_ERROR(require_regular(info, file.path_));

  // O_NONBLOCK: should a FIFO have taken the name since, opening it must not wait for a writer.
  const int flags = open_flags(mode) | O_CLOEXEC | O_NONBLOCK | O_NOCTTY;
  const mode_t rights = mode == Mode::create_own ? 0600 : 0644;
  file.fd_ = retry([&] { return ::open(file.path_.c_str(), flags, rights); });
  if (file.fd_ < 0) {
    if (errno == EEXIST) return already_exists_error("{} is there already", file.path_);
    if (file.direct_ && errno == EINVAL)
      return unsupported_error("{}: this file system has no O_DIRECT", file.path_);
    return errno_error(errno, file.path_);
  }
  if (::fstat(file.fd_, &info) != 0) return errno_error(errno, file.path_);
  RETURN_IF_ERROR(require_regular(info, file.path_));
  // io_uring answers EAGAIN instead of waiting for the disk when the file itself is non-blocking.
  const int status = ::fcntl(file.fd_, F_GETFL);
  if (status < 0 || ::fcntl(file.fd_, F_SETFL, status & ~O_NONBLOCK) != 0)
    return errno_error(errno, file.path_);
  if (mode == Mode::create) RETURN_IF_ERROR(file.truncate(0));  // not O_TRUNC: only what we checked
  return file;
}

Result<uint64_t> File::size() const {
  CHECK(is_open());
  struct stat info {};
  if (::fstat(fd_, &info) != 0) return errno_error(errno, path_);
  return static_cast<uint64_t>(info.st_size);
}

Status File::read_at(uint64_t offset, std::span<std::byte> into) const {
  CHECK(is_open());
  RETURN_IF_ERROR(check_range(offset, into.size(), path_));
  size_t done = 0;
  while (done < into.size()) {
    const ssize_t got = retry([&] {
      return ::pread(fd_, into.data() + done, into.size() - done,
                     static_cast<off_t>(offset + done));
    });
    if (got > 0) {
      done += static_cast<size_t>(got);
      continue;
    }
    const int error = got < 0 ? errno : 0;
    // With O_DIRECT a read that met the end leaves an odd offset, and some file systems call going
    // on from there EINVAL instead of the end.
    ASSIGN_OR_RETURN(const uint64_t end, size());
    if (error != 0 && !(error == EINVAL && done > 0 && offset + done >= end))
      return errno_error(error, path_);
    return corrupt_error("{}: ends at byte {}, {} bytes short", path_, end, into.size() - done);
  }
  return {};
}

Result<SourceStamp> File::stamp() const {
  CHECK(is_open());
  struct stat info {};
  if (::fstat(fd_, &info) != 0) return errno_error(errno, path_);
  return SourceStamp{static_cast<uint64_t>(info.st_size),
                     int64_t{info.st_mtim.tv_sec} * 1'000'000'000 + info.st_mtim.tv_nsec};
}

void File::will_read(uint64_t offset, uint64_t bytes) const {
  CHECK(is_open());
  if (!in_file(offset, bytes, kMaxOffset)) return;
  for (uint64_t done = 0; done < bytes; done += kAdviceBytes)
    ::posix_fadvise(fd_, static_cast<off_t>(offset + done),
                    static_cast<off_t>(std::min(kAdviceBytes, bytes - done)), POSIX_FADV_WILLNEED);
}

Status File::write_at(uint64_t offset, std::span<const std::byte> from) {
  CHECK(is_open());
  RETURN_IF_ERROR(check_range(offset, from.size(), path_));
  size_t done = 0;
  while (done < from.size()) {
    const ssize_t put = retry([&] {
      return ::pwrite(fd_, from.data() + done, from.size() - done,
                      static_cast<off_t>(offset + done));
    });
    if (put < 0) return errno_error(errno, path_);
    if (put == 0) return io_error("{}: the system wrote nothing and gave no reason", path_);
    done += static_cast<size_t>(put);
  }
  return {};
}

Status File::allocate(uint64_t bytes) {
  CHECK(is_open());
  RETURN_IF_ERROR(check_range(0, bytes, path_));
  // Not posix_fallocate: where the file system cannot, glibc would write to every block.
  const int rc =
      bytes == 0 ? 0 : retry([&] { return ::fallocate(fd_, 0, 0, static_cast<off_t>(bytes)); });
  if (rc != 0) {
    if (errno != EOPNOTSUPP && errno != ENOSYS) return errno_error(errno, path_);
    // No reservation to be had here; the free space of this moment is the next best answer.
    struct stat info {};
    if (::fstat(fd_, &info) != 0) return errno_error(errno, path_);
    const uint64_t held = static_cast<uint64_t>(info.st_blocks) * 512;
    ASSIGN_OR_RETURN(const uint64_t free, free_disk_bytes(path_));
    if (bytes > held && bytes - held > free) return errno_error(ENOSPC, path_);
  }
  return truncate(bytes);
}

Status File::truncate(uint64_t bytes) {
  CHECK(is_open());
  RETURN_IF_ERROR(check_range(0, bytes, path_));
  if (retry([&] { return ::ftruncate(fd_, static_cast<off_t>(bytes)); }) != 0)
    return errno_error(errno, path_);
  return {};
}

void File::start_writeback(uint64_t offset, uint64_t bytes) const {
  CHECK(is_open());
  if (in_file(offset, bytes, kMaxOffset))
    ::sync_file_range(fd_, static_cast<off_t>(offset), static_cast<off_t>(bytes),
                      SYNC_FILE_RANGE_WRITE);
}

Status File::sync() {
  CHECK(is_open());
  if (retry([&] { return ::fdatasync(fd_); }) != 0) return errno_error(errno, path_);
  return {};
}

Status File::close() {
  CHECK(is_open());
  // Linux frees the descriptor even when close fails, EINTR included: never twice.
  if (::close(std::exchange(fd_, -1)) != 0 && errno != EINTR) return errno_error(errno, path_);
  return {};
}

Result<std::string> read_text_file(const std::filesystem::path& path, uint64_t max_bytes) {
  ASSIGN_OR_RETURN(const File file, File::open(path, File::Mode::read));
  ASSIGN_OR_RETURN(const uint64_t bytes, file.size());
  if (bytes > max_bytes)
    return corrupt_error("{}: {} bytes, and a file of this kind has at most {}", file.path(), bytes,
                         max_bytes);
  std::string text(bytes, '\0');
  RETURN_IF_ERROR(file.read_at(0, std::as_writable_bytes(std::span(text))));
  return text;
}

Status write_file_atomically(const std::filesystem::path& path, std::string_view text) {
  // Renaming over a device node or a pipe would replace it.
  std::error_code error;
  const auto target = std::filesystem::symlink_status(path, error);
  if (std::filesystem::exists(target) && !std::filesystem::is_regular_file(target) &&
      !std::filesystem::is_symlink(target))
    return invalid_argument_error("{} is there and is not a regular file; choose another name",
                                  path.string());
  // Its own name for each process: two may write the same file.
  std::filesystem::path temporary = path;
  temporary += fmt::format(".{}.tmp", ::getpid());
  const auto write = [&]() -> Status {
    ASSIGN_OR_RETURN(File file, File::open(temporary, File::Mode::create));
    RETURN_IF_ERROR(file.write_at(0, std::as_bytes(std::span(text))));
    RETURN_IF_ERROR(file.sync());
    RETURN_IF_ERROR(file.close());
    if (::rename(temporary.c_str(), path.c_str()) != 0) return errno_error(errno, path.string());
    return {};
  };
  if (Status status = write(); !status.ok()) {
    ::unlink(temporary.c_str());
    return status;
  }
  return sync_directory(directory_of(path));
}

Status sync_directory(const std::filesystem::path& directory) {
  const int fd =
      retry([&] { return ::open(directory.c_str(), O_RDONLY | O_DIRECTORY | O_CLOEXEC); });
  if (fd < 0) return errno_error(errno, directory.string());
  const int rc = retry([&] { return ::fsync(fd); });
  const int error = errno;
  ::close(fd);
  // Some network and FUSE file systems have no fsync for directories; there is nothing better to
  // do.
  if (rc != 0 && error != EINVAL && error != ENOTSUP && error != ENOSYS)
    return errno_error(error, directory.string());
  return {};
}

Result<uint64_t> free_disk_bytes(const std::filesystem::path& path) {
  struct statvfs info {};
  if (retry([&] { return ::statvfs(path.c_str(), &info); }) != 0)
    return errno_error(errno, path.string());
  return checked_mul(info.f_bavail, info.f_frsize).value_or(kMaxOffset);
}

}  // namespace wader
