#include "server/answer_run.h"

#include <fmt/format.h>

#include <chrono>
#include <optional>
#include <random>
#include <utility>

#include "server/generation_stream.h"
#include "server/sse.h"

namespace wader {
namespace {

using Clock = std::chrono::steady_clock;
constexpr std::chrono::seconds kHeartbeat{1};

double seconds_between(Clock::time_point from, Clock::time_point to) {
  return std::chrono::duration<double>(to - from).count();
}

uint64_t random_seed() {
  std::random_device device;
  // JSON numbers are exact to 2^53.
  return ((uint64_t{device()} << 32) | device()) >> 11;
}

// The state of one request while its events come.
class AnswerRun {
 public:
  AnswerRun(Metrics& metrics, const Tokenizer& tokenizer, AnswerSink& sink,
            const AnswerRequest& request, AnswerJob& job)
      : metrics_(metrics), sink_(sink), results_(request.n) {
    for (uint32_t i = 0; i < request.n; ++i)
      assemblers_.emplace_back(job.parsers.empty() ? nullptr : std::move(job.parsers[i]), tokenizer,
                               job.options);
    open_ = request.n;
  }

  bool open() const { return open_ > 0 && !error_; }
  const std::optional<ApiError>& error() const { return error_; }
  AnswerSink& sink() { return sink_; }

  // Takes events, and returns what a stream shall write.
  std::string take(const std::vector<GenerationEvent>& events, GenerationStream& stream) {
    std::string text;
    for (const GenerationEvent& event : events) {
      if (error_) break;
      if (const auto* progress = std::get_if<GenerationProgress>(&event.what))
        take_progress(*progress);
      else if (const auto* token = std::get_if<GeneratedToken>(&event.what))
        text += take_token(event.choice, *token, stream);
      else
        text += take_end(event.choice, std::get<GenerationResult>(event.what));
    }
    if (error_) {
      stream.cancel_all();
      text += sink_.fail(*error_);
    } else if (open_ == 0) {
      text += sink_.end(usage());
    }
    return text;
  }

  // Where the work stands, for a stream that has nothing else to say; at most once a second.
  std::string heartbeat() {
    const auto now = Clock::now();
    if (now - beat_ < kHeartbeat) return {};
    beat_ = now;
    if (progress_.queue_position > 0)
      return sse_comment(fmt::format("queued, {} before this", progress_.queue_position - 1));
    if (progress_.total == 0 || progress_.done >= progress_.total) return sse_comment("working");
    std::string text = fmt::format("prompt {} % ({} of {} tokens)",
                                   uint64_t{progress_.done} * 100 / progress_.total, progress_.done,
                                   progress_.total);
    const uint32_t computed = progress_.done - progress_.reused;
    if (began_ && computed > 0)
      text += fmt::format(", about {:.0f} s left", seconds_between(*began_, now) / computed *
                                                       (progress_.total - progress_.done));
    return sse_comment(text);
  }

  Json whole() {
    std::vector<Answer> answers;
    for (const AnswerAssembler& assembler : assemblers_) answers.push_back(assembler.answer());
    return sink_.whole(answers, usage());
  }

 private:
  void take_progress(const GenerationProgress& progress) {
    if (progress.queue_position == 0 && !began_) began_ = Clock::now();
    progress_ = progress;
  }

  std::string take_token(uint32_t choice, const GeneratedToken& token, GenerationStream& stream) {
    AnswerAssembler& assembler = assemblers_[choice];
    if (assembler.ended()) return {};
    const auto now = Clock::now();
    if (!last_token_)
      metrics_.count_first_token(seconds_between(submitted_, now));
    else
      metrics_.count_token_gap(seconds_between(*last_token_, now));
    last_token_ = beat_ = now;
    const AnswerPiece piece = assembler.push(token);
    if (assembler.ended()) stream.cancel(choice);
    return sink_.piece(choice, piece);
  }

  std::string take_end(uint32_t choice, const GenerationResult& result) {
    --open_;
    results_[choice] = result;
    metrics_.count_generation(result);
    AnswerAssembler& assembler = assemblers_[choice];
    if (!assembler.ended()) error_ = generation_error(result, assembler.answer());
    if (error_) return {};
    const AnswerPiece piece = assembler.finish(result);
    return sink_.piece(choice, piece) + sink_.finish(choice, assembler.answer().finish);
  }

  AnswerUsage usage() const {
    AnswerUsage usage;
    for (size_t i = 0; i < assemblers_.size(); ++i)
      usage.add(results_[i]->timings, assemblers_[i].answer());
    return usage;
  }

  Metrics& metrics_;
  AnswerSink& sink_;
  std::vector<AnswerAssembler> assemblers_;
  std::vector<std::optional<GenerationResult>> results_;
  uint32_t open_ = 0;
  std::optional<ApiError> error_;
  GenerationProgress progress_;
  std::optional<Clock::time_point> began_, last_token_;
  Clock::time_point submitted_ = Clock::now(), beat_ = submitted_;
};

// All choices, or an error with none left running.
std::optional<HttpResponse> submit_all(const Service& service, ServedModel& model,
                                       const AnswerRequest& request, const AnswerJob& job,
                                       GenerationStream& stream) {
  GenerationRequest generation;
  generation.prompt = job.prompt;
  generation.turn_start = job.turn_start;
  generation.sampling = request.sampling;
  generation.max_tokens = request.max_tokens;
  generation.stop_ids = model.stop_ids;
  generation.top_logprobs = request.top_logprobs;
  if (service.request_timeout.count() > 0)
    generation.deadline = Clock::now() + service.request_timeout;
  if (!request.has_seed) generation.sampling.seed = random_seed();
  for (uint32_t choice = 0; choice < request.n; ++choice) {
    const Status status =
        model.scheduler->submit(generation, stream.listener(choice), stream.cancel_flag(choice));
    ++generation.sampling.seed;
    if (status.ok()) continue;
    stream.cancel_all();
    const bool full = status.error().code == ErrorCode::over_budget;
    HttpResponse response = full ? error_response(429, status.error().message, {}, "queue_full")
                                 : error_response(503, status.error().message);
    response.headers.emplace_back("Retry-After", "5");
    return response;
  }
  return {};
}

// The line of a request says 200 where a stream had begun.
void note_failure(const Service& service, const HttpExchange& exchange, const ApiError& error) {
  service.log(fmt::format("request={} failed={} error={}", exchange.request().id, error.status,
                          json_text(error.message)));
}

}  // namespace

Task<> run_answer(Service& service, ServedModel& model, HttpExchange& exchange,
                  AnswerRequest request, AnswerJob job, AnswerSink& sink) {
  const auto stream = GenerationStream::create(service.http->executor());
  exchange.on_gone([stream] { stream->cancel_all(); });
  if (auto refused = submit_all(service, model, request, job, *stream)) {
    co_await exchange.send(std::move(*refused));
    co_return;
  }
  // Also when something throws: nothing is generated for nobody.
  const std::shared_ptr<GenerationStream> guard(
      stream.get(), [stream](GenerationStream*) { stream->cancel_all(); });
  AnswerRun run(service.metrics, *model.tokenizer, sink, request, job);
  std::string beginning = sink.begin();
  if (request.stream) {
    co_await exchange.begin_stream(sse_head());
    const bool taken = co_await exchange.write(std::move(beginning));
    if (!taken) stream->cancel_all();
  }
  while (run.open()) {
    const std::vector<GenerationEvent> events = co_await stream->next(kHeartbeat);
    std::string text = run.take(events, *stream);
    if (!request.stream) continue;
    if (text.empty()) text = run.heartbeat();
    if (text.empty() || exchange.gone()) continue;
    const bool taken = co_await exchange.write(std::move(text));
    if (!taken) stream->cancel_all();
  }
  if (run.error() && service.log && !exchange.gone()) note_failure(service, exchange, *run.error());
  if (request.stream || exchange.gone()) co_return;
  HttpResponse response = run.error() ? error_response(*run.error()) : json_response(run.whole());
  co_await exchange.send(std::move(response));
}

std::string new_answer_id(std::string_view prefix) {
  std::random_device device;
  std::string id(prefix);
  for (int i = 0; i < 3; ++i) id += fmt::format("{:08x}", device());
  return id;
}

AnswerHead new_answer_head(std::string_view prefix, const ServedModel& model) {
  AnswerHead head;
  head.id = new_answer_id(prefix);
  head.created_unix_s = std::chrono::duration_cast<std::chrono::seconds>(
                            std::chrono::system_clock::now().time_since_epoch())
                            .count();
  head.model = model.facts.id;
  return head;
}

}  // namespace wader
