// HttpLoop: HTTP GETs by libcurl, many at a time, in one thread of its own. It knows nothing of the
// hub: no redirect is followed, nothing is tried again. Callbacks run in the loop's thread, one at
// a time, and must not block. Proxies come from the environment (https_proxy, no_proxy, …), as curl
// takes them, but for this machine's own addresses; certificates are checked.
#pragma once

#include <chrono>
#include <cstdint>
#include <functional>
#include <memory>
#include <span>
#include <string>

#include "base/result.h"
#include "install/hub_rules.h"

namespace wader {

struct HttpSettings {
  std::chrono::seconds connect_timeout{20};
  // A transfer that brought less than the floor for so long is broken off.
  std::chrono::seconds stall_time{20};
  uint32_t stall_floor_bytes_per_second = 1024;
};

struct HttpTransfer {
  std::string url;
  std::string bearer_token = {};   // sent as Authorization when not empty
  uint64_t offset = 0, bytes = 0;  // as Range; bytes 0: the whole
  // Called once when the answer's headers are there; false: the body is not wanted.
  std::function<bool(const HubAnswer&)> headers;
  // Pieces of the body; false breaks the transfer off.
  std::function<bool(std::span<const std::byte>)> body;
  // Last of all, exactly once, unless the loop is destroyed before.
  std::function<void(const HubAnswer&)> done;
};

class HttpLoop {
 public:
  static Result<std::unique_ptr<HttpLoop>> create(const HttpSettings& settings);
  ~HttpLoop();
  HttpLoop(const HttpLoop&) = delete;
  HttpLoop& operator=(const HttpLoop&) = delete;

  // Breaks off everything; no callback runs afterwards, and what is posted is dropped.
  void stop();

  // From any thread: runs `task` in the loop's thread.
  void post(std::function<void()> task);
  // In the loop's thread only.
  void start(HttpTransfer request);
  void after(std::chrono::milliseconds delay, std::function<void()> task);

 private:
  struct State;
  explicit HttpLoop(std::unique_ptr<State> state);
  std::unique_ptr<State> state_;
};

}  // namespace wader
