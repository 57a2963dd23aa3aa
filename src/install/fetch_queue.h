// FetchQueue: fetches the ranges of a FetchPlan ahead of the one who reads them, over several
// connections, within the memory of a window. Reads come in the plan's order. What was read stays
// in the window until release(), so that a kill between a read and what is made of it costs
// nothing, and until it is hashed where its file is held against its SHA-256: a thread of its own
// does that. One reader.
#pragma once

#include <chrono>
#include <condition_variable>
#include <cstdint>
#include <deque>
#include <memory>
#include <mutex>
#include <optional>
#include <span>
#include <string>
#include <thread>
#include <vector>

#include "base/result.h"
#include "install/fetch_plan.h"
#include "install/fetch_window.h"
#include "install/hub_client.h"
#include "install/sha_check.h"

namespace wader {

// A file that is held against its SHA-256 as it is fetched. `check` is where that begins.
struct FetchProof {
  uint32_t file;
  ShaCheck check;
  std::string sha256 = {};  // as it should be
};

class FetchQueue {
 public:
  // `client` outlives the queue's fetches: call client.shut_down() first, then destroy the queue.
  // plan.reads[].range.file are files of the client. `proofs`: those that plan_proofs() chose.
  // `ahead_bytes`: the most that is fetched and not released; the rest of the window is for what
  // waits to be hashed.
  FetchQueue(HubClient& client, FetchPlan plan, FetchWindow window, std::vector<FetchProof> proofs,
             uint64_t ahead_bytes);
  ~FetchQueue();

  Status start();
  // Whether this is the next read of the plan; if not, the caller gets it elsewhere.
  bool is_next(const SourceRange& range) const;
  // The next read of the plan: waits until it is there. An error, too, when a file turns out to
  // have another SHA-256: what was read of it is not to be used.
  Status read(std::span<std::byte> into);
  // How many reads there were.
  size_t position() const { return cursor_; }
  // What was read before `position` is kept elsewhere now.
  void release(size_t position);

  // Waits until all files that can be are hashed.
  Status finish_proofs();
  // Files whose SHA-256 was right, and wrong.
  std::vector<uint32_t> proven() const { return in_state(Proof::State::right); }
  std::vector<uint32_t> refuted() const { return in_state(Proof::State::wrong); }
  // Nothing of the refuted files stays in the window for another run. When the client is shut down.
  void drop_refuted();

 private:
  struct Chunk {
    FetchChunk plan;
    enum class State : uint8_t { waiting, fetching, there, failed, gone } state = State::waiting;
    std::optional<uint32_t> place;  // in the window
    std::unique_ptr<std::byte[]>
        heap;  // instead, where the window has no room for what is waited for
    uint64_t received = 0;
    uint64_t uses_left = 0;
    bool to_hash = false, released = false;
    std::optional<Error> error;
  };
  struct Proof {
    FetchProof of;
    std::vector<uint32_t> chunks;  // by offset
    size_t next = 0;               // of these, to be hashed
    enum class State : uint8_t { running, right, wrong, given_up } state = State::running;
  };

  std::span<std::byte> memory(Chunk& chunk);
  void adopt_kept();
  void set_up_proofs();
  void pump();  // in the loop's thread
  bool prepare(Chunk& chunk, bool urgent);
  bool counts_as_ahead(const Chunk& chunk) const;
  void fetch(uint32_t number);
  bool free_if_used(Chunk& chunk, bool unwanted = false);
  Status wait_for(uint32_t number, uint64_t bytes);

  void hash_all();  // in the hashing thread
  Proof* next_to_hash();
  void end_proof(Proof& proof);
  void give_up(Proof& proof);
  void give_up_all();
  bool give_up_largest();
  bool proofs_running() const;
  std::vector<uint32_t> in_state(Proof::State state) const;

  HubClient& client_;
  const std::vector<FetchPlan::Read> reads_;
  FetchWindow window_;
  const uint64_t ahead_limit_bytes_;
  mutable std::mutex mutex_;
  std::condition_variable changed_, to_hash_;
  std::vector<Chunk> chunks_;
  std::vector<uint32_t> order_;  // of fetching
  std::vector<Proof> proofs_;
  std::optional<Error> refutation_;
  size_t next_ = 0;  // of order_, to fetch
  uint64_t ahead_bytes_ = 0;
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
  std::deque<Use> used_;            // and not released; the reader's
  const Proof* hashing_ = nullptr;  // a chunk of it is being hashed
  bool stop_ = false;
  std::thread hasher_;
};

}  // namespace wader
