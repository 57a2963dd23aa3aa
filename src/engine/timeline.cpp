#include "engine/timeline.h"

#include <algorithm>
#include <chrono>
#include <utility>

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
  run_.reset();
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

uint32_t Timeline::shared_prefix(std::span<const TokenId> tokens) const {
  const auto common =
      std::mismatch(tokens_.begin(), tokens_.end(), tokens.begin(), tokens.end()).first;
  return static_cast<uint32_t>(common - tokens_.begin());
}

uint32_t Timeline::keep_prefix(std::span<const TokenId> tokens, uint32_t most) {
  const uint32_t shared = shared_prefix(tokens);
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
  run_.reset();
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

void Timeline::keep_periodic(uint32_t before) {
  if (state_.length() / kSnapshotInterval > before / kSnapshotInterval)
    snapshots_.keep(state_, state_.length(), SnapshotKind::periodic);
}

Timeline::Run::Run(std::span<const TokenId> prompt_ids, const GenerateOptions& given,
                   uint32_t vocab_rows)
    : prompt(prompt_ids.begin(), prompt_ids.end()),
      options(given),
      sampler(given.sampling, vocab_rows) {
  const auto total = static_cast<uint32_t>(prompt.size());
  turn_start = given.turn_start > 0 && given.turn_start < total ? given.turn_start : total - 1;
  sampler.observe_prompt(prompt);
}

void Timeline::Run::sample(std::span<const float> logits) {
  const Result<int32_t> id = sampler.sample(logits);
  if (!id.ok())
    sampled = id.error();
  else if (options.top_logprobs)
    sampled = token_with_logprobs(*id, logits, *options.top_logprobs);
  else
    sampled = GeneratedToken{.id = *id};
}

Result<uint32_t> Timeline::begin(std::span<const TokenId> prompt, const GenerateOptions& options) {
  run_.reset();
  RETURN_IF_ERROR(check_tokens(prompt));
  RETURN_IF_ERROR(validate_sampling(options.sampling));
  const uint32_t vocab = model_.container().spec().vocab_rows;
  for (const auto& [id, bias] : options.sampling.logit_bias)
    if (id < 0 || static_cast<uint32_t>(id) >= vocab)
      return invalid_argument_error("a bias is given for token {}, which this model does not have",
                                    id);
  run_.emplace(prompt, options, vocab);
  const uint32_t kept = keep_prefix(prompt, static_cast<uint32_t>(prompt.size()) - 1);
  // Where the last answer ended: the next edit or branch may come back to it.
  if (kept > 0) snapshots_.keep(state_, kept, SnapshotKind::turn_boundary);
  return kept;
}

Result<GenerationStep> Timeline::step() {
  CHECK(run_.has_value());
  Run& run = *run_;
  if (is_cancelled(run.options)) {
    run_.reset();
    return GenerationStep{.ended = FinishReason::cancelled};
  }
  Result<GenerationStep> step =
      tokens_.size() < run.prompt.size() ? prefill_step(run) : decode_step(run);
  if (!step.ok() || step->ended) run_.reset();
  return step;
}

Result<GenerationStep> Timeline::prefill_step(Run& run) {
  const auto total = static_cast<uint32_t>(run.prompt.size());
  const auto begin = static_cast<uint32_t>(tokens_.size());
  const uint32_t count = prefill_rows(begin, total, run.turn_start);
  Stopwatch watch(model_.counters().prefill_seconds);
  RETURN_IF_ERROR(pass(
      run.prompt, begin, count, total - 1,
      [&run](uint32_t, std::span<const float> logits) { run.sample(logits); },
      model_.routing_observer()));
  model_.counters().prefill_tokens += count;
  keep_periodic(begin);
  if (state_.can_save(run.turn_start) && run.turn_start > begin)
    snapshots_.keep(state_, run.turn_start, SnapshotKind::turn_boundary);
  GenerationStep step{.prompt_done = begin + count};
  RETURN_IF_ERROR(finish_step(run, step));
  return step;
}

Result<GenerationStep> Timeline::decode_step(Run& run) {
  const auto position = static_cast<uint32_t>(tokens_.size());
  Stopwatch watch(model_.counters().decode_seconds);
  model_.govern();
  rows_.assign(1, {run.last, &state_, position, true});
  RETURN_IF_ERROR(model_.run(
      rows_, [&run](size_t, std::span<const float> logits) { run.sample(logits); },
      model_.routing_observer()));
  tokens_.push_back(run.last);
  keep_periodic(position);
  GenerationStep step{.prompt_done = static_cast<uint32_t>(run.prompt.size())};
  RETURN_IF_ERROR(finish_step(run, step));
  return step;
}

Status Timeline::finish_step(Run& run, GenerationStep& step) {
  if (!run.sampled) return {};
  ASSIGN_OR_RETURN(step.token, *std::exchange(run.sampled, std::nullopt));
  const TokenId id = run.last = step.token->id;
  ++run.generated;
  run.sampler.observe_output(id);
  ++model_.counters().decode_tokens;
  const std::vector<TokenId>& stops = run.options.stop_ids;
  if (std::find(stops.begin(), stops.end(), id) != stops.end())
    step.ended = FinishReason::stop;
  else if (run.generated == run.options.max_tokens)
    step.ended = FinishReason::length;
  else if (state_.length() == state_.context())
    step.ended = FinishReason::context_full;
  return {};
}

uint32_t Timeline::reusable(std::span<const TokenId> prompt) const {
  if (prompt.empty()) return 0;
  const uint32_t wanted = std::min(shared_prefix(prompt), static_cast<uint32_t>(prompt.size()) - 1);
  return state_.can_rewind(wanted) ? wanted : snapshots_.latest(wanted);
}

uint32_t Timeline::copy_prefix(const Session& session, std::span<const TokenId> prompt) {
  const auto& other = dynamic_cast<const Timeline&>(session);
  CHECK(&other != this && &other.model_ == &model_);
  reset();
  const uint32_t count = other.reusable(prompt);
  if (count == 0) return 0;
  state_.copy_from(other.state_, count);
  if (!other.state_.can_rewind(count)) other.snapshots_.restore(state_, count);
  tokens_.assign(prompt.begin(), prompt.begin() + count);
  return count;
}

Result<Generation> Timeline::generate(std::span<const TokenId> prompt,
                                      const GenerateOptions& options) {
  Generation out;
  ASSIGN_OR_RETURN(out.reused_tokens, begin(prompt, options));
  out.ids.reserve(options.max_tokens ? std::min(options.max_tokens, state_.context())
                                     : state_.context());
  const auto total = static_cast<uint32_t>(prompt.size());
  for (;;) {
    const bool prefills = tokens_.size() < total;
    ASSIGN_OR_RETURN(const GenerationStep step, this->step());
    if (prefills && step.prompt_done > 0 && options.on_prefill)
      options.on_prefill(step.prompt_done, total);
    if (step.token) out.ids.push_back(step.token->id);
    const bool goes_on = !step.token || step.ended == FinishReason::stop || !options.on_token ||
                         options.on_token(step.token->id);
    if (!goes_on || step.ended) {
      out.reason = goes_on ? *step.ended : FinishReason::cancelled;
      run_.reset();
      return out;
    }
  }
}

}  // namespace wader
