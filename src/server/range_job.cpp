#include "server/range_job.h"

#include <boost/asio/as_tuple.hpp>
#include <boost/asio/steady_timer.hpp>
#include <boost/asio/use_awaitable.hpp>
#include <utility>
#include <variant>
#include <vector>

#include "base/error.h"
#include "base/on_exit.h"
#include "container/manifest.h"
#include "io/file.h"
#include "range/range_file.h"
#include "range/range_probe.h"
#include "server/generation_stream.h"

namespace wader {
namespace {

constexpr std::chrono::seconds kRetry{1};

void tell(EventHub& hub, std::string_view state, uint64_t done, uint64_t total,
          std::string_view error = {}) {
  Json json = {{"state", state}, {"done", done}, {"total", total}};
  if (!error.empty()) json["error"] = error;
  hub.tell("range", json);
}

struct RangeJob {
  explicit RangeJob(const ArchitectureSpec& spec) : counts(spec) {}
  RoutingCounts counts;  // the engine's thread, while a probe runs
  uint64_t done_bytes = 0, total_bytes = 0;
};

GenerationRequest request_of(const ProbePrompt& prompt) {
  const GenerateOptions options = probe_options();
  GenerationRequest request;
  request.prompt = prompt.tokens;
  request.sampling = options.sampling;
  request.max_tokens = options.max_tokens;
  request.from_empty = true;
  return request;
}

// Nothing while it has not ended well.
Status status_of(const GenerationResult& result) {
  if (result.end == GenerationEnd::failed && result.error) return *result.error;
  if (result.end == GenerationEnd::cancelled)
    return cancelled_error("stopped: the model was let go");
  return {};
}

Task<Status> run_probe(Service& service, ServedModel& model, const ProbePrompt& prompt,
                       const std::shared_ptr<RangeJob>& job) {
  const auto stream = GenerationStream::create(service.http->executor());
  GenerationListener listener = stream->listener(0);
  listener.on_routing = [job](uint32_t layer, std::span<const uint32_t> ids) {
    job->counts.add(layer, ids);
  };
  job->counts.begin(prompt);
  Status status;
  boost::asio::steady_timer pause(service.http->executor());
  for (;;) {
    status = model.scheduler->submit(request_of(prompt), listener, stream->cancel_flag(0));
    if (status.ok() || status.error().code != ErrorCode::over_budget) break;
    pause.expires_after(kRetry);  // the queue is full of people's requests
    co_await pause.async_wait(boost::asio::as_tuple(boost::asio::use_awaitable));
  }
  bool ended = !status.ok();
  while (!ended) {
    const auto events = co_await stream->next(std::chrono::seconds(1));
    for (const GenerationEvent& event : events) {
      if (const auto* result = std::get_if<GenerationResult>(&event.what)) {
        status = status_of(*result);
        ended = true;
      } else if (const auto* at = std::get_if<GenerationProgress>(&event.what)) {
        const uint64_t bytes = at->total > 0 ? prompt.text_bytes * at->done / at->total : 0;
        tell(service.hub, "running", job->done_bytes + bytes, job->total_bytes);
      }
    }
  }
  job->done_bytes += prompt.text_bytes;
  co_return status;
}

Task<Status> run_all(Service& service, ServedModel& model, const std::shared_ptr<RangeJob>& job) {
  Status status;
  std::vector<ProbePrompt> prompts;
  co_await service.http->run_aside([&] {
    auto made = probe_prompts(*model.tokenizer, model.facts.context);
    if (made.ok())
      prompts = std::move(made).value();
    else
      status = std::move(made).error();
  });
  if (!status.ok()) co_return status;
  for (const ProbePrompt& prompt : prompts) job->total_bytes += prompt.text_bytes;
  tell(service.hub, "running", 0, job->total_bytes);
  for (const ProbePrompt& prompt : prompts) {
    status = co_await run_probe(service, model, prompt, job);
    if (!status.ok()) co_return status;
  }
  Status written;
  co_await service.http->run_aside([&] {
    const Container& container = model.engine().container();
    const RangeMap map = finish_range(job->counts, container.identity());
    written = write_file_atomically(container.directory() / kRangeFile, range_to_text(map));
  });
  co_return written;
}

}  // namespace

Task<> build_range(Service& service, std::shared_ptr<ServedModel> model) {
  const OnExit built([&] { service.builds_range = false; });  // also where something throws
  const auto job = std::make_shared<RangeJob>(model->engine().container().spec());
  const Status status = co_await run_all(service, *model, job);
  if (status.ok())
    tell(service.hub, "done", job->total_bytes, job->total_bytes);
  else
    tell(service.hub, "failed", job->done_bytes, job->total_bytes, status.error().message);
}

}  // namespace wader
