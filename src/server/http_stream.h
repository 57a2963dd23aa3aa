// HttpStream: one client's socket, with deadlines, for coroutines of the network's thread. Waiting
// costs no buffer: bytes are read into the server's one scratch buffer once the socket has some, so
// that an idle connection holds a few hundred bytes here. Works on any stream socket.
#pragma once

#include <boost/asio/generic/stream_protocol.hpp>
#include <boost/asio/steady_timer.hpp>
#include <chrono>
#include <cstdint>
#include <functional>
#include <memory>
#include <span>
#include <string>
#include <string_view>

#include "server/http.h"

namespace wader {

class HttpStream : public std::enable_shared_from_this<HttpStream> {
 public:
  using Clock = std::chrono::steady_clock;
  using Socket = boost::asio::generic::stream_protocol::socket;

  // `scratch` is shared by all streams of the thread and outlives them.
  HttpStream(Socket socket, std::span<char> scratch);

  enum class Input : uint8_t { some, closed, late, cancelled };
  // Waits for bytes and appends them to `inbox`.
  Task<Input> read(std::string& inbox, Clock::time_point deadline);

  // Whether all of `bytes` went to the system. False: the client is gone, or took nothing for
  // `patience`, or cancel() came. `bytes` must stay until then.
  Task<bool> write(std::string_view bytes, Clock::duration patience);
  uint64_t written_bytes() const { return written_bytes_; }

  // Until unwatch(): looks for the client's end, as nobody reads meanwhile, and calls `on_closed`
  // once. What the client sends goes to `inbox`, up to `most_bytes`; more is thrown away, and
  // flooded() tells.
  void watch(std::string& inbox, size_t most_bytes, std::function<void()> on_closed);
  void unwatch();
  bool flooded() const { return flood_bytes_ > 0; }

  // What waits comes back now, and nothing waits any more: writes take what the system takes at
  // once.
  void cancel();

  // Says that no more comes, and takes what the client still sends for a while: a close with unread
  // bytes would be a reset, which can destroy the answer that the client has not read yet.
  Task<> linger(Clock::duration at_most);
  void close();

 private:
  Task<bool> wait(Socket::wait_type what, Clock::time_point deadline);
  void start_timer();
  void next_watch();
  void on_watched();

  Socket socket_;
  std::span<char> scratch_;
  boost::asio::steady_timer timer_;
  Clock::time_point deadline_ = Clock::time_point::max();
  bool timer_runs_ = false, late_ = false, cancelled_ = false;
  uint64_t written_bytes_ = 0;

  std::string* watch_inbox_ = nullptr;  // null: not watching
  size_t watch_most_bytes_ = 0;
  uint64_t watch_serial_ = 0, flood_bytes_ = 0;
  std::function<void()> on_closed_;
};

}  // namespace wader
