// Engine: one loaded model. Session: one timeline of tokens on it. One thread owns an Engine and
// its sessions; only cancel flags may be touched from elsewhere.
#pragma once

#include <atomic>
#include <cstdint>
#include <filesystem>
#include <functional>
#include <memory>
#include <optional>
#include <span>
#include <string>
#include <vector>

#include "base/result.h"
#include "base/units.h"
#include "container/container.h"
#include "engine/governor.h"
#include "experts/expert_cache.h"
#include "io/read_queue.h"
#include "kernels/ops.h"
#include "model/memory_plan.h"
#include "model/pass_seconds.h"
#include "sampler/logprobs.h"
#include "sampler/sampler.h"
#include "tokenizer/tokenizer.h"

namespace wader {

struct EngineOptions {
  uint64_t memory_bytes = 0;  // --memory; 0 = auto
  uint32_t context = 0;       // 0 = auto
  uint32_t chunk = 0;         // rows a prefill pass; 0 = auto
  uint32_t slots = 0;         // 0 = what fits
  uint32_t threads = 0;       // 0 = auto: min(affinity, cgroup quota)
  std::string kernels = "auto";
  std::string cache_policy = "blend";
  std::string io = "auto";              // auto | uring | threads
  std::string lookahead = "auto";       // on | off | auto
  std::string direct = "auto";          // on | off | auto; read_setup.h has what auto takes
  bool governor = true;                 // the pool shrinks while the machine is short of memory
  uint32_t sessions = 1;                // that may be open at once; 0 = auto, by the memory
  uint32_t snapshots = kAutoSnapshots;  // of the state, kept by each session
  // What the process holds before a model is loaded, as a plan of this process has said; 0: counted
  // now. For who opens engines one after the other: what the ones before left resident, and their
  // peak, is none of this one's.
  uint64_t process_bytes = 0;
  uint64_t extra_bytes =
      0;  // what the caller will hold itself, counted in the plan (captured values)
  // Called for each moe layer of each pass, in order, with the experts of its rows (rows, k); not
  // for passes that evaluate() captures. For routing traces.
  std::function<void(uint32_t layer, std::span<const uint32_t> ids)> on_routing = {};
  // Begins with the use of experts that earlier runs have left in the container's `usage` file, and
  // leaves this one's there when it closes; where that cannot be written, nothing happens.
  bool keeps_usage = false;
  // Expert bytes from which on a model's reads are measured at its first use. Tests lower it.
  uint64_t measured_expert_bytes = 256 * kMiB;
  // Benches give experts from elsewhere: the cache then gets one working set of slots, unused.
  std::function<Result<std::unique_ptr<Experts>>(const Container&)> make_experts = {};
  // Tests put faults under the cache by giving their own reads.
  std::function<std::unique_ptr<ReadQueue>()> make_read_queue = {};
  // Tests tell the governor what the machine has left, once a pass.
  std::function<MemoryReading()> read_memory = {};
};

// Refuses values that this version does not know, naming the flag and what it takes.
Status validate_engine_options(const EngineOptions& options);

struct EngineStats {
  uint64_t prefill_tokens = 0, decode_tokens = 0;
  double prefill_seconds = 0, decode_seconds = 0;
  ExpertCounters experts;
  PassSeconds pass_seconds;              // of all passes, experts.wait_seconds in its experts
  uint64_t peak_rss_bytes = 0;           // of the process, so far
  uint32_t slots = 0, usable_slots = 0;  // of the plan; of them the governor grants now
  uint64_t pool_shrinks = 0, pool_growths = 0;
};
// What came between two states of one engine: counters of `after` minus `before`.
EngineStats stats_between(const EngineStats& before, const EngineStats& after);

// Why generation ended.
enum class FinishReason : uint8_t { stop, length, context_full, cancelled };

struct GenerateOptions {
  SamplingParams sampling;
  uint32_t max_tokens = 0;  // 0 = until a stop id or the context's end
  std::vector<TokenId>
      stop_ids;  // the one that stopped it is in Generation::ids but not passed to on_token
  std::optional<uint32_t> top_logprobs;  // how many beside the chosen token's own
  // Position in the prompt where the answer's own header begins: the state there is kept, since the
  // next turn and a second try go back to it. 0: just before the prompt's last token.
  uint32_t turn_start = 0;
  const std::atomic<bool>* cancel = nullptr;  // looked at once a token and once a chunk
  std::function<void(uint32_t done, uint32_t total)> on_prefill = {};  // after each chunk
  std::function<bool(TokenId)> on_token = {};  // false stops, as cancel does
};

struct Generation {
  std::vector<TokenId> ids;
  FinishReason reason = FinishReason::length;
  uint32_t reused_tokens = 0;  // of the prompt, taken from state instead of computed
};

// What one pass of a generation did.
struct GenerationStep {
  uint32_t prompt_done = 0;                  // of the prompt's tokens, in the state now
  std::optional<GeneratedToken> token = {};  // that it ended in, from the prompt's last pass on
  std::optional<FinishReason> ended = {};    // the generation is over; `token` may be the stop id
};

// Copies of inner values for `wader logits` and the golden tests. Row-major, sized by evaluate().
struct Capture {
  std::vector<float> hidden;  // (layers + 1, T, hidden); the last one after the final norm
  std::vector<int32_t> router_indices;  // (layers, T, k); −1 in dense layers, which have no router
  std::vector<float> router_weights;    // (layers, T, k)
};

class Session {
 public:
  virtual ~Session() = default;
  virtual const std::vector<TokenId>& tokens() const = 0;
  // Makes `prompt` the timeline and continues it. The state of the common prefix is kept, or of the
  // longest part of it that a snapshot has: the same bits as computing all of it.
  virtual Result<Generation> generate(std::span<const TokenId> prompt,
                                      const GenerateOptions& options) = 0;
  // generate() pass by pass, for sessions that take turns: begin() keeps what of the state the
  // prompt shares and returns how many tokens that are; each step() is one chunk of the prompt or
  // one token, until `ended` or an error. options' callbacks are not called, and its cancel flag
  // must live as long. Anything else that moves the timeline ends the generation.
  virtual Result<uint32_t> begin(std::span<const TokenId> prompt,
                                 const GenerateOptions& options) = 0;
  virtual Result<GenerationStep> step() = 0;
  // How many tokens of `prompt` this state, or a snapshot of it, saves computing; less than all.
  virtual uint32_t reusable(std::span<const TokenId> prompt) const = 0;
  // Makes the timeline the first `other.reusable(prompt)` tokens of another's of the same engine,
  // by copying their state. Returns how many that are.
  virtual uint32_t copy_prefix(const Session& other, std::span<const TokenId> prompt) = 0;
  // Makes `tokens` the timeline, calling on_logits for each position computed, from `first_logits`
  // on. All of `tokens` is computed afresh when `capture` is given or first_logits lies in the kept
  // prefix.
  virtual Status evaluate(
      std::span<const TokenId> tokens, uint32_t first_logits,
      const std::function<void(uint32_t position, std::span<const float> logits)>& on_logits,
      Capture* capture) = 0;
  virtual void reset() = 0;

  // The timeline in a file: its tokens, its state, and `note` (the caller's own text, at most
  // kMaxNoteBytes). For the owner's eyes only; written aside and renamed. After a pass that failed
  // the timeline is what a snapshot still has of it. load() gives the note back; it refuses a file
  // of another model or other kernels, one that needs a larger context, a note over
  // max_note_bytes, and any damage, and the session is then empty.
  virtual Status save(const std::filesystem::path& file, std::string_view note) = 0;
  virtual Result<std::string> load(const std::filesystem::path& file, uint64_t max_note_bytes) = 0;
};

constexpr uint64_t kMaxNoteBytes = 64 * kMiB;

class Engine {
 public:
  virtual ~Engine() = default;
  static Result<std::unique_ptr<Engine>> open(const std::filesystem::path& container,
                                              const EngineOptions& options);

  virtual const Container& container() const = 0;
  virtual const Tokenizer* tokenizer() const = 0;  // null when the container has no tokenizer.json
  virtual const MemoryPlan& plan() const = 0;
  virtual std::string io_description() const = 0;  // "io_uring, O_DIRECT"
  // Where experts are read and by what, for measuring how fast that can be: between two passes.
  virtual const ExpertSource& expert_source() const = 0;
  virtual ReadQueue& read_queue() = 0;
  // In memory at this moment. In the engine's thread.
  virtual bool is_resident(uint32_t layer, uint32_t expert) const = 0;
  virtual std::span<const LayerPredictions> predictions() const = 0;  // of lookahead, by layer
  // "on", "off", "auto: on", "auto: off, it did not pay in 3 trials": whether decoding reads ahead
  // now.
  virtual std::string lookahead_description() const = 0;
  virtual const Kernels& kernels() const = 0;  // the chosen back end
  // The trunk as it lies in memory, for measuring how fast that can be read.
  virtual std::span<const std::byte> trunk_bytes() const = 0;
  virtual const SamplingParams& default_sampling() const = 0;  // of generation_config.json
  virtual const std::vector<TokenId>& eos_ids() const = 0;     // of generation_config.json
  virtual Result<std::unique_ptr<Session>> new_session() = 0;  // at most plan().sessions at once
  virtual EngineStats stats() const = 0;
  virtual const ExpertCounters& expert_counters()
      const = 0;  // of stats(), without asking the system
};

// The plan that open() would make, without loading anything: for `wader info`.
Result<MemoryPlan> plan_for(const Container& container, const EngineOptions& options);

}  // namespace wader
