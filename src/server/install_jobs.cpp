#include "server/install_jobs.h"

#include <fmt/format.h>

#include <algorithm>
#include <boost/asio/co_spawn.hpp>
#include <boost/asio/detached.hpp>
#include <utility>

#include "base/on_exit.h"
#include "server/sse.h"

namespace wader {
namespace {

constexpr std::chrono::milliseconds kEventInterval{250};
constexpr size_t kMaxJobs = 32;
constexpr std::string_view kStopped = "stopped";  // what a command says that was asked to stop

std::string_view state_name(InstallJob::State state) {
  constexpr std::string_view kNames[] = {"running", "pausing", "paused", "done", "failed"};
  return kNames[static_cast<size_t>(state)];
}

}  // namespace

Json install_job_json(const InstallJob& job) {
  Json json = {
      {"name", job.name},   {"source", job.source},         {"state", state_name(job.state)},
      {"stage", job.stage}, {"done_bytes", job.done_bytes}, {"total_bytes", job.total_bytes}};
  if (!job.error.empty()) json["error"] = job.error;
  return json;
}

bool take_install_line(std::string_view line, InstallJob& job) {
  const auto json = parse_json(line, "install");
  if (!json.ok() || !json->is_object()) return false;
  const auto event = json_string(*json, "event");
  if (!event.ok() || *event != "progress") return false;
  const auto stage = json_string(*json, "phase");
  const auto done = json_uint(*json, "done_bytes", 0, UINT64_MAX);
  const auto total = json_uint(*json, "total_bytes", 0, UINT64_MAX);
  if (!stage.ok() || !done.ok() || !total.ok()) return false;
  job.stage = *stage;
  job.done_bytes = *done;
  job.total_bytes = *total;
  return true;
}

std::string last_error(std::string_view text) {
  constexpr std::string_view kMark = "wader: error: ";
  const size_t mark = text.rfind(kMark);
  if (mark == text.npos) return {};
  std::string message(text.substr(mark + kMark.size()));
  while (message.ends_with('\n')) message.pop_back();
  std::replace(message.begin(), message.end(), '\n', ';');
  return message;
}

bool InstallJobs::works_on(std::string_view name) const {
  return std::any_of(jobs_.begin(), jobs_.end(),
                     [&](const auto& job) { return job->name == name && job->works(); });
}

uint32_t InstallJobs::working() const {
  return static_cast<uint32_t>(
      std::count_if(jobs_.begin(), jobs_.end(), [](const auto& job) { return job->works(); }));
}

void InstallJobs::start(boost::asio::any_io_executor executor, std::string name, std::string source,
                        std::vector<std::string> arguments) {
  forget(name);
  arguments.insert(arguments.begin(), {"install", source, "--json"});
  const auto job = std::make_shared<InstallJob>(
      InstallJob{.name = std::move(name), .source = std::move(source)});
  const auto ended =
      std::find_if(jobs_.begin(), jobs_.end(), [](auto& other) { return !other->works(); });
  if (jobs_.size() >= kMaxJobs && ended != jobs_.end()) jobs_.erase(ended);
  jobs_.push_back(job);
  tell(*job);
  boost::asio::co_spawn(executor, run(executor, job, std::move(arguments)), boost::asio::detached);
}

void InstallJobs::forget(std::string_view name) {
  std::erase_if(jobs_, [&](const auto& job) { return job->name == name && !job->works(); });
}

Task<> InstallJobs::run(boost::asio::any_io_executor executor, std::shared_ptr<InstallJob> job,
                        std::vector<std::string> arguments) {
  const auto process = ChildProcess::start(executor, arguments);
  if (!process.ok()) {
    job->state = InstallJob::State::failed;
    job->error = process.error().message;
    tell(*job);
    co_return;
  }
  ChildProcess& child = **process;
  job->process = &child;
  const OnExit ended([&] {  // also where something throws
    job->process = nullptr;
    if (job->works()) job->state = InstallJob::State::failed;
  });
  if (job->state == InstallJob::State::pausing) child.interrupt();
  auto told = std::chrono::steady_clock::now();
  for (;;) {
    const std::optional<std::string> line = co_await child.next_line();
    if (!line) break;
    const auto now = std::chrono::steady_clock::now();
    if (!take_install_line(*line, *job) || now - told < kEventInterval) continue;
    told = now;
    tell(*job);
  }
  const int status = co_await child.wait();
  std::string error = last_error(child.errors());
  const bool paused = job->state == InstallJob::State::pausing && error.starts_with(kStopped);
  job->state = status == 0 ? InstallJob::State::done
               : paused    ? InstallJob::State::paused
                           : InstallJob::State::failed;
  if (job->state == InstallJob::State::failed)
    job->error =
        error.empty() ? fmt::format("wader install ended with {}", status) : std::move(error);
  tell(*job);
}

bool InstallJobs::pause(std::string_view name) {
  const auto job = std::find_if(jobs_.begin(), jobs_.end(), [&](const auto& entry) {
    return entry->name == name && entry->works();
  });
  if (job == jobs_.end()) return false;
  if ((*job)->process != nullptr) (*job)->process->interrupt();
  (*job)->state = InstallJob::State::pausing;
  tell(**job);
  return true;
}

void InstallJobs::tell(const InstallJob& job) {
  const std::string text = json_text(install_job_json(job));
  hub_.publish({.text = sse_event(text, "install"), .kind = "install " + job.name, .lasts = false});
}

}  // namespace wader
