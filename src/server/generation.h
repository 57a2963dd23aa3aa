// What an endpoint asks of the engine, and what comes back: plain data between the network's thread
// and the engine's.
#pragma once

#include <chrono>
#include <cstdint>
#include <functional>
#include <memory>
#include <optional>
#include <span>
#include <string>
#include <vector>

#include "base/result.h"
#include "engine/engine.h"
#include "sampler/sampler.h"
#include "tokenizer/tokenizer.h"

namespace wader {

// EngineOptions::on_routing.
using RoutingListener = std::function<void(uint32_t layer, std::span<const uint32_t> ids)>;

struct GenerationRequest {
  std::vector<TokenId> prompt;
  uint32_t turn_start = 0;  // GenerateOptions::turn_start
  SamplingParams sampling;
  uint32_t max_tokens = 0;  // 0: to the context's end
  std::vector<TokenId> stop_ids;
  std::optional<uint32_t> top_logprobs;  // 0: of the chosen token alone
  std::optional<std::chrono::steady_clock::time_point> deadline;
  // Computed from an empty state, which is dropped afterwards: for who wants the routing of all of
  // the prompt.
  bool from_empty = false;
};

struct GenerationTimings {
  double queue_seconds = 0, prefill_seconds = 0, decode_seconds = 0;
  uint32_t prompt_tokens = 0, reused_tokens = 0, completion_tokens = 0;
  uint64_t bytes_read = 0;
  double hit_rate = 0;  // of the experts that its passes asked for
};

struct GenerationProgress {
  uint32_t done = 0, total = 0;  // tokens of the prompt in the state; reused ones count as done
  uint32_t reused = 0;
  uint32_t queue_position = 0;  // 0: it runs
};

enum class GenerationEnd : uint8_t { stop, length, context_full, cancelled, deadline, failed };

struct GenerationResult {
  GenerationEnd end = GenerationEnd::stop;
  TokenId stop_id = -1;        // that ended it, where end is stop: the chat parser wants it too
  std::optional<Error> error;  // where it failed: names expert, file, offset
  GenerationTimings timings;
};

// Called in the engine's thread; must not block: hand over and return.
struct GenerationListener {
  std::function<void(const GenerationProgress&)> on_progress = {};
  std::function<void(const GeneratedToken&)> on_token = {};  // not the stop id
  std::function<void(const GenerationResult&)> on_end = {};  // the last call, always made
  RoutingListener on_routing = {};                           // of this request's passes
};

}  // namespace wader
