// FetchQueue: fetches the ranges of a FetchPlan ahead of the one who reads them, over several
// connections, within the memory of a window. Reads come in the plan's order. What was read stays
// in the window until release(), so that a kill between a read and what is made of it costs
// nothing. One reader.
#pragma once

#include <chrono>
#include <condition_variable>
#include <cstdint>
#include <deque>
#include <memory>
#include <mutex>
#include <optional>
#include <span>
#include <vector>

#include "base/result.h"
#include "install/fetch_plan.h"
#include "install/fetch_window.h"
#include "install/hub_client.h"

namespace wader {

class FetchQueue {
 public:
  // `client` outlives the queue's fetches: call client.shut_down() first, then destroy the queue.
  // plan.reads[].range.file are files of the client.
  FetchQueue(HubClient& client, FetchPlan plan, FetchWindow window);

  void start();
  // Whether this is the next read of the plan; if not, the caller gets it elsewhere.
  bool is_next(const SourceRange& range) const;
  // The next read of the plan: waits until it is there.
  Status read(std::span<std::byte> into);
  // How many reads there were.
  size_t position() const { return cursor_; }
  // What was read before `position` is kept elsewhere now.
  void release(size_t position);

 private:
  struct Chunk {
    FetchChunk plan;
    enum class State : uint8_t { waiting, fetching, there, failed, gone } state = State::waiting;
    std::optional<uint32_t> place;  // in the window
    uint64_t place_offset = 0;      // of the chunk's first byte in it
    std::unique_ptr<std::byte[]>
        heap;  // instead, where the window has no room for what is waited for
    uint64_t received = 0;
    uint64_t uses_left = 0;
    std::optional<Error> error;
  };

  std::span<std::byte> memory(Chunk& chunk);
  void adopt_kept();
  void pump();  // in the loop's thread
  bool prepare(Chunk& chunk, bool urgent);
  void fetch(uint32_t number);
  bool free_if_used(Chunk& chunk);
  Status wait_for(uint32_t number, uint64_t bytes);

  HubClient& client_;
  const std::vector<FetchPlan::Read> reads_;
  FetchWindow window_;
  mutable std::mutex mutex_;
  std::condition_variable changed_;
  std::vector<Chunk> chunks_;
  uint32_t next_ = 0;  // chunk to fetch
  uint32_t in_flight_ = 0, connections_ = 2;
  std::chrono::steady_clock::duration waited_{};  // since counted_from_
  std::chrono::steady_clock::time_point counted_from_ = std::chrono::steady_clock::now();
  std::optional<uint32_t> wanted_;  // that the reader waits for
  size_t cursor_ = 0;               // of reads_; the reader's
  struct Use {
    size_t position;
    uint32_t chunk;
    uint64_t bytes;
  };
  std::deque<Use> used_;  // and not released; the reader's
};

}  // namespace wader
