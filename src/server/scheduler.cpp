#include "server/scheduler.h"

#include <algorithm>
#include <condition_variable>
#include <deque>
#include <future>
#include <mutex>
#include <thread>
#include <utility>
#include <vector>

#include "base/check.h"
#include "base/error.h"
#include "base/thread.h"
#include "server/session_choice.h"

namespace wader {
namespace {

using Clock = std::chrono::steady_clock;

double seconds_since(Clock::time_point start) {
  return std::chrono::duration<double>(Clock::now() - start).count();
}

struct Job {
  GenerationRequest request;
  GenerationListener listener;
  std::shared_ptr<const std::atomic<bool>> cancel;
  Clock::time_point submitted = Clock::now();
  uint64_t number = 0;
  uint32_t prompt_done = 0;
  size_t session = 0;
  double engine_seconds = 0;  // it has had; a newcomer begins with the least that another has had
  ExpertCounters experts = {};
  GenerationTimings timings = {};

  bool cancelled() const { return cancel && cancel->load(std::memory_order_relaxed); }
  bool late() const { return request.deadline && Clock::now() >= *request.deadline; }
};
using JobPtr = std::unique_ptr<Job>;

// A session, and who has it.
struct Place {
  std::unique_ptr<Session> session;
  bool busy = false;
  uint64_t last_used = 0;
  uint32_t turn_start = 0;  // of its last request
};

class EngineThread final : public Scheduler {
 public:
  explicit EngineThread(const SchedulerOptions& options) : options_(options) {}
  ~EngineThread() override {
    stop();
    if (thread_.joinable()) thread_.join();
  }

  Status begin(OpenEngine open) {
    std::promise<Status> opened;
    std::future<Status> result = opened.get_future();
    ASSIGN_OR_RETURN(thread_, start_thread([this, open = std::move(open), &opened] {
                       Status status = open_engine(open);
                       const bool ok = status.ok();
                       opened.set_value(std::move(status));
                       if (ok) loop();
                     }));
    return result.get();
  }

  const Engine& engine() const override { return *engine_; }
  Status submit(GenerationRequest request, GenerationListener listener,
                std::shared_ptr<const std::atomic<bool>> cancel) override;
  SchedulerStats stats() const override {
    const std::lock_guard lock(mutex_);
    return stats_;
  }
  bool stopped(std::chrono::milliseconds patience) const override {
    std::unique_lock lock(mutex_);
    return changed_.wait_for(lock, patience, [&] { return ended_; });
  }
  void stop() override {
    {
      const std::lock_guard lock(mutex_);
      stopping_ = true;
    }
    changed_.notify_all();
  }

 private:
  Status open_engine(const OpenEngine& open);
  void tell_routing(uint32_t layer, std::span<const uint32_t> ids);
  void loop();
  bool wait_for_work();
  void drop_ended();
  void start_queued();
  bool start(JobPtr& job);
  void turn(Job& job);
  void take_step(Job& job, const GenerationStep& step, const ExpertCounters& before,
                 double seconds);
  void leave(Place& place, const Job& job);
  void end(Job& job, GenerationEnd how, TokenId stop_id = -1, std::optional<Error> error = {});
  void tell_positions();
  void publish(bool now);

  const SchedulerOptions options_;
  std::thread thread_;
  mutable std::mutex mutex_;
  mutable std::condition_variable changed_;
  std::deque<JobPtr> incoming_;  // under mutex_, as all to the next comment
  SchedulerStats stats_;
  bool stopping_ = false, ended_ = false;
  // The engine's thread alone, but for what engine() promises:
  std::unique_ptr<Engine> engine_;
  std::vector<Place> places_;
  uint64_t uses_ = 0, jobs_ = 0;
  std::deque<JobPtr> queue_;
  std::vector<JobPtr> running_;
  const Job* stepping_ = nullptr;  // whose pass is being computed
  Clock::time_point published_ = {};
};

Status EngineThread::open_engine(const OpenEngine& open) {
  ASSIGN_OR_RETURN(engine_, open([this](uint32_t layer, std::span<const uint32_t> ids) {
                     tell_routing(layer, ids);
                   }));
  // As many as the plan holds memory for.
  for (uint32_t i = 0; i < engine_->plan().sessions; ++i) {
    ASSIGN_OR_RETURN(auto session, engine_->new_session());
    places_.push_back({std::move(session)});
  }
  publish(true);
  return {};
}

void EngineThread::tell_routing(uint32_t layer, std::span<const uint32_t> ids) {
  if (options_.on_routing) options_.on_routing(layer, ids);
  if (stepping_ != nullptr && stepping_->listener.on_routing)
    stepping_->listener.on_routing(layer, ids);
}

Status EngineThread::submit(GenerationRequest request, GenerationListener listener,
                            std::shared_ptr<const std::atomic<bool>> cancel) {
  auto job = std::make_unique<Job>();
  job->request = std::move(request);
  job->listener = std::move(listener);
  job->cancel = std::move(cancel);
  {
    const std::lock_guard lock(mutex_);
    if (stopping_) return cancelled_error("the server is shutting down");
    if (stats_.running + stats_.queued >= places_.size() + options_.max_queued) {
      ++stats_.refused;
      return over_budget_error("{} requests are at work or waiting already; try again later",
                               stats_.running + stats_.queued);
    }
    ++stats_.queued;
    incoming_.push_back(std::move(job));
  }
  changed_.notify_all();
  return {};
}

void EngineThread::loop() {
  while (wait_for_work()) {
    drop_ended();
    start_queued();
    if (running_.empty()) continue;
    const auto next = std::min_element(
        running_.begin(), running_.end(),
        [](const JobPtr& a, const JobPtr& b) { return a->engine_seconds < b->engine_seconds; });
    turn(**next);
    std::erase(running_, nullptr);
  }
  for (JobPtr& job : running_) end(*job, GenerationEnd::cancelled);
  for (JobPtr& job : queue_) end(*job, GenerationEnd::cancelled);
  running_.clear();
  queue_.clear();
  places_.clear();
  {
    const std::lock_guard lock(mutex_);
    ended_ = true;
  }
  changed_.notify_all();
}

// False when it is time to go.
bool EngineThread::wait_for_work() {
  std::unique_lock lock(mutex_);
  changed_.wait(lock, [&] {
    return stopping_ || !incoming_.empty() || !queue_.empty() || !running_.empty();
  });
  const bool more = !incoming_.empty();
  std::move(incoming_.begin(), incoming_.end(), std::back_inserter(queue_));
  incoming_.clear();
  if (stopping_) return false;
  lock.unlock();
  if (more) tell_positions();
  return true;
}

void EngineThread::tell_positions() {
  for (size_t i = 0; i < queue_.size(); ++i)
    if (const Job& job = *queue_[i]; job.listener.on_progress)
      job.listener.on_progress({.total = static_cast<uint32_t>(job.request.prompt.size()),
                                .queue_position = static_cast<uint32_t>(i) + 1});
}

// Of those that wait; the running ones are looked at in their turn.
void EngineThread::drop_ended() {
  bool dropped = false;
  for (JobPtr& job : queue_) {
    if (!job->cancelled() && !job->late()) continue;
    end(*job, job->cancelled() ? GenerationEnd::cancelled : GenerationEnd::deadline);
    job.reset();
    dropped = true;
  }
  if (!dropped) return;
  std::erase(queue_, nullptr);
  tell_positions();
}

void EngineThread::start_queued() {
  bool started = false;
  while (!queue_.empty() && start(queue_.front())) {
    queue_.pop_front();
    started = true;
  }
  if (started) tell_positions();
}

// False while all sessions are busy.
bool EngineThread::start(JobPtr& job) {
  const bool idle =
      std::any_of(places_.begin(), places_.end(), [](const Place& place) { return !place.busy; });
  if (!idle) return false;
  std::vector<SessionView> views;
  for (const Place& place : places_)
    views.push_back({place.busy, place.last_used,
                     static_cast<uint32_t>(place.session->tokens().size()), place.turn_start,
                     job->request.from_empty ? 0 : place.session->reusable(job->request.prompt)});
  const auto choice = choose_session(views);
  if (!choice) return false;
  Place& place = places_[choice->session];
  if (choice->copy_from)
    place.session->copy_prefix(*places_[*choice->copy_from].session, job->request.prompt);
  if (job->request.from_empty) place.session->reset();
  place.busy = true;
  place.last_used = ++uses_;
  place.turn_start = job->request.turn_start;
  job->session = choice->session;
  job->number = ++jobs_;
  job->timings.queue_seconds = seconds_since(job->submitted);
  {
    const std::lock_guard lock(mutex_);
    --stats_.queued;
    ++stats_.running;
  }
  const auto least = std::min_element(
      running_.begin(), running_.end(),
      [](const JobPtr& a, const JobPtr& b) { return a->engine_seconds < b->engine_seconds; });
  if (least != running_.end()) job->engine_seconds = (*least)->engine_seconds;

  GenerateOptions options;
  options.sampling = job->request.sampling;
  options.max_tokens = job->request.max_tokens;
  options.stop_ids = job->request.stop_ids;
  options.turn_start = job->request.turn_start;
  options.top_logprobs = job->request.top_logprobs;
  const Result<uint32_t> reused = place.session->begin(job->request.prompt, options);
  running_.push_back(std::move(job));
  Job& started = *running_.back();
  if (!reused.ok()) {
    end(started, GenerationEnd::failed, -1, reused.error());
    running_.pop_back();
    return true;
  }
  const auto total = static_cast<uint32_t>(started.request.prompt.size());
  started.timings.prompt_tokens = total;
  started.timings.reused_tokens = started.prompt_done = *reused;
  if (started.listener.on_progress)
    started.listener.on_progress({.done = *reused, .total = total, .reused = *reused});
  return true;
}

void EngineThread::turn(Job& job) {
  const auto finish = [&](GenerationEnd how, TokenId stop_id = -1,
                          std::optional<Error> error = {}) {
    end(job, how, stop_id, std::move(error));
    std::find_if(running_.begin(), running_.end(), [&](const JobPtr& j) {
      return j.get() == &job;
    })->reset();
  };
  if (job.cancelled()) return finish(GenerationEnd::cancelled);
  if (job.late()) return finish(GenerationEnd::deadline);
  const auto start = Clock::now();
  const ExpertCounters before = engine_->expert_counters();
  stepping_ = &job;
  Result<GenerationStep> step = places_[job.session].session->step();
  stepping_ = nullptr;
  const double seconds = seconds_since(start);
  job.engine_seconds += seconds;
  if (!step.ok()) return finish(GenerationEnd::failed, -1, std::move(step).error());
  take_step(job, *step, before, seconds);
  if (!step->ended) return publish(false);
  switch (*step->ended) {
    case FinishReason::stop:
      return finish(GenerationEnd::stop, step->token->id);
    case FinishReason::length:
      return finish(GenerationEnd::length);
    case FinishReason::context_full:
      return finish(GenerationEnd::context_full);
    case FinishReason::cancelled:
      return finish(GenerationEnd::cancelled);
  }
}

void EngineThread::take_step(Job& job, const GenerationStep& step, const ExpertCounters& before,
                             double seconds) {
  const ExpertCounters& after = engine_->expert_counters();
  job.experts.hits += after.hits - before.hits;
  job.experts.misses += after.misses - before.misses;
  job.timings.bytes_read += after.bytes_read - before.bytes_read;
  const uint32_t total = job.timings.prompt_tokens;
  const bool prefill = job.timings.completion_tokens == 0;
  if (options_.on_pass)
    options_.on_pass(job.number, prefill ? step.prompt_done - job.prompt_done : 1, prefill);
  job.prompt_done = step.prompt_done;
  if (prefill) {
    job.timings.prefill_seconds += seconds;
    if (job.listener.on_progress)
      job.listener.on_progress(
          {.done = step.prompt_done, .total = total, .reused = job.timings.reused_tokens});
  } else {
    job.timings.decode_seconds += seconds;
  }
  if (!step.token) return;
  ++job.timings.completion_tokens;
  if (step.ended != FinishReason::stop && job.listener.on_token) job.listener.on_token(*step.token);
}

void EngineThread::leave(Place& place, const Job& job) {
  place.busy = false;
  if (!job.request.from_empty) return;
  place.session->reset();
  place.last_used = 0;  // the next of its kind takes it too, and no conversation
}

void EngineThread::end(Job& job, GenerationEnd how, TokenId stop_id, std::optional<Error> error) {
  bool ran = false;
  for (const JobPtr& running : running_) ran = ran || running.get() == &job;
  if (ran) leave(places_[job.session], job);
  {
    const std::lock_guard lock(mutex_);
    --(ran ? stats_.running : stats_.queued);
    ++(how == GenerationEnd::failed                                        ? stats_.failed
       : how == GenerationEnd::cancelled || how == GenerationEnd::deadline ? stats_.cancelled
                                                                           : stats_.finished);
  }
  if (!ran) job.timings.queue_seconds = seconds_since(job.submitted);
  const uint64_t asked = job.experts.hits + job.experts.misses;
  job.timings.hit_rate =
      asked ? static_cast<double>(job.experts.hits) / static_cast<double>(asked) : 0;
  publish(true);
  if (ran && options_.on_request_end) options_.on_request_end();
  if (job.listener.on_end) job.listener.on_end({how, stop_id, std::move(error), job.timings});
}

void EngineThread::publish(bool now) {
  constexpr std::chrono::milliseconds kInterval{100};
  if (!now && Clock::now() - published_ < kInterval) return;
  published_ = Clock::now();
  const EngineStats engine = engine_->stats();
  const std::lock_guard lock(mutex_);
  stats_.engine = engine;
}

}  // namespace

Result<std::unique_ptr<Scheduler>> Scheduler::start(OpenEngine open,
                                                    const SchedulerOptions& options) {
  auto scheduler = std::make_unique<EngineThread>(options);
  RETURN_IF_ERROR(scheduler->begin(std::move(open)));
  return std::unique_ptr<Scheduler>(std::move(scheduler));
}

}  // namespace wader
