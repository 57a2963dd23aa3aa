#include "engine/timeline.h"

#include <algorithm>
#include <chrono>

#include "base/check.h"
#include "base/error.h"
#include "engine/state_file.h"

namespace wader {
namespace {

// Tokens between periodic snapshots (or the chunk, where that is more): what a rewind to an
// arbitrary place computes again at most, as long as there are snapshots enough. Copying one is far
// below a thousandth of computing these.
constexpr uint32_t kSnapshotInterval = 256;

// Adds the seconds of its life to `total`.
class Stopwatch {
 public:
  explicit Stopwatch(double& total) : total_(total), start_(std::chrono::steady_clock::now()) {}
  ~Stopwatch() {
    total_ += std::chrono::duration<double>(std::chrono::steady_clock::now() - start_).count();
  }
  Stopwatch(const Stopwatch&) = delete;
  Stopwatch& operator=(const Stopwatch&) = delete;

 private:
  double& total_;
  std::chrono::steady_clock::time_point start_;
};

bool is_cancelled(const GenerateOptions& options) {
  return options.cancel != nullptr && options.cancel->load(std::memory_order_relaxed);
}

// Copies a pass' values to their places in the whole capture of `total` positions.
class CaptureObserver {
 public:
  CaptureObserver(const ArchitectureSpec& spec, uint32_t total, Capture& capture)
      : spec_(spec), total_(total), capture_(capture) {
    const size_t hidden = static_cast<size_t>(spec.layer_count() + 1) * total * spec.hidden;
    const size_t routed = static_cast<size_t>(spec.layer_count()) * total * spec.experts_per_token;
    capture_.hidden.resize(hidden);
    capture_.router_indices.assign(routed, -1);
    capture_.router_weights.resize(routed);
    observer_.on_hidden = [this](uint32_t stage, std::span<const float> x) {
      // The last layer's output is kept as it is after the final norm, as the reference returns it.
      if (stage == spec_.layer_count()) return;
      const uint32_t plane = std::min(stage, spec_.layer_count());
      std::copy(x.begin(), x.end(),
                capture_.hidden.begin() +
                    (static_cast<ptrdiff_t>(plane) * total_ + begin_) * spec_.hidden);
    };
    observer_.on_router = [this](uint32_t layer, std::span<const uint32_t> ids,
                                 std::span<const float> weights) {
      const ptrdiff_t at =
          (static_cast<ptrdiff_t>(layer) * total_ + begin_) * spec_.experts_per_token;
      std::copy(ids.begin(), ids.end(), capture_.router_indices.begin() + at);
      std::copy(weights.begin(), weights.end(), capture_.router_weights.begin() + at);
    };
  }
  const ForwardObserver* from(uint32_t begin) {
    begin_ = begin;
    return &observer_;
  }

 private:
  const ArchitectureSpec& spec_;
  const uint32_t total_;
  Capture& capture_;
  uint32_t begin_ = 0;
  ForwardObserver observer_;
};

}  // namespace

Timeline::Timeline(LoadedModel& model, SequenceState state, Snapshots snapshots)
    : model_(model), state_(std::move(state)), snapshots_(std::move(snapshots)) {
  tokens_.reserve(state_.context());
  rows_.reserve(model.plan().chunk);
}

Timeline::~Timeline() {
  model_.session_closed();
}

void Timeline::reset() {
  CHECK(state_.rewind(0));
  snapshots_.forget_after(0);
  tokens_.clear();
}

Status Timeline::save(const std::filesystem::path& file, std::string_view note) {
  if (!state_.whole()) keep_prefix(tokens_, static_cast<uint32_t>(tokens_.size()));
  return save_state(file, state_identity(model_.container(), model_.kernels()), state_, snapshots_,
                    tokens_, note);
}

Result<std::string> Timeline::load(const std::filesystem::path& file, uint64_t max_note_bytes) {
  reset();
  auto loaded = load_state(file, state_identity(model_.container(), model_.kernels()), state_,
                           snapshots_, max_note_bytes);
  if (loaded.ok()) {
    if (Status status = check_tokens(loaded->tokens); !loaded->tokens.empty() && !status.ok())
      loaded = std::move(status).error().within(file.string());
  }
  if (!loaded.ok()) {
    reset();
    return std::move(loaded).error();
  }
  tokens_.assign(loaded->tokens.begin(), loaded->tokens.end());
  return std::move(loaded->note);
}

Status Timeline::check_tokens(std::span<const TokenId> tokens) const {
  if (tokens.empty()) return invalid_argument_error("there are no tokens to compute");
  if (tokens.size() > state_.context())
    return over_budget_error(
        "{} tokens are more than the context of {}; raise --context, or --memory where the budget "
        "chose it",
        tokens.size(), state_.context());
  const uint32_t vocab = model_.container().spec().vocab_rows;
  for (size_t i = 0; i < tokens.size(); ++i)
    if (tokens[i] < 0 || static_cast<uint32_t>(tokens[i]) >= vocab)
      return invalid_argument_error("token {} at position {} is not an id of this model (0 to {})",
                                    tokens[i], i, vocab - 1);
  return {};
}

uint32_t Timeline::keep_prefix(std::span<const TokenId> tokens, uint32_t most) {
  const auto common =
      std::mismatch(tokens_.begin(), tokens_.end(), tokens.begin(), tokens.end()).first;
  const auto shared = static_cast<uint32_t>(common - tokens_.begin());
  auto kept = std::min(shared, most);
  if (!state_.rewind(kept)) {
    // What the state no longer knows is computed again from the last snapshot: slower, the same
    // bits.
    kept = snapshots_.latest(kept);
    if (kept > 0)
      snapshots_.restore(state_, kept);
    else
      CHECK(state_.rewind(0));
  }
  snapshots_.forget_after(shared);
  tokens_.resize(kept);
  return kept;
}

Status Timeline::pass(std::span<const TokenId> tokens, uint32_t begin, uint32_t count,
                      uint32_t first_logits,
                      const std::function<void(uint32_t, std::span<const float>)>& on_logits,
                      const ForwardObserver* observer) {
  model_.govern();
  rows_.clear();
  for (uint32_t i = 0; i < count; ++i)
    rows_.push_back({tokens[begin + i], &state_, begin + i, begin + i >= first_logits});
  RETURN_IF_ERROR(model_.run(
      rows_,
      [&](size_t row, std::span<const float> logits) {
        on_logits(begin + static_cast<uint32_t>(row), logits);
      },
      observer));
  tokens_.insert(tokens_.end(), tokens.begin() + begin, tokens.begin() + begin + count);
  return {};
}

Status Timeline::evaluate(std::span<const TokenId> tokens, uint32_t first_logits,
                          const std::function<void(uint32_t, std::span<const float>)>& on_logits,
                          Capture* capture) {
  RETURN_IF_ERROR(check_tokens(tokens));
  const auto total = static_cast<uint32_t>(tokens.size());
  Stopwatch watch(model_.counters().prefill_seconds);
  uint32_t begin = keep_prefix(tokens, capture ? 0 : std::min(first_logits, total - 1));
  std::optional<CaptureObserver> observer;
  if (capture) observer.emplace(model_.container().spec(), total, *capture);
  while (begin < total) {
    const uint32_t count = std::min(model_.plan().chunk, total - begin);
    RETURN_IF_ERROR(pass(tokens, begin, count, first_logits, on_logits,
                         observer ? observer->from(begin) : model_.routing_observer()));
    model_.counters().prefill_tokens += count;
    begin += count;
  }
  return {};
}

uint32_t Timeline::prefill_rows(uint32_t begin, uint32_t total, uint32_t turn_start) const {
  const uint32_t rows = std::min(model_.plan().chunk, total - begin);
  const bool stops = snapshots_.enabled() && state_.is_recurrent() && begin < turn_start;
  return stops ? std::min(rows, turn_start - begin) : rows;
}

Result<bool> Timeline::prefill(std::span<const TokenId> prompt, const GenerateOptions& options,
                               const std::function<void(std::span<const float>)>& on_last_logits) {
  const auto total = static_cast<uint32_t>(prompt.size());
  const uint32_t turn_start =
      options.turn_start > 0 && options.turn_start < total ? options.turn_start : total - 1;
  Stopwatch watch(model_.counters().prefill_seconds);
  // Where the last answer ended: the next edit or branch may come back to it.
  if (!tokens_.empty()) snapshots_.keep(state_, state_.length(), SnapshotKind::turn_boundary);
  while (tokens_.size() < total) {
    if (is_cancelled(options)) return false;
    const auto begin = static_cast<uint32_t>(tokens_.size());
    const uint32_t count = prefill_rows(begin, total, turn_start);
    RETURN_IF_ERROR(pass(
        prompt, begin, count, total - 1,
        [&](uint32_t, std::span<const float> logits) { on_last_logits(logits); },
        model_.routing_observer()));
    model_.counters().prefill_tokens += count;
    keep_periodic(begin);
    if (state_.can_save(turn_start) && turn_start > begin)
      snapshots_.keep(state_, turn_start, SnapshotKind::turn_boundary);
    if (options.on_prefill) options.on_prefill(begin + count, total);
  }
  return true;
}

void Timeline::keep_periodic(uint32_t before) {
  if (state_.length() / kSnapshotInterval > before / kSnapshotInterval)
    snapshots_.keep(state_, state_.length(), SnapshotKind::periodic);
}

Result<Generation> Timeline::generate(std::span<const TokenId> prompt,
                                      const GenerateOptions& options) {
  RETURN_IF_ERROR(check_tokens(prompt));
  RETURN_IF_ERROR(validate_sampling(options.sampling));
  Sampler sampler(options.sampling, model_.container().spec().vocab_rows);
  sampler.observe_prompt(prompt);

  Generation out;
  out.ids.reserve(options.max_tokens ? std::min(options.max_tokens, state_.context())
                                     : state_.context());
  out.reused_tokens = keep_prefix(prompt, static_cast<uint32_t>(prompt.size()) - 1);
  Result<int32_t> sampled = 0;
  ASSIGN_OR_RETURN(const bool complete,
                   prefill(prompt, options, [&](std::span<const float> logits) {
                     sampled = sampler.sample(logits);
                   }));
  if (!complete) {
    out.reason = FinishReason::cancelled;
    return out;
  }

  Stopwatch watch(model_.counters().decode_seconds);
  for (;;) {
    ASSIGN_OR_RETURN(const TokenId id, std::move(sampled));
    out.ids.push_back(id);
    sampler.observe_output(id);
    ++model_.counters().decode_tokens;
    if (std::find(options.stop_ids.begin(), options.stop_ids.end(), id) != options.stop_ids.end()) {
      out.reason = FinishReason::stop;
      return out;
    }
    if ((options.on_token && !options.on_token(id)) || is_cancelled(options)) {
      out.reason = FinishReason::cancelled;
      return out;
    }
    if (options.max_tokens != 0 && out.ids.size() >= options.max_tokens) {
      out.reason = FinishReason::length;
      return out;
    }
    if (state_.length() == state_.context()) {
      out.reason = FinishReason::context_full;
      return out;
    }
    const auto position = static_cast<uint32_t>(tokens_.size());
    model_.govern();
    rows_.assign(1, {id, &state_, position, true});
    RETURN_IF_ERROR(model_.run(
        rows_, [&](size_t, std::span<const float> logits) { sampled = sampler.sample(logits); },
        model_.routing_observer()));
    tokens_.push_back(id);
    keep_periodic(position);
  }
}

}  // namespace wader
