#include "server/event_hub.h"

#include <algorithm>
#include <utility>

#include "server/sse.h"

namespace wader {

namespace asio = boost::asio;

namespace {
// Two seconds of a page that draws 30 frames a second.
constexpr size_t kMaxWaiting = 64;
}  // namespace

std::shared_ptr<EventHub::Watcher> EventHub::watch(asio::any_io_executor executor) {
  auto watcher = std::make_shared<Watcher>(std::move(executor));
  const std::lock_guard lock(mutex_);
  for (const auto& last : last_)
    watcher->box_->post([&](Watcher::Waiting& waiting) { Watcher::add(waiting, last.second); });
  watchers_.push_back(watcher);
  watched_ = true;
  return watcher;
}

void EventHub::publish(HubEvent event) {
  const auto shared = std::make_shared<const HubEvent>(std::move(event));
  const std::lock_guard lock(mutex_);
  if (!shared->frame && shared->lasts) last_[shared->kind] = shared;
  std::erase_if(watchers_, [&](const std::weak_ptr<Watcher>& entry) {
    const auto watcher = entry.lock();
    if (watcher)
      watcher->box_->post([&](Watcher::Waiting& waiting) { Watcher::add(waiting, shared); });
    return !watcher;
  });
  watched_ = !watchers_.empty();
}

void EventHub::tell(std::string_view name, const Json& data) {
  publish({.text = sse_event(std::string_view(json_text(data)), name), .kind = std::string(name)});
}

void EventHub::forget(const std::string& kind) {
  const std::lock_guard lock(mutex_);
  last_.erase(kind);
}

void EventHub::Watcher::add(Waiting& waiting, const std::shared_ptr<const HubEvent>& event) {
  std::deque<std::shared_ptr<const HubEvent>>& events = waiting.events;
  const auto same = [&](const auto& other) {
    return event->frame ? other->frame : !other->frame && other->kind == event->kind;
  };
  const auto count = static_cast<size_t>(std::count_if(events.begin(), events.end(), same));
  if (count >= (event->frame ? kMaxWaiting : 1)) {
    events.erase(std::find_if(events.begin(), events.end(), same));
    waiting.lost += event->frame;
  }
  events.push_back(event);
}

asio::awaitable<std::string> EventHub::Watcher::next(std::chrono::milliseconds patience) {
  Waiting waiting = co_await box_->next(patience);
  std::string text;
  for (const auto& event : waiting.events) {
    text += event->text;
    if (!event->frame) continue;
    text += ",\"lost\":" + std::to_string(std::exchange(waiting.lost, 0)) + "}\n\n";
  }
  co_return text;
}

}  // namespace wader
