#include "server/event_hub.h"

#include <algorithm>
#include <boost/asio/as_tuple.hpp>
#include <boost/asio/post.hpp>
#include <boost/asio/use_awaitable.hpp>
#include <utility>

namespace wader {

namespace asio = boost::asio;

namespace {
// Two seconds of a page that draws 30 frames a second.
constexpr size_t kMaxWaiting = 64;
}  // namespace

std::shared_ptr<EventHub::Watcher> EventHub::watch(asio::any_io_executor executor) {
  auto watcher = std::make_shared<Watcher>(std::move(executor));
  const std::lock_guard lock(mutex_);
  for (const auto& [kind, event] : last_) watcher->add(event);
  watchers_.push_back(watcher);
  watched_ = true;
  return watcher;
}

void EventHub::publish(HubEvent event) {
  const auto shared = std::make_shared<const HubEvent>(std::move(event));
  const std::lock_guard lock(mutex_);
  if (!shared->frame) last_[shared->kind] = shared;
  std::erase_if(watchers_, [&](const std::weak_ptr<Watcher>& entry) {
    const auto watcher = entry.lock();
    if (watcher) watcher->add(shared);
    return !watcher;
  });
  watched_ = !watchers_.empty();
}

void EventHub::Watcher::add(const std::shared_ptr<const HubEvent>& event) {
  {
    const std::lock_guard lock(mutex_);
    const auto same = [&](const auto& other) {
      return event->frame ? other->frame : !other->frame && other->kind == event->kind;
    };
    const bool full = static_cast<size_t>(std::count_if(events_.begin(), events_.end(), same)) >=
                      (event->frame ? kMaxWaiting : 1);
    if (full) {
      events_.erase(std::find_if(events_.begin(), events_.end(), same));
      lost_ += event->frame;
    }
    events_.push_back(event);
    if (std::exchange(told_, true)) return;
  }
  asio::post(timer_.get_executor(), [self = shared_from_this()] { self->timer_.cancel(); });
}

std::string EventHub::Watcher::take() {
  const std::lock_guard lock(mutex_);
  std::string text;
  for (const auto& event : events_) {
    text += event->text;
    if (!event->frame) continue;
    text += ",\"lost\":" + std::to_string(std::exchange(lost_, 0)) + "}\n\n";
  }
  events_.clear();
  told_ = false;
  return text;
}

asio::awaitable<std::string> EventHub::Watcher::next(std::chrono::milliseconds patience) {
  std::string text = take();
  if (!text.empty()) co_return text;
  timer_.expires_after(patience);
  co_await timer_.async_wait(asio::as_tuple(asio::use_awaitable));
  co_return take();
}

}  // namespace wader
