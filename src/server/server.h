// Server: one model at a time behind HTTP. The first is loaded while the port is held already, so
// that a port in use shows at once; clients that come early wait.
#pragma once

#include <chrono>
#include <cstdint>
#include <filesystem>
#include <functional>
#include <memory>
#include <span>
#include <string>
#include <string_view>

#include "base/result.h"
#include "engine/engine.h"
#include "server/http.h"
#include "server/model_opener.h"
#include "server/scheduler.h"

namespace wader {

struct ServerOptions {
  HttpOptions http;  // its on_done and on_problem are taken by the server
  SchedulerOptions scheduler;
  std::chrono::seconds request_timeout{0};  // of one answer; 0: none
  std::filesystem::path web_directory;     // pages from there, read anew each time; empty: embedded
  std::filesystem::path models_directory;  // of those that may be served instead
  std::string fixed_id;  // the name under which every model is served; empty: its own
  // One line without a newline, key=value; never text of prompts or answers. From the network's
  // thread.
  std::function<void(std::string_view)> log = {};
};

class Server {
 public:
  virtual ~Server() = default;
  static Result<std::unique_ptr<Server>> start(const std::filesystem::path& container,
                                               ModelOpener opener, ServerOptions options);
  virtual std::string url() const = 0;
  // Of the model that it started with; before run().
  virtual const Engine& engine() const = 0;
  virtual const std::string& model_id() const = 0;
  virtual void run() = 0;  // until stop(); in the calling thread
  // From any thread: answers in progress may finish for `grace`, then end. run() returns at most a
  // second after that.
  virtual void stop(std::chrono::milliseconds grace) = 0;
  // After run(): whether the engine is at rest, waiting for `patience`. While it is not, this
  // object cannot be destroyed without waiting for its pass.
  virtual bool at_rest(std::chrono::milliseconds patience) = 0;
};

}  // namespace wader
