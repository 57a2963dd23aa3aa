// POST /v1/completions
#include "server/answer_run.h"
#include "server/completion_answer.h"

namespace wader {
namespace {

class CompletionSink final : public ChunkSink<CompletionStream> {
 public:
  CompletionSink(const AnswerHead& head, const CompletionRequest& request, const std::string& echo)
      : ChunkSink(CompletionStream(head, request, echo)),
        head_(head),
        request_(request),
        echo_(echo) {}

  Json whole(std::span<const Answer> answers, const AnswerUsage& usage) override {
    return completion_json(head_, request_, echo_, answers, usage);
  }

 private:
  const AnswerHead head_;
  const CompletionRequest& request_;
  const std::string echo_;
};

struct Prepared {
  CompletionRequest request;
  AnswerJob job;
  std::string echo;
  std::optional<ApiError> error;
};

// Text is plain text: control tokens come as ids alone.
std::optional<ApiError> fill(const ServedModel& model, Prepared& prepared) {
  CompletionRequest& request = prepared.request;
  AnswerJob& job = prepared.job;
  if (request.prompt_text.size() > model.max_text_bytes)
    return ApiError{400, "the prompt is longer than the context", "prompt",
                    "context_length_exceeded"};
  job.prompt = request.prompt_ids;
  if (job.prompt.empty()) {
    auto ids = model.tokenizer->encode(request.prompt_text, Tokenizer::Markup::off);
    if (!ids.ok()) return ApiError{400, ids.error().message, "prompt", ""};
    job.prompt = std::move(*ids);
  }
  if (job.prompt.empty())
    return ApiError{400, "the prompt is empty; this model begins with nothing of its own", "prompt",
                    ""};
  if (auto error = check_prompt_length(job.prompt.size(), "prompt", model.facts)) return error;
  job.options.stop = request.stop;
  job.options.logprobs = request.top_logprobs.has_value();
  prepared.echo = echo_text(request, *model.tokenizer);
  return {};
}

Prepared prepare(const ServedModel& model, std::string_view body) {
  Prepared prepared;
  ApiResult<CompletionRequest> request = read_request(body, parse_completion, model.facts);
  if (auto* error = std::get_if<ApiError>(&request)) {
    prepared.error = std::move(*error);
    return prepared;
  }
  prepared.request = std::move(std::get<CompletionRequest>(request));
  prepared.error = fill(model, prepared);
  return prepared;
}

Task<> handle(Service& service, ServedModel& model, HttpExchange& exchange) {
  Prepared prepared;
  co_await service.http->run_aside([&] { prepared = prepare(model, exchange.request().body); });
  if (prepared.error) {
    co_await exchange.send(error_response(*prepared.error));
    co_return;
  }
  CompletionSink sink(new_answer_head("cmpl-", model), prepared.request, prepared.echo);
  co_await run_answer(service, model, exchange, prepared.request, std::move(prepared.job), sink);
}

}  // namespace

void add_completions_route(Service& service, std::vector<HttpRoute>& routes) {
  routes.push_back({HttpMethod::post, "/v1/completions", with_model(service, handle)});
}

}  // namespace wader
