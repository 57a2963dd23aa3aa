// POST /v1/responses
#include "server/answer_run.h"
#include "server/endpoint_prompt.h"
#include "server/responses_answer.h"

namespace wader {
namespace {

class ResponsesSink final : public AnswerSink {
 public:
  ResponsesSink(AnswerHead head, const ResponsesRequest& request)
      : answer_(std::move(head), request) {}

  std::string begin() override { return answer_.begin(); }
  std::string piece(uint32_t, const AnswerPiece& piece) override { return answer_.push(piece); }
  std::string finish(uint32_t, AnswerFinish finish) override {
    finish_ = finish;
    return {};
  }
  std::string end(const AnswerUsage& usage) override { return answer_.finish(finish_, usage); }
  std::string fail(const ApiError& error) override { return answer_.fail(error); }
  Json whole(std::span<const Answer>, const AnswerUsage&) override { return answer_.response(); }

 private:
  ResponsesAnswer answer_;
  AnswerFinish finish_ = AnswerFinish::stop;
};

Task<> handle(Service& service, ServedModel& model, HttpExchange& exchange) {
  PreparedRequest<ResponsesRequest> prepared;
  co_await service.http->run_aside(
      [&] { prepared = prepare_chat(service, model, exchange.request().body, parse_responses); });
  if (prepared.error) {
    co_await exchange.send(error_response(*prepared.error));
    co_return;
  }
  prepared.job.options.parallel_tool_calls = prepared.request.parallel_tool_calls;
  ResponsesSink sink(new_answer_head("resp_", model), prepared.request);
  co_await run_answer(service, model, exchange, prepared.request, std::move(prepared.job), sink);
}

}  // namespace

void add_responses_route(Service& service, std::vector<HttpRoute>& routes) {
  routes.push_back({HttpMethod::post, "/v1/responses", with_model(service, handle)});
}

}  // namespace wader
