// The scheduler on real engines: what each request gets is what it gets alone; cancelled, late and
// surplus ones end as they should; a conversation goes on from its own state.

#include "server/scheduler.h"

#include <gtest/gtest.h>

#include <condition_variable>
#include <future>
#include <mutex>

#include "io/io_testing.h"
#include "test_models.h"

namespace wader {
namespace {

using testing::fixture_container;
using testing::random_tokens;

using Tokens = std::vector<TokenId>;

EngineOptions options_for(uint32_t sessions) {
  return testing::session_options(sessions, 4096, 64);
}

std::unique_ptr<Scheduler> start(const EngineOptions& options, uint32_t max_queued = 64,
                                 const char* fixture = testing::kFixtures[0]) {
  auto scheduler = Scheduler::start(
      [=](RoutingListener on_routing) {
        EngineOptions own = options;
        own.on_routing = std::move(on_routing);
        return Engine::open(fixture_container(fixture), own);
      },
      {max_queued});
  EXPECT_TRUE(scheduler.ok()) << scheduler.error().message;
  return std::move(scheduler).value();
}

GenerationRequest request_of(Tokens prompt, uint32_t count, uint64_t seed = 1) {
  GenerationRequest request;
  request.prompt = std::move(prompt);
  request.sampling.seed = seed;
  request.sampling.temperature = 0.8;
  request.max_tokens = count;
  return request;
}

// One request and all that comes back.
class Client {
 public:
  void submit(Scheduler& scheduler, GenerationRequest request) {
    const Status status = try_submit(scheduler, std::move(request));
    ASSERT_TRUE(status.ok()) << status.error().message;
  }
  Status try_submit(Scheduler& scheduler, GenerationRequest request) {
    GenerationListener listener;
    listener.on_progress = [this](const GenerationProgress& progress) {
      const std::lock_guard lock(mutex_);
      progress_.push_back(progress);
      changed_.notify_all();
    };
    listener.on_token = [this](const GeneratedToken& token) {
      const std::lock_guard lock(mutex_);
      ids_.push_back(token.id);
      changed_.notify_all();
    };
    listener.on_end = [this](const GenerationResult& result) {
      const std::lock_guard lock(mutex_);
      EXPECT_FALSE(result_) << "the end comes once";
      result_ = result;
      changed_.notify_all();
    };
    return scheduler.submit(std::move(request), std::move(listener), cancel);
  }
  const GenerationResult& wait() {
    std::unique_lock lock(mutex_);
    changed_.wait(lock, [&] { return result_.has_value(); });
    return *result_;
  }
  void wait_for_tokens(size_t count) {
    std::unique_lock lock(mutex_);
    changed_.wait(lock, [&] { return result_.has_value() || ids_.size() >= count; });
  }
  Tokens ids() {
    const std::lock_guard lock(mutex_);
    return ids_;
  }
  std::vector<GenerationProgress> progress() {
    const std::lock_guard lock(mutex_);
    return progress_;
  }
  std::shared_ptr<std::atomic<bool>> cancel = std::make_shared<std::atomic<bool>>(false);

 private:
  std::mutex mutex_;
  std::condition_variable changed_;
  Tokens ids_;
  std::vector<GenerationProgress> progress_;
  std::optional<GenerationResult> result_;
};

Tokens alone(const GenerationRequest& request) {
  const auto scheduler = start(options_for(1));
  Client client;
  client.submit(*scheduler, request);
  client.wait();
  return client.ids();
}

TEST(Scheduler, EachGetsWhatItGetsAlone) {
  const auto scheduler = start(options_for(3));
  std::vector<GenerationRequest> requests;
  for (uint32_t i = 0; i < 8; ++i)
    requests.push_back(request_of(random_tokens(20 + 60 * i, 1024, i), 10 + 5 * i, i));
  std::vector<Client> clients(requests.size());
  for (size_t i = 0; i < requests.size(); ++i) clients[i].submit(*scheduler, requests[i]);
  for (size_t i = 0; i < requests.size(); ++i) {
    const GenerationResult& result = clients[i].wait();
    EXPECT_EQ(result.end, GenerationEnd::length);
    EXPECT_EQ(result.timings.completion_tokens, requests[i].max_tokens);
    EXPECT_EQ(result.timings.prompt_tokens, requests[i].prompt.size());
    EXPECT_EQ(clients[i].ids(), alone(requests[i])) << i;
  }
  EXPECT_EQ(scheduler->stats().finished, requests.size());
  EXPECT_EQ(scheduler->stats().running + scheduler->stats().queued, 0u);
}

TEST(Scheduler, ALongPromptDoesNotStopARunningAnswer) {
  const auto scheduler = start(options_for(2));
  Client talker, reader;
  talker.submit(*scheduler, request_of(random_tokens(10, 1024, 1), 3000));
  talker.wait_for_tokens(5);
  reader.submit(*scheduler, request_of(random_tokens(3000, 1024, 2), 1));
  reader.wait();
  // A chunk of 64 costs more than a token, so between two of 47 chunks there is at least one token.
  const size_t during = talker.ids().size();
  EXPECT_GT(during, 40u);
  *talker.cancel = true;
  EXPECT_EQ(talker.wait().end, GenerationEnd::cancelled);
}

TEST(Scheduler, ASecondTurnGoesOnFromItsOwnState) {
  const auto scheduler = start(options_for(2));
  Client first, other, second;
  Tokens prompt = random_tokens(2000, 1024, 1);
  first.submit(*scheduler, request_of(prompt, 20));
  first.wait();
  other.submit(*scheduler, request_of(random_tokens(700, 1024, 2), 20));
  other.wait();
  const Tokens ids = first.ids();
  prompt.insert(prompt.end(), ids.begin(), ids.end());
  const Tokens question = random_tokens(15, 1024, 3);
  prompt.insert(prompt.end(), question.begin(), question.end());
  const GenerationRequest request = request_of(prompt, 20, 7);
  second.submit(*scheduler, request);
  EXPECT_EQ(second.wait().timings.reused_tokens, 2019u) << "the last token was never computed on";
  EXPECT_EQ(second.progress().front().queue_position, 1u);
  EXPECT_EQ(second.progress()[1].reused, 2019u);
  EXPECT_EQ(second.ids(), alone(request));
}

TEST(Scheduler, CancelledOnesEndWhereverTheyAre) {
  const auto scheduler = start(options_for(1));
  Client running, prefilling, queued;
  running.submit(*scheduler, request_of(random_tokens(10, 1024, 1), 4000));
  running.wait_for_tokens(3);
  queued.submit(*scheduler, request_of(random_tokens(10, 1024, 2), 5));
  *queued.cancel = true;
  EXPECT_EQ(queued.wait().end, GenerationEnd::cancelled) << "while another runs";
  EXPECT_TRUE(queued.ids().empty());
  *running.cancel = true;
  EXPECT_EQ(running.wait().end, GenerationEnd::cancelled);
  prefilling.submit(*scheduler, request_of(random_tokens(4000, 1024, 3), 5));
  while (prefilling.progress().size() < 3) std::this_thread::yield();
  *prefilling.cancel = true;
  EXPECT_EQ(prefilling.wait().end, GenerationEnd::cancelled);
  EXPECT_TRUE(prefilling.ids().empty());
  EXPECT_EQ(scheduler->stats().cancelled, 3u);
}

TEST(Scheduler, RefusesWhatTheQueueDoesNotHold) {
  const auto scheduler = start(options_for(1), 2);
  std::vector<Client> clients(4);
  for (int i = 0; i < 3; ++i)
    clients[i].submit(*scheduler, request_of(random_tokens(10, 1024, i), 4000));
  const Status status = clients[3].try_submit(*scheduler, request_of({1, 2, 3}, 1));
  ASSERT_FALSE(status.ok());
  EXPECT_EQ(status.error().code, ErrorCode::over_budget);
  EXPECT_EQ(scheduler->stats().refused, 1u);
  for (int i = 0; i < 3; ++i) *clients[i].cancel = true;
  for (int i = 0; i < 3; ++i) clients[i].wait();
  clients[3].submit(*scheduler, request_of({1, 2, 3}, 1));
  EXPECT_EQ(clients[3].wait().end, GenerationEnd::length);
}

TEST(Scheduler, DeadlinesCountInTheQueueAndAtWork) {
  const auto scheduler = start(options_for(1));
  Client running, queued;
  GenerationRequest request = request_of(random_tokens(10, 1024, 1), 4000);
  request.deadline = std::chrono::steady_clock::now() + std::chrono::milliseconds(300);
  running.submit(*scheduler, request);
  request.deadline = std::chrono::steady_clock::now();
  queued.submit(*scheduler, request);
  EXPECT_EQ(queued.wait().end, GenerationEnd::deadline);
  EXPECT_EQ(running.wait().end, GenerationEnd::deadline);
  EXPECT_TRUE(queued.ids().empty());
}

TEST(Scheduler, StopsAndEndsEverything) {
  auto scheduler = start(options_for(1));
  Client running, queued;
  running.submit(*scheduler, request_of(random_tokens(10, 1024, 1), 4000));
  running.wait_for_tokens(1);
  queued.submit(*scheduler, request_of(random_tokens(10, 1024, 1), 4000));
  scheduler->stop();
  EXPECT_EQ(running.wait().end, GenerationEnd::cancelled);
  EXPECT_EQ(queued.wait().end, GenerationEnd::cancelled);
  Client late;
  EXPECT_EQ(late.try_submit(*scheduler, request_of({1}, 1)).error().code, ErrorCode::cancelled);
}

TEST(Scheduler, AnEngineThatDoesNotOpenSaysWhy) {
  const auto scheduler =
      Scheduler::start([](auto) { return Engine::open("/no/such/model", {}); }, SchedulerOptions{});
  ASSERT_FALSE(scheduler.ok());
  EXPECT_NE(scheduler.error().message.find("/no/such/model"), std::string::npos);
}

TEST(Scheduler, WhatTheEngineRefusesFailsAlone) {
  const auto scheduler = start(options_for(1));
  Client bad, good;
  bad.submit(*scheduler, request_of({1, 1 << 30}, 1));
  const GenerationResult& result = bad.wait();
  EXPECT_EQ(result.end, GenerationEnd::failed);
  ASSERT_TRUE(result.error);
  EXPECT_NE(result.error->message.find("is not an id of this model"), std::string::npos);
  good.submit(*scheduler, request_of({1, 2}, 3));
  EXPECT_EQ(good.wait().end, GenerationEnd::length);
}

TEST(Scheduler, AReadThatFailsEndsOneRequest) {
  EngineOptions options = options_for(2);
  options.slots = 8;
  const uint64_t stride =
      Container::open(fixture_container(testing::kFixtures[0]))->manifest().experts.stride_bytes;
  options.make_read_queue = [stride] {
    return make_fake_read_queue({.seed = 5, .eio_always = true, .eio_offset = 15 * stride}, 64);
  };
  const auto scheduler = start(options);
  int failed = 0;
  for (uint32_t i = 0; i < 12; ++i) {
    // The last of sixteen experts cannot be read; a token meets four of each of four layers.
    const GenerationRequest request = request_of(random_tokens(1, 1024, i), 1, i);
    Client client;
    client.submit(*scheduler, request);
    const GenerationResult& result = client.wait();
    if (result.end == GenerationEnd::failed) {
      ++failed;
      EXPECT_NE(result.error->message.find("layer-"), std::string::npos) << result.error->message;
    } else {
      EXPECT_EQ(client.ids(), alone(request)) << i;
    }
  }
  EXPECT_GT(failed, 0);
  EXPECT_LT(failed, 12);
  EXPECT_EQ(scheduler->stats().failed, static_cast<uint64_t>(failed));
}

}  // namespace
}  // namespace wader
