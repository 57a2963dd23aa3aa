// From a request's body to a job for the engine: the part that endpoints of chats share. Runs
// aside, on a worker thread: a body of many megabytes takes as long as it takes.
#pragma once

#include <mutex>
#include <optional>
#include <utility>

#include "engine/chat_prompt.h"
#include "server/answer_run.h"

namespace wader {

template <typename Request>
struct PreparedRequest {
  Request request;
  AnswerJob job;
  std::optional<ApiError> error;
};

// The chat's prompt as ids, its parser, its stop strings; the date that it began with.
std::optional<ApiError> prepare_prompt(Service& service, const ServedModel& model,
                                       ChatRequest& chat, const AnswerRequest& request,
                                       AnswerJob& job, const std::vector<std::string>& origin = {});

template <typename Request>
std::vector<std::string> origin_of(const Request& request) {
  if constexpr (requires { request.origin; }) return request.origin;
  return {};
}

template <typename Request>
PreparedRequest<Request> prepare_chat(Service& service, const ServedModel& model,
                                      std::string_view body,
                                      ApiResult<Request> (*parse)(const Json&, const ModelFacts&)) {
  PreparedRequest<Request> prepared;
  ApiResult<Request> request = read_request(body, parse, model.facts);
  if (auto* error = std::get_if<ApiError>(&request)) {
    prepared.error = std::move(*error);
    return prepared;
  }
  prepared.request = std::move(std::get<Request>(request));
  prepared.error = prepare_prompt(service, model, prepared.request.chat, prepared.request,
                                  prepared.job, origin_of(prepared.request));
  return prepared;
}

}  // namespace wader
