#include "server/generation_stream.h"

#include <boost/asio/as_tuple.hpp>
#include <boost/asio/post.hpp>
#include <boost/asio/use_awaitable.hpp>
#include <utility>

namespace wader {

namespace asio = boost::asio;

std::shared_ptr<GenerationStream> GenerationStream::create(asio::any_io_executor executor) {
  return std::shared_ptr<GenerationStream>(new GenerationStream(std::move(executor)));
}

GenerationListener GenerationStream::listener(uint32_t choice) {
  const auto self = shared_from_this();
  GenerationListener listener;
  listener.on_progress = [self, choice](const GenerationProgress& progress) {
    self->add({choice, progress});
  };
  listener.on_token = [self, choice](const GeneratedToken& token) { self->add({choice, token}); };
  listener.on_end = [self, choice](const GenerationResult& result) { self->add({choice, result}); };
  return listener;
}

std::shared_ptr<std::atomic<bool>>& GenerationStream::flag(uint32_t choice) {
  while (cancel_.size() <= choice)
    cancel_.push_back(std::make_shared<std::atomic<bool>>(all_cancelled_));
  return cancel_[choice];
}

std::shared_ptr<const std::atomic<bool>> GenerationStream::cancel_flag(uint32_t choice) {
  return flag(choice);
}

void GenerationStream::cancel(uint32_t choice) {
  flag(choice)->store(true, std::memory_order_relaxed);
}

void GenerationStream::cancel_all() {
  all_cancelled_ = true;
  for (const auto& cancelled : cancel_) cancelled->store(true, std::memory_order_relaxed);
}

void GenerationStream::add(GenerationEvent event) {
  {
    const std::lock_guard lock(mutex_);
    // Only the last state of the progress is of interest.
    const bool progress = std::holds_alternative<GenerationProgress>(event.what);
    if (progress && !events_.empty() && events_.back().choice == event.choice &&
        std::holds_alternative<GenerationProgress>(events_.back().what))
      events_.back() = std::move(event);
    else
      events_.push_back(std::move(event));
    if (std::exchange(told_, true)) return;
  }
  asio::post(timer_.get_executor(), [self = shared_from_this()] { self->timer_.cancel(); });
}

std::vector<GenerationEvent> GenerationStream::take() {
  const std::lock_guard lock(mutex_);
  told_ = false;
  return std::exchange(events_, {});
}

asio::awaitable<std::vector<GenerationEvent>> GenerationStream::next(
    std::chrono::milliseconds patience) {
  std::vector<GenerationEvent> events = take();
  if (!events.empty()) co_return events;
  timer_.expires_after(patience);
  co_await timer_.async_wait(asio::as_tuple(asio::use_awaitable));
  co_return take();
}

}  // namespace wader
