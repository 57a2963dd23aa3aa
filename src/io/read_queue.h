// ReadQueue: many reads in flight, completed in any order. The owner thread submits, polls and
// waits; buffers and files must live until their completion was returned. Never allocates after
// construction.
//
// Reads of class `demand` start before all of class `ahead` that have not started; within a class
// they start in the order submitted. How many are started at a time is the back end's business: no
// more than the disk needs to be busy, since a read that has started is not overtaken.
//
// Every back end finishes EINTR and short reads and tries EIO once more (a flaky cable or a
// remapped sector often reads the second time); what is still wrong then is in the completion.
#pragma once

#include <sys/types.h>

#include <cerrno>
#include <cstddef>
#include <cstdint>
#include <memory>
#include <optional>
#include <span>
#include <string>

#include "base/result.h"
#include "io/file.h"

namespace wader {

// A contiguous piece of a file; an expert reaches experts/ as a list of these.
struct Extent {
  const File* file;
  uint64_t offset_bytes;
  uint64_t bytes;
};

// Alignment of address, offset and size that every O_DIRECT file system takes.
constexpr uint64_t kDirectAlignment = 4096;

struct ReadRequest {
  Extent from;      // on an O_DIRECT file all three of address, offset and size are multiples of
                    // kDirectAlignment
  std::byte* into;  // from.bytes bytes
  uint64_t tag;     // returned with the completion
};

struct ReadCompletion {
  uint64_t tag;
  int errno_value;      // 0: no error of the system
  uint64_t bytes_read;  // less than asked with errno_value 0: the file ends there
};

enum class ReadClass : uint8_t { demand, ahead };

class ReadQueue {
 public:
  virtual ~ReadQueue() = default;
  virtual uint32_t capacity() const = 0;   // most reads in flight
  virtual uint32_t in_flight() const = 0;  // submitted, neither returned nor withdrawn
  virtual std::string description() const = 0;
  // in_flight() + requests.size() <= capacity(); no two in flight have one tag. Does not block.
  virtual void submit(std::span<const ReadRequest> requests,
                      ReadClass read_class = ReadClass::demand) = 0;
  // Takes back a read that has not started: true, and its completion will not come. False when it
  // has started (its completion comes) or no such tag is in flight.
  virtual bool withdraw(uint64_t tag) = 0;
  // What is complete now; starts what may start. Does not block.
  virtual size_t poll(std::span<ReadCompletion> completions) = 0;
  // Blocks until at least one read is complete (returns 0 at once when none is in flight).
  virtual size_t wait(std::span<ReadCompletion> completions) = 0;
};

// `threads` threads that pread; fewer where the system refuses more, null where it refuses all.
std::unique_ptr<ReadQueue> make_thread_read_queue(uint32_t threads, uint32_t capacity);

// What a disk may do to a reader, by seed. For tests.
struct FaultPlan {
  uint64_t seed = 1;
  double short_read = 0;    // probability that a pread returns only a part
  double interrupt = 0;     // probability of EINTR
  double eio = 0;           // probability of EIO; each is transient unless eio_always
  bool eio_always = false;  // every read at or behind eio_offset fails with EIO
  uint64_t eio_offset = ~0ull;
};

// Completes reads in a seeded random order, one a wait(), with the plan's faults. No threads.
std::unique_ptr<ReadQueue> make_fake_read_queue(const FaultPlan& plan, uint32_t capacity);

// A slow disk, modelled: one read at a time, each taking latency_seconds + bytes / bytes_per_second
// of steady_clock from when the one before was over. The bytes are read by pread when the modelled
// read is over, so a file should lie in the page cache and memory be faster than the model. poll()
// is exact; a read can be withdrawn until its start. No threads.
std::unique_ptr<ReadQueue> make_throttled_read_queue(double bytes_per_second,
                                                     double latency_seconds, uint32_t capacity);

// What a kernel may do to a user of io_uring. For tests.
struct UringFaults {
  FaultPlan reads = {};
  int setup_errno = 0;  // with which the system refuses the ring
  int enter_errno =
      0;  // with which it refuses the ring, after enters_before calls of io_uring_enter
  uint64_t enters_before = 0;
};

// One io_uring, driven by the owner alone: no threads of ours. An error where the system refuses it
// (no such system call, a sandbox, kernel.io_uring_disabled, RLIMIT_MEMLOCK), naming why: callers
// then take threads. Completions are seen without a system call; the kernel runs their last step in
// the owner thread, which can therefore see EINTR from epoll_wait and the like with reads in
// flight.
Result<std::unique_ptr<ReadQueue>> make_uring_read_queue(uint32_t capacity,
                                                         const UringFaults& faults = {});

// One read in progress: the retry rules that all back ends share.
struct ReadAttempt {
  ReadRequest request;
  uint64_t done_bytes = 0;
  bool retried = false;

  std::byte* into() const { return request.into + done_bytes; }
  uint64_t offset_bytes() const { return request.from.offset_bytes + done_bytes; }
  uint64_t bytes_left() const { return request.from.bytes - done_bytes; }
  // `result`: bytes that the system read at offset_bytes(), or -errno. The completion when the read
  // is over; nothing when what is left must be asked for.
  std::optional<ReadCompletion> take(int64_t result);
};

// All of a read by pread(2).
ReadCompletion read_blocking(const ReadRequest& request);

// Whether reads of `path` with O_DIRECT give the same bytes as buffered ones: proved by reading its
// first block both ways, since some file systems accept the flag and then refuse or ignore it.
// False also when it cannot open.
bool direct_reads_work(const std::string& path);

// Error for a completion that is not whole, naming the file and place.
Error read_error(const ReadCompletion& completion, const Extent& from);

}  // namespace wader
