// EventHub: what the engine does, for pages that watch. Publishing never waits for a page: each
// watcher has a short queue, and what it has not taken when the queue is full is lost and counted.
#pragma once

#include <atomic>
#include <boost/asio/any_io_executor.hpp>
#include <boost/asio/awaitable.hpp>
#include <chrono>
#include <cstdint>
#include <deque>
#include <map>
#include <memory>
#include <mutex>
#include <string>
#include <string_view>
#include <utility>
#include <vector>

#include "base/json.h"
#include "server/mailbox.h"

namespace wader {

struct HubEvent {
  // Ready to write; of a frame, all but its end: `,"lost":N}` and the empty line are each
  // watcher's.
  std::string text;
  bool frame = false;  // may be lost; others replace the one of their kind that still waits
  std::string kind = {};
  bool lasts = true;  // newcomers are told it too, until the next of its kind
};

class EventHub {
 public:
  class Watcher {
   public:
    explicit Watcher(boost::asio::any_io_executor executor)
        : box_(std::make_shared<Mailbox<Waiting>>(std::move(executor))) {}
    // What has come, as text to write; waits for it, `patience` at most. In the network's thread,
    // by one coroutine.
    boost::asio::awaitable<std::string> next(std::chrono::milliseconds patience);

   private:
    friend class EventHub;
    struct Waiting {
      std::deque<std::shared_ptr<const HubEvent>> events;
      uint64_t lost = 0;
      bool empty() const { return events.empty(); }
    };
    static void add(Waiting& waiting, const std::shared_ptr<const HubEvent>& event);

    const std::shared_ptr<Mailbox<Waiting>> box_;
  };

  std::shared_ptr<Watcher> watch(boost::asio::any_io_executor executor);
  // Whether anybody watches: nothing need be made where nobody does. From any thread.
  bool watched() const { return watched_.load(std::memory_order_relaxed); }
  void publish(HubEvent event);  // from any thread
  // An event of that name, which is its kind.
  void tell(std::string_view name, const Json& data);
  void forget(const std::string& kind);  // newcomers are not told what is no more

 private:
  std::mutex mutex_;
  std::vector<std::weak_ptr<Watcher>> watchers_;
  std::map<std::string, std::shared_ptr<const HubEvent>> last_;  // of each kind: newcomers get it
  std::atomic<bool> watched_ = false;
};

}  // namespace wader
