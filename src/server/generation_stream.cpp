#include "server/generation_stream.h"

namespace wader {
namespace {

// Of the progress, only the last state is of interest.
void add(std::vector<GenerationEvent>& events, GenerationEvent event) {
  const auto is_progress = [](const GenerationEvent& e) {
    return std::holds_alternative<GenerationProgress>(e.what);
  };
  if (is_progress(event) && !events.empty() && events.back().choice == event.choice &&
      is_progress(events.back()))
    events.back() = std::move(event);
  else
    events.push_back(std::move(event));
}

}  // namespace

std::shared_ptr<GenerationStream> GenerationStream::create(boost::asio::any_io_executor executor) {
  return std::shared_ptr<GenerationStream>(new GenerationStream(std::move(executor)));
}

GenerationListener GenerationStream::listener(uint32_t choice) {
  const auto tell = [box = events_, choice](const auto& what) {
    box->post([&](std::vector<GenerationEvent>& events) { add(events, {choice, what}); });
  };
  return {.on_progress = tell, .on_token = tell, .on_end = tell};
}

std::shared_ptr<std::atomic<bool>>& GenerationStream::flag(uint32_t choice) {
  while (cancel_.size() <= choice)
    cancel_.push_back(std::make_shared<std::atomic<bool>>(all_cancelled_));
  return cancel_[choice];
}

std::shared_ptr<const std::atomic<bool>> GenerationStream::cancel_flag(uint32_t choice) {
  return flag(choice);
}

void GenerationStream::cancel(uint32_t choice) {
  flag(choice)->store(true, std::memory_order_relaxed);
}

void GenerationStream::cancel_all() {
  all_cancelled_ = true;
  for (const auto& cancelled : cancel_) cancelled->store(true, std::memory_order_relaxed);
}

}  // namespace wader
