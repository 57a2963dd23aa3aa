#include "server/generation_stream.h"

#include <gtest/gtest.h>

#include <boost/asio/co_spawn.hpp>
#include <boost/asio/detached.hpp>
#include <boost/asio/io_context.hpp>
#include <thread>

namespace wader {
namespace {

using namespace std::chrono_literals;
namespace asio = boost::asio;

TEST(GenerationStream, WhatIsCancelledBeforeItBeginsStaysCancelled) {
  asio::io_context io;
  const auto stream = GenerationStream::create(io.get_executor());
  stream->cancel_all();
  EXPECT_TRUE(*stream->cancel_flag(0));
  EXPECT_TRUE(*stream->cancel_flag(3));
}

TEST(GenerationStream, OneChoiceIsCancelledAlone) {
  asio::io_context io;
  const auto stream = GenerationStream::create(io.get_executor());
  const auto first = stream->cancel_flag(0), second = stream->cancel_flag(1);
  stream->cancel(1);
  EXPECT_FALSE(*first);
  EXPECT_TRUE(*second);
  stream->cancel_all();
  EXPECT_TRUE(*first);
}

TEST(GenerationStream, EventsOfAnotherThreadArriveInOrderAndNoneIsLost) {
  asio::io_context io;
  const auto stream = GenerationStream::create(io.get_executor());
  constexpr int kTokens = 20'000;
  std::vector<int32_t> got;
  bool ended = false;
  asio::co_spawn(
      io,
      [&]() -> asio::awaitable<void> {
        while (!ended) {
          const std::vector<GenerationEvent> events = co_await stream->next(10s);
          for (const GenerationEvent& event : events) {
            if (const auto* token = std::get_if<GeneratedToken>(&event.what))
              got.push_back(token->id);
            ended = ended || std::holds_alternative<GenerationResult>(event.what);
          }
        }
      },
      asio::detached);
  std::thread engine([listener = stream->listener(0)] {
    for (int i = 0; i < kTokens; ++i) listener.on_token({.id = i});
    listener.on_end({});
  });
  io.run();
  engine.join();
  ASSERT_EQ(got.size(), static_cast<size_t>(kTokens));
  for (int i = 0; i < kTokens; ++i) ASSERT_EQ(got[static_cast<size_t>(i)], i);
}

TEST(GenerationStream, PatienceEnds) {
  asio::io_context io;
  const auto stream = GenerationStream::create(io.get_executor());
  bool empty = false;
  asio::co_spawn(
      io,
      [&]() -> asio::awaitable<void> {
        const std::vector<GenerationEvent> events = co_await stream->next(5ms);
        empty = events.empty();
      },
      asio::detached);
  io.run();
  EXPECT_TRUE(empty);
}

}  // namespace
}  // namespace wader
