#include "server/install_jobs.h"

#include <algorithm>
#include <utility>

#include "server/sse.h"

namespace wader {
namespace {

constexpr std::chrono::milliseconds kEventInterval{250};

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

Task<> InstallJobs::run(boost::asio::any_io_executor executor, std::string name, std::string source,
                        std::vector<std::string> arguments) {
  std::erase_if(jobs_, [&](const auto& job) { return job->name == name; });
  const auto job = std::make_shared<InstallJob>(InstallJob{.name = name, .source = source});
  jobs_.push_back(job);
  tell(*job);
  arguments.insert(arguments.begin(), {"install", source, "--json"});
  const auto process = ChildProcess::start(executor, arguments);
  if (!process.ok()) {
    job->state = InstallJob::State::failed;
    job->error = process.error().message;
    tell(*job);
    co_return;
  }
  ChildProcess& child = **process;
  processes_.emplace_back(name, &child);
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
  std::erase_if(processes_, [&](const auto& entry) { return entry.second == &child; });
  const bool paused = job->state == InstallJob::State::pausing;
  job->state = status == 0 ? InstallJob::State::done
               : paused    ? InstallJob::State::paused
                           : InstallJob::State::failed;
  if (job->state == InstallJob::State::failed) {
    job->error = last_error(child.errors());
    if (job->error.empty()) job->error = "wader install ended with " + std::to_string(status);
  }
  tell(*job);
}

bool InstallJobs::pause(std::string_view name) {
  const auto job = std::find_if(jobs_.begin(), jobs_.end(), [&](const auto& entry) {
    return entry->name == name && entry->works();
  });
  if (job == jobs_.end()) return false;
  for (const auto& [of, process] : processes_)
    if (of == name) process->interrupt();
  (*job)->state = InstallJob::State::pausing;
  tell(**job);
  return true;
}

void InstallJobs::tell(const InstallJob& job) {
  const std::string text = json_text(install_job_json(job));
  hub_.publish({sse_event(text, "install"), false, "install " + job.name});
}

}  // namespace wader
