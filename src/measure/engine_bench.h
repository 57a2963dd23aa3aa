// A whole engine measured: decoding token after token, or computing a prompt, with random token
// ids (what a model says does not matter to its speed, and synthetic ones have no text). One
// setting alone, or two in alternating rounds. One owner thread, as of an Engine.
#pragma once

#include <atomic>
#include <cstdint>
#include <filesystem>
#include <functional>
#include <optional>
#include <span>
#include <string>
#include <vector>

#include "base/result.h"
#include "engine/engine.h"
#include "measure/active_work.h"

namespace wader {

enum class EngineWork : uint8_t { decode, prefill };

struct EngineBenchOptions {
  EngineWork work = EngineWork::decode;
  uint32_t count = 0;          // tokens of a round: decoded, or of the prompt
  uint32_t prompt_tokens = 0;  // decode: random tokens before the first decoded one, at least 1
  uint32_t rounds = 0;
  uint64_t seed = 0;       // of the token ids; round r has others than round r + 1
  double temperature = 0;  // decode: 0 takes the likeliest token
  const std::atomic<bool>* cancel = nullptr;
  // "warming up", "round 2 of 5": before each step; may be empty.
  std::function<void(const std::string& step)> on_step = {};
};

// Tokens of context that a round needs.
uint32_t context_needed(const EngineBenchOptions& options);

// One round of one setting. `engine` counts this round alone, but peak_rss_bytes the process so
// far.
struct EngineRound {
  double seconds = 0;  // of the work: decode without its prompt
  EngineStats engine;
  std::vector<LayerPredictions> predictions;  // of lookahead, by layer
  double bandwidth = 0;                       // of memory just before, bytes per second
  std::optional<double> int8_peak;            // just before, operations per second
  // Just after, of the same queue: bytes per second of bursts of as many reads as the round's
  // passes had to make; nothing where they made none.
  std::optional<double> read_rate_limit;
};

struct EngineRun {
  MemoryPlan plan = {};
  std::string kernels, io, lookahead;
  ActiveBytes active;  // of a token in the middle of a decoded round
  uint32_t experts_per_token = 0;
  double prompt_operations = 0;  // prefill: of a round's matrices
  std::vector<EngineRound> rounds;

  double tokens_per_second(const EngineBenchOptions& options, size_t round) const {
    return options.count / rounds[round].seconds;
  }
};

// Where the round's time went; the sum is its `seconds`.
struct PhaseSeconds {
  double mixer, router, expert_compute, expert_wait, lookahead, head, other;
};
PhaseSeconds phases_of(const EngineRound& round);

// What the round would take at best when the disk is what it waits for: its bytes at
// read_rate_limit, and what no read can hide. In decode that is all but the experts, and of each
// layer's experts the last one's computation; in prefill the next layer is known, and it is the
// longer of reading and computing. Nothing where nothing was read.
std::optional<double> streaming_floor_seconds(const EngineRound& round, EngineWork work,
                                              uint32_t experts_per_token);

// Every round is preceded by a warm-up of its engine: passes until the slots are filled, then an
// untimed round. Two settings stay open side by side when both plans fit the smaller budget;
// otherwise each round opens its engine anew. A setting's context is 0 or holds a round.
// cancelled when options.cancel was set.
Result<std::vector<EngineRun>> bench_engine(const Container& container,
                                            std::span<const EngineOptions> settings,
                                            const EngineBenchOptions& options);

}  // namespace wader
