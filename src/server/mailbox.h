// Mailbox: what other threads leave for a coroutine of the network's thread, which waits for it.
// Posting never waits for the coroutine, and wakes its thread only where it waits for the first;
// what is bounded is up to what they do to the contents.
#pragma once

#include <boost/asio/any_io_executor.hpp>
#include <boost/asio/as_tuple.hpp>
#include <boost/asio/awaitable.hpp>
#include <boost/asio/post.hpp>
#include <boost/asio/steady_timer.hpp>
#include <boost/asio/use_awaitable.hpp>
#include <chrono>
#include <memory>
#include <mutex>
#include <utility>

namespace wader {

// `Contents`: default-constructible, with empty(). Owned by a shared_ptr: a post keeps it alive.
template <typename Contents>
class Mailbox : public std::enable_shared_from_this<Mailbox<Contents>> {
 public:
  explicit Mailbox(boost::asio::any_io_executor executor) : timer_(std::move(executor)) {}

  // From any thread: change(contents) under the lock, then who waits for them is told.
  template <typename Change>
  void post(Change&& change) {
    {
      const std::lock_guard lock(mutex_);
      change(contents_);
      if (!std::exchange(waited_for_, false)) return;
    }
    boost::asio::post(timer_.get_executor(),
                      [self = this->shared_from_this()] { self->timer_.cancel(); });
  }

  // All that was left there since the last call; waits for it, `patience` at most. In the network's
  // thread, by one coroutine.
  boost::asio::awaitable<Contents> next(std::chrono::milliseconds patience) {
    Contents contents = take(/*will_wait=*/true);
    if (!contents.empty()) co_return contents;
    timer_.expires_after(patience);
    co_await timer_.async_wait(boost::asio::as_tuple(boost::asio::use_awaitable));
    co_return take(/*will_wait=*/false);
  }

 private:
  Contents take(bool will_wait) {
    const std::lock_guard lock(mutex_);
    waited_for_ = will_wait && contents_.empty();
    return std::exchange(contents_, {});
  }

  boost::asio::steady_timer timer_;  // the network's thread
  std::mutex mutex_;
  Contents contents_;  // under mutex_, as the next
  bool waited_for_ = false;
};

}  // namespace wader
