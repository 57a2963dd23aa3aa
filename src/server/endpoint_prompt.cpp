#include "server/endpoint_prompt.h"

#include <fmt/chrono.h>

#include <ctime>

namespace wader {
namespace {

std::string today() {
  return fmt::format("{:%Y-%m-%d}", fmt::localtime(std::time(nullptr)));
}

}  // namespace

std::optional<ApiError> prepare_prompt(Service& service, const ServedModel& model,
                                       ChatRequest& chat, const AnswerRequest& request,
                                       AnswerJob& job, const std::vector<std::string>& origin) {
  chat.date = service.dates.date_of(chat, today());
  auto prompt = chat_prompt(*model.format, chat, model.max_text_bytes);
  const std::string_view field = origin.empty() ? "messages" : "input";
  if (!prompt.ok() && prompt.error().code == ErrorCode::over_budget)
    return ApiError{400, prompt.error().message, std::string(field), "context_length_exceeded"};
  if (!prompt.ok()) return render_error(prompt.error(), origin);
  if (auto error = check_prompt_length(prompt->ids.size(), field, model.facts)) return error;
  job.prompt = std::move(prompt->ids);
  job.turn_start = prompt->turn_start;
  job.options.stop = request.stop;
  job.options.logprobs = request.top_logprobs.has_value();
  for (uint32_t i = 0; i < request.n; ++i) job.parsers.push_back(model.format->parser(chat));
  return {};
}

}  // namespace wader
