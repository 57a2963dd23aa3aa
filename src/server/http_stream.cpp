#include "server/http_stream.h"

#include <boost/asio/buffer.hpp>
#include <boost/asio/error.hpp>
#include <boost/asio/redirect_error.hpp>
#include <boost/asio/use_awaitable.hpp>

namespace wader {
namespace {

namespace asio = boost::asio;
using boost::system::error_code;

// What a client may pour in while it waits for an answer, or after its last one, before it counts
// as gone. A client that sends a whole large body before it reads gets its 413 still.
constexpr uint64_t kFloodBytes = 4 << 20;
constexpr uint64_t kLingerBytes = 64 << 20;

bool is_temporary(error_code ec) {
  return ec == asio::error::would_block || ec == asio::error::try_again ||
         ec == asio::error::interrupted;
}

}  // namespace

HttpStream::HttpStream(Socket socket, std::span<char> scratch)
    : socket_(std::move(socket)), scratch_(scratch), timer_(socket_.get_executor()) {
  error_code ec;
  socket_.non_blocking(true, ec);
}

// One timer a connection, started again only when it fires too early: most waits end long before
// their deadline, and moving a timer costs more than leaving it.
void HttpStream::start_timer() {
  timer_.expires_at(deadline_);
  timer_runs_ = true;
  timer_.async_wait([weak = weak_from_this()](error_code ec) {
    const auto self = weak.lock();
    if (!self || ec) return;
    self->timer_runs_ = false;
    if (self->deadline_ == Clock::time_point::max()) return;
    if (Clock::now() < self->deadline_) return self->start_timer();
    self->late_ = true;
    error_code ignored;
    self->socket_.cancel(ignored);
  });
}

Task<bool> HttpStream::wait(Socket::wait_type what, Clock::time_point deadline) {
  late_ = Clock::now() >= deadline;
  if (cancelled_ || late_) co_return false;
  deadline_ = deadline;
  if (!timer_runs_ || timer_.expiry() > deadline) start_timer();
  error_code ec;
  co_await socket_.async_wait(what, asio::redirect_error(asio::use_awaitable, ec));
  deadline_ = Clock::time_point::max();
  co_return !ec && !cancelled_ && !late_;
}

Task<HttpStream::Input> HttpStream::read(std::string& inbox, Clock::time_point deadline) {
  for (;;) {
    // Waits also when there are bytes already: the others' turn comes in between.
    const bool ready = co_await wait(Socket::wait_read, deadline);
    if (!ready) co_return cancelled_ ? Input::cancelled : late_ ? Input::late : Input::closed;
    error_code ec;
    const size_t bytes = socket_.read_some(asio::buffer(scratch_.data(), scratch_.size()), ec);
    if (ec && !is_temporary(ec)) co_return Input::closed;
    if (bytes == 0) continue;
    inbox.append(scratch_.data(), bytes);
    co_return Input::some;
  }
}

Task<bool> HttpStream::write(std::string_view bytes, Clock::duration patience) {
  while (!bytes.empty()) {
    error_code ec;
    const size_t taken = socket_.write_some(asio::buffer(bytes.data(), bytes.size()), ec);
    bytes.remove_prefix(taken);
    written_bytes_ += taken;
    if (!ec) continue;
    if (!is_temporary(ec)) co_return false;
    const bool ready = co_await wait(Socket::wait_write, Clock::now() + patience);
    if (!ready) co_return false;
  }
  co_return true;
}

void HttpStream::watch(std::string& inbox, size_t most_bytes, std::function<void()> on_closed) {
  watch_inbox_ = &inbox;
  watch_most_bytes_ = most_bytes;
  on_closed_ = std::move(on_closed);
  next_watch();
}

void HttpStream::next_watch() {
  socket_.async_wait(Socket::wait_read,
                     [weak = weak_from_this(), serial = watch_serial_](error_code ec) {
                       const auto self = weak.lock();
                       if (self && serial == self->watch_serial_ && self->watch_inbox_ && !ec)
                         self->on_watched();
                     });
}

void HttpStream::on_watched() {
  error_code ec;
  const size_t bytes = socket_.read_some(asio::buffer(scratch_.data(), scratch_.size()), ec);
  if (!ec && watch_inbox_->size() + bytes <= watch_most_bytes_ && flood_bytes_ == 0)
    watch_inbox_->append(scratch_.data(), bytes);
  else if (!ec)
    flood_bytes_ += bytes;
  if ((ec && !is_temporary(ec)) || flood_bytes_ > kFloodBytes) {
    watch_inbox_ = nullptr;
    const auto action = std::move(on_closed_);
    if (action) action();
    return;
  }
  next_watch();
}

void HttpStream::unwatch() {
  ++watch_serial_;
  watch_inbox_ = nullptr;
  on_closed_ = nullptr;
  error_code ignored;
  socket_.cancel(ignored);
}

void HttpStream::cancel() {
  cancelled_ = true;
  error_code ignored;
  socket_.cancel(ignored);
}

Task<> HttpStream::linger(Clock::duration at_most) {
  error_code ec;
  socket_.shutdown(Socket::shutdown_send, ec);
  if (ec) co_return;
  const auto deadline = Clock::now() + at_most;
  for (uint64_t thrown_bytes = 0; thrown_bytes < kLingerBytes;) {
    const bool ready = co_await wait(Socket::wait_read, deadline);
    if (!ready) co_return;
    thrown_bytes += socket_.read_some(asio::buffer(scratch_.data(), scratch_.size()), ec);
    if (ec && !is_temporary(ec)) co_return;
  }
}

void HttpStream::close() {
  error_code ignored;
  timer_.cancel();
  socket_.close(ignored);
}

}  // namespace wader
