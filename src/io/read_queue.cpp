#include "io/read_queue.h"

#include <unistd.h>

#include <algorithm>
#include <cerrno>
#include <cstring>

#include "base/error.h"
#include "io/aligned_buffer.h"

namespace wader {

std::optional<ReadCompletion> ReadAttempt::take(int64_t result) {
  if (result > 0) {
    done_bytes += std::min(static_cast<uint64_t>(result), bytes_left());
    retried = false;  // once a place, not once a record
    if (bytes_left() > 0) return {};
    return ReadCompletion{request.tag, 0, done_bytes};
  }
  if (result == 0) return ReadCompletion{request.tag, 0, done_bytes};
  const int error = static_cast<int>(-result);
  if (error == EINTR) return {};
  if (error == EIO && !retried) {
    retried = true;
    return {};
  }
  // O_DIRECT refuses to go on from the odd length at which a file was cut: that is its end, not a
  // bad call.
  if (error == EINVAL && done_bytes > 0) return ReadCompletion{request.tag, 0, done_bytes};
  return ReadCompletion{request.tag, error, done_bytes};
}

ReadCompletion read_blocking(const ReadRequest& request) {
  ReadAttempt attempt{request};
  for (;;) {
    const ssize_t n = ::pread(request.from.file->fd(), attempt.into(), attempt.bytes_left(),
                              static_cast<off_t>(attempt.offset_bytes()));
    if (const auto completion = attempt.take(n >= 0 ? n : -errno)) return *completion;
  }
}

bool direct_reads_work(const std::string& path) {
  auto direct = File::open(path, File::Mode::read_direct);
  auto buffered = File::open(path, File::Mode::read);
  auto memory = AlignedBuffer::allocate(2 * kDirectAlignment);
  if (!direct.ok() || !buffered.ok() || !memory.ok()) return false;
  const auto first = memory->span().first(kDirectAlignment);
  const auto second = memory->span().subspan(kDirectAlignment, kDirectAlignment);
  return direct->read_at(0, first).ok() && buffered->read_at(0, second).ok() &&
         std::memcmp(first.data(), second.data(), kDirectAlignment) == 0;
}

Error read_error(const ReadCompletion& completion, const Extent& from) {
  if (completion.errno_value != 0)
    return errno_error(completion.errno_value,
                       fmt::format("{}: reading {} bytes at byte {}", from.file->path(), from.bytes,
                                   from.offset_bytes));
  // A file that was cut while it was in use may end before the read's own place.
  const uint64_t end = from.offset_bytes + completion.bytes_read;
  const auto size = from.file->size();
  const uint64_t file_end = size.ok() ? std::min(*size, end) : end;
  return corrupt_error("{}: ends at byte {}, {} bytes short of what should stand there",
                       from.file->path(), file_end, from.offset_bytes + from.bytes - file_end);
}

}  // namespace wader
