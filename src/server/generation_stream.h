// GenerationStream: what the engine's thread tells, for a coroutine of the network's thread to wait
// for. One request, one or more choices. Events never block the engine and are bounded by what a
// context holds.
#pragma once

#include <atomic>
#include <boost/asio/any_io_executor.hpp>
#include <boost/asio/awaitable.hpp>
#include <chrono>
#include <cstdint>
#include <memory>
#include <utility>
#include <variant>
#include <vector>

#include "server/generation.h"
#include "server/mailbox.h"

namespace wader {

struct GenerationEvent {
  uint32_t choice = 0;
  std::variant<GenerationProgress, GeneratedToken, GenerationResult> what;
};

class GenerationStream {
 public:
  static std::shared_ptr<GenerationStream> create(boost::asio::any_io_executor executor);

  // For Scheduler::submit; keeps what it tells until it is gone itself.
  GenerationListener listener(uint32_t choice);
  // Of one choice or of all: from any thread, takes effect within a chunk or a token.
  std::shared_ptr<const std::atomic<bool>> cancel_flag(uint32_t choice);
  void cancel(uint32_t choice);
  void cancel_all();

  // All that came since the last call, in order; waits for it, `patience` at most. In the network's
  // thread, by one coroutine.
  boost::asio::awaitable<std::vector<GenerationEvent>> next(std::chrono::milliseconds patience) {
    return events_->next(patience);
  }

 private:
  using Events = Mailbox<std::vector<GenerationEvent>>;

  explicit GenerationStream(boost::asio::any_io_executor executor)
      : events_(std::make_shared<Events>(std::move(executor))) {}
  std::shared_ptr<std::atomic<bool>>& flag(uint32_t choice);

  const std::shared_ptr<Events> events_;
  std::vector<std::shared_ptr<std::atomic<bool>>> cancel_;  // the network's thread
  bool all_cancelled_ = false;                              // those to come too
};

}  // namespace wader
