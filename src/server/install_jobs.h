// InstallJobs: models that are being installed for those who watch, each by a process of its own
// (`wader install SOURCE --json`): its memory is not the server's, and ending it loses nothing.
// In the network's thread.
#pragma once

#include <chrono>
#include <cstdint>
#include <memory>
#include <string>
#include <string_view>
#include <vector>

#include "base/json.h"
#include "server/child_process.h"
#include "server/event_hub.h"
#include "server/http.h"

namespace wader {

struct InstallJob {
  enum class State : uint8_t { running, pausing, paused, done, failed };
  std::string name, source;
  State state = State::running;
  std::string stage = {};  // "experts"
  uint64_t done_bytes = 0, total_bytes = 0;
  std::string error = {};
  ChildProcess* process = nullptr;  // while it runs, as pause() finds it

  bool works() const { return state == State::running || state == State::pausing; }
};
Json install_job_json(const InstallJob& job);

// What `wader install --json` says, taken into the job; whether that changed anything.
bool take_install_line(std::string_view line, InstallJob& job);
// Of what a command wrote to standard error, the message of its last error, on one line.
std::string last_error(std::string_view text);

class InstallJobs {
 public:
  explicit InstallJobs(EventHub& hub) : hub_(hub) {}

  // The newest of each name; of those that have ended, the last 32.
  const std::vector<std::shared_ptr<InstallJob>>& jobs() const { return jobs_; }
  bool works_on(std::string_view name) const;
  uint32_t working() const;
  // `arguments` follow the source.
  void start(boost::asio::any_io_executor executor, std::string name, std::string source,
             std::vector<std::string> arguments);
  // False when nothing of that name is being installed.
  bool pause(std::string_view name);
  void forget(std::string_view name);  // a job that has ended: the model has been removed

 private:
  Task<> run(boost::asio::any_io_executor executor, std::shared_ptr<InstallJob> job,
             std::vector<std::string> arguments);
  void tell(const InstallJob& job);

  EventHub& hub_;
  std::vector<std::shared_ptr<InstallJob>> jobs_;
};

}  // namespace wader
