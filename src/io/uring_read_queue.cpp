#include <fmt/format.h>
#include <liburing.h>
#include <sched.h>

#include <algorithm>
#include <optional>
#include <vector>

#include "base/check.h"
#include "base/error.h"
#include "io/fault_injector.h"
#include "io/fifo.h"
#include "io/read_queue.h"
#include "io/read_window.h"
#include "io/request_lists.h"

namespace wader {
namespace {

// Each read has at most one entry in the ring.
constexpr uint32_t kRingEntries = kMostReadsInKernel;
// The kernel reads at most 2 GiB less a page at a time; a round number below it keeps O_DIRECT
// aligned.
constexpr uint64_t kMostBytesAStep = kGiB;

Error setup_error(int error) {
  switch (error) {
    case ENOSYS:
      return unsupported_error("io_uring: this kernel has none");
    case EPERM:
    case EACCES:
      return unsupported_error(
          "io_uring: refused by a sandbox or by the setting kernel.io_uring_disabled");
    case ENOMEM:
      return unsupported_error(
          "io_uring: no memory for it; older kernels count it under the limit of locked memory "
          "(ulimit -l)");
    case EMFILE:
    case ENFILE:
      return unsupported_error("io_uring: no free file descriptor (ulimit -n)");
    default:
      return errno_error(error, "io_uring: setting it up");
  }
}

class UringReadQueue final : public ReadQueue {
 public:
  UringReadQueue(uint32_t capacity, const UringFaults& faults)
      : capacity_(capacity),
        requests_(capacity),
        completions_(capacity),
        handed_(kMostReadsInKernel),
        free_(kMostReadsInKernel),
        enter_errno_(faults.enter_errno),
        enters_before_(faults.enters_before),
        faults_(faults.reads) {
    for (uint32_t i = 0; i < kMostReadsInKernel; ++i) free_.push(i);
  }

  // Reads in the kernel write into their buffers whatever becomes of the ring.
  ~UringReadQueue() override {
    if (!is_set_up_) return;
    while (load_.reads > 0) {
      reap();
      if (load_.reads > 0) enter(/*wait=*/true);
    }
    io_uring_queue_exit(&ring_);
  }

  Status set_up() {
    // Default flags: with them the last step of a read runs as soon as the disk is done, even while
    // the owner computes, and what waits behind it starts.
    if (const int rc = io_uring_queue_init(kRingEntries, &ring_, 0); rc < 0)
      return setup_error(-rc);
    is_set_up_ = true;
    // Kernels before 5.6 have rings and no plain read.
    io_uring_probe* const probe = io_uring_get_probe_ring(&ring_);
    const bool reads = probe != nullptr && io_uring_opcode_supported(probe, IORING_OP_READ);
    io_uring_free_probe(probe);
    if (!reads) return setup_error(ENOSYS);
    // Workers copy from the page cache. More of them than reads in the kernel do nothing; kernels
    // before 5.15 have no such limit.
    unsigned workers[2] = {kBufferedReadsInKernel, 0};
    (void)io_uring_register_iowq_max_workers(&ring_, workers);
    return {};
  }

  uint32_t capacity() const override { return capacity_; }
  uint32_t in_flight() const override { return in_flight_; }
  std::string description() const override { return "io_uring"; }

  void submit(std::span<const ReadRequest> requests, ReadClass read_class) override {
    CHECK(in_flight_ + requests.size() <= capacity_);
    for (const ReadRequest& request : requests) requests_.push(request, read_class);
    in_flight_ += static_cast<uint32_t>(requests.size());
    advance();
  }

  bool withdraw(uint64_t tag) override {
    if (!requests_.remove(tag)) return false;
    --in_flight_;
    return true;
  }

  size_t poll(std::span<ReadCompletion> completions) override {
    advance();
    return take(completions);
  }

  size_t wait(std::span<ReadCompletion> completions) override {
    if (in_flight_ == 0) return 0;
    reap();
    prepare();
    while (completions_.empty()) {
      enter(/*wait=*/true);
      reap();
      prepare();
    }
    if (io_uring_sq_ready(&ring_) > 0) enter(/*wait=*/false);
    return take(completions);
  }

 private:
  struct Handed {
    ReadAttempt attempt;
    unsigned ring_position = 0;  // of its latest entry in the submission ring
    bool pending = false;        // a result of that entry is still to come
  };

  size_t take(std::span<ReadCompletion> completions) {
    const size_t n = std::min(completions.size(), completions_.size());
    for (size_t i = 0; i < n; ++i) completions[i] = completions_.pop();
    in_flight_ -= static_cast<uint32_t>(n);
    return n;
  }

  // Never waits. One system call at most, and none where nothing is to be handed over.
  void advance() {
    reap();
    prepare();
    if (io_uring_sq_ready(&ring_) > 0) enter(/*wait=*/false);
  }

  // Takes in what the kernel has finished.
  void reap() {
    io_uring_cqe* cqe = nullptr;
    while (load_.reads > 0 && io_uring_peek_cqe(&ring_, &cqe) == 0) {
      const auto index = static_cast<uint32_t>(cqe->user_data);
      const int64_t result = cqe->res;
      io_uring_cqe_seen(&ring_, cqe);
      finish_step(index, result);
    }
  }

  void finish_step(uint32_t index, int64_t result) {
    Handed& handed = handed_[index];
    handed.pending = false;
    if (const int failure = faults_.failure(handed.attempt)) result = -failure;
    // What the kernel could not do without waiting is asked for again from a worker.
    const bool again = result == -EAGAIN;
    auto completion = handed.attempt.take(again ? -EINTR : result);
    if (!completion && broken_errno_ != 0)
      completion = {handed.attempt.request.tag, broken_errno_, handed.attempt.done_bytes};
    if (completion)
      finish(index, *completion);
    else
      prepare_step(index, again ? IOSQE_ASYNC : 0);
  }

  void finish(uint32_t index, const ReadCompletion& completion) {
    completions_.push(completion);
    --load_.reads;
    load_.bytes -= handed_[index].attempt.request.from.bytes;
    if (load_.reads <= 1) load_.one_waits = false;
    free_.push(index);
  }

  // Fills the submission ring with what the window lets through; enter() hands it over.
  void prepare() {
    while (!requests_.empty()) {
      if (broken_errno_ != 0) {
        completions_.push({requests_.pop().tag, broken_errno_, 0});
        continue;
      }
      const Extent& from = requests_.front().from;
      const HandOver how =
          hand_over(load_, from.bytes, requests_.front_class(), from.file->is_direct());
      if (how == HandOver::later) return;
      const uint32_t index = free_.pop();
      ++load_.reads;
      load_.bytes += from.bytes;
      load_.one_waits = how == HandOver::behind;
      handed_[index].attempt = {requests_.pop()};
      prepare_step(index, how == HandOver::behind ? IOSQE_IO_DRAIN : 0);
    }
  }

  void prepare_step(uint32_t index, unsigned flags) {
    Handed& handed = handed_[index];
    const ReadAttempt& attempt = handed.attempt;
    const File& file = *attempt.request.from.file;
    handed.ring_position = ring_.sq.sqe_tail;
    io_uring_sqe* sqe = io_uring_get_sqe(&ring_);
    CHECK(sqe != nullptr);
    const uint64_t bytes =
        faults_.part_of(std::min(attempt.bytes_left(), kMostBytesAStep), file.is_direct());
    io_uring_prep_read(sqe, file.fd(), attempt.into(), static_cast<unsigned>(bytes),
                       attempt.offset_bytes());
    // A page cache's pages are copied by a worker: in the submitting call they would be copied by
    // the owner (measured: 6 to 13 ms in io_uring_enter for 13 MB, and 3 µs with a worker).
    if (!file.is_direct()) flags |= IOSQE_ASYNC;
    sqe->flags = static_cast<uint8_t>(sqe->flags | flags);
    sqe->user_data = index;
    handed.pending = true;
  }

  // Hands the submission ring over, and with `wait` sleeps until something is complete. Where the
  // kernel is short of memory, the ring keeps its entries for the next call.
  void enter(bool wait) {
    int rc = -broken_errno_;
    if (rc == 0 && enter_errno_ != 0 && enters_before_-- == 0) rc = -enter_errno_;
    if (rc == 0) rc = wait ? io_uring_submit_and_wait(&ring_, 1) : io_uring_submit(&ring_);
    if (rc >= 0 || rc == -EINTR) return;
    if (rc == -EAGAIN || rc == -EBUSY) {
      if (wait) sched_yield();
      return;
    }
    if (broken_errno_ != 0) {  // only the reads that the kernel has already are waited for
      sched_yield();
      return;
    }
    break_with(-rc);
  }

  // The kernel takes nothing more from this ring: what it has not taken yet fails, what it has is
  // still seen to its end in the completion ring.
  void break_with(int error) {
    broken_errno_ = error;
    const unsigned not_taken = io_uring_sq_ready(&ring_);
    for (uint32_t i = 0; i < handed_.size(); ++i) {
      Handed& handed = handed_[i];
      if (!handed.pending || ring_.sq.sqe_tail - handed.ring_position > not_taken) continue;
      handed.pending = false;
      finish(i, {handed.attempt.request.tag, error, handed.attempt.done_bytes});
    }
  }

  const uint32_t capacity_;
  uint32_t in_flight_ = 0;
  RequestLists requests_;  // not handed over
  Fifo<ReadCompletion> completions_;
  std::vector<Handed> handed_;
  Fifo<uint32_t> free_;  // of handed_
  KernelLoad load_;      // what handed_ holds
  io_uring ring_ = {};
  bool is_set_up_ = false;
  int broken_errno_ = 0;
  const int enter_errno_;
  uint64_t enters_before_;
  FaultInjector faults_;
};

}  // namespace

Result<std::unique_ptr<ReadQueue>> make_uring_read_queue(uint32_t capacity,
                                                         const UringFaults& faults) {
  CHECK(capacity >= 1);
  if (faults.setup_errno != 0) return setup_error(faults.setup_errno);
  auto queue = std::make_unique<UringReadQueue>(capacity, faults);
  RETURN_IF_ERROR(queue->set_up());
  return std::unique_ptr<ReadQueue>(std::move(queue));
}

}  // namespace wader
