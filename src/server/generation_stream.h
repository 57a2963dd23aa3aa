// GenerationStream: what the engine's thread tells, for a coroutine of the network's thread to wait
// for. One request, one or more choices. Events never block the engine and are bounded by what a
// context holds.
#pragma once

#include <atomic>
#include <boost/asio/any_io_executor.hpp>
#include <boost/asio/awaitable.hpp>
#include <boost/asio/steady_timer.hpp>
#include <chrono>
#include <cstdint>
#include <memory>
#include <mutex>
#include <variant>
#include <vector>

#include "server/generation.h"

namespace wader {

struct GenerationEvent {
  uint32_t choice = 0;
  std::variant<GenerationProgress, GeneratedToken, GenerationResult> what;
};

class GenerationStream : public std::enable_shared_from_this<GenerationStream> {
 public:
  static std::shared_ptr<GenerationStream> create(boost::asio::any_io_executor executor);

  // For Scheduler::submit; keeps the stream alive until the generation's end.
  GenerationListener listener(uint32_t choice);
  // Of one choice or of all: from any thread, takes effect within a chunk or a token.
  std::shared_ptr<const std::atomic<bool>> cancel_flag(uint32_t choice);
  void cancel(uint32_t choice);
  void cancel_all();

  // All that came since the last call, in order; waits for it, `patience` at most. In the network's
  // thread, by one coroutine.
  boost::asio::awaitable<std::vector<GenerationEvent>> next(std::chrono::milliseconds patience);

 private:
  explicit GenerationStream(boost::asio::any_io_executor executor) : timer_(std::move(executor)) {}
  void add(GenerationEvent event);
  std::vector<GenerationEvent> take();
  std::shared_ptr<std::atomic<bool>>& flag(uint32_t choice);

  boost::asio::steady_timer timer_;                         // the network's thread
  std::vector<std::shared_ptr<std::atomic<bool>>> cancel_;  // the network's thread
  bool all_cancelled_ = false;                              // those to come too
  std::mutex mutex_;
  std::vector<GenerationEvent> events_;  // under mutex_, as told_
  bool told_ = false;                    // that there are events
};

}  // namespace wader
