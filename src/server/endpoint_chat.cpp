// POST /v1/chat/completions
#include "engine/chat_prompt.h"
#include "server/answer_run.h"
#include "server/chat_answer.h"
#include "server/endpoint_prompt.h"

namespace wader {
namespace {

class ChatSink final : public ChunkSink<ChatStream> {
 public:
  ChatSink(const AnswerHead& head, const ChatCompletionRequest& request)
      : ChunkSink(ChatStream(head, request)), head_(head), request_(request) {}

  std::string begin() override {
    std::string text;
    for (uint32_t choice = 0; choice < request_.n; ++choice) text += stream_.role(choice);
    return text;
  }
  Json whole(std::span<const Answer> answers, const AnswerUsage& usage) override {
    return chat_completion_json(head_, request_, answers, usage);
  }

 private:
  const AnswerHead head_;
  const ChatCompletionRequest& request_;
};

Task<> handle(Service& service, ServedModel& model, HttpExchange& exchange) {
  PreparedRequest<ChatCompletionRequest> prepared;
  co_await service.http->run_aside([&] {
    prepared = prepare_chat(service, model, exchange.request().body, parse_chat_completion);
  });
  if (prepared.error) {
    co_await exchange.send(error_response(*prepared.error));
    co_return;
  }
  ChatCompletionRequest& request = prepared.request;
  prepared.job.options.parallel_tool_calls = request.parallel_tool_calls;
  ChatSink sink(new_answer_head("chatcmpl-", model), request);
  co_await run_answer(service, model, exchange, request, std::move(prepared.job), sink);
}

}  // namespace

void add_chat_route(Service& service, std::vector<HttpRoute>& routes) {
  routes.push_back({HttpMethod::post, "/v1/chat/completions", with_model(service, handle)});
}

}  // namespace wader
