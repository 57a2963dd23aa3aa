// Timeline: the one Session there is. Holds the tokens whose state is computed, and moves that
// state to where a prompt wants it: kept prefix, rewind, snapshot, chunked prefill.
#pragma once

#include <optional>
#include <vector>

#include "engine/loaded_model.h"
#include "model/snapshots.h"

namespace wader {

class Timeline final : public Session {
 public:
  Timeline(LoadedModel& model, SequenceState state, Snapshots snapshots);
  ~Timeline() override;

  const std::vector<TokenId>& tokens() const override { return tokens_; }
  Result<Generation> generate(std::span<const TokenId> prompt,
                              const GenerateOptions& options) override;
  Result<uint32_t> begin(std::span<const TokenId> prompt, const GenerateOptions& options) override;
  Result<GenerationStep> step() override;
  uint32_t reusable(std::span<const TokenId> prompt) const override;
  uint32_t copy_prefix(const Session& other, std::span<const TokenId> prompt) override;
  Status evaluate(std::span<const TokenId> tokens, uint32_t first_logits,
                  const std::function<void(uint32_t, std::span<const float>)>& on_logits,
                  Capture* capture) override;
  void reset() override;
  Status save(const std::filesystem::path& file, std::string_view note) override;
  Result<std::string> load(const std::filesystem::path& file, uint64_t max_note_bytes) override;

 private:
  Status check_tokens(std::span<const TokenId> tokens) const;
  // Keeps at most `most` tokens of the common prefix with `tokens`, as far as the state or a
  // snapshot reaches; returns how many.
  uint32_t keep_prefix(std::span<const TokenId> tokens, uint32_t most);
  // One pass over tokens[begin, begin + count), which follow the state; logits from position
  // first_logits on.
  Status pass(std::span<const TokenId> tokens, uint32_t begin, uint32_t count,
              uint32_t first_logits,
              const std::function<void(uint32_t, std::span<const float>)>& on_logits,
              const ForwardObserver* observer);
  // Rows of the next pass over a prompt: a recurrent state stops where a snapshot is wanted.
  uint32_t prefill_rows(uint32_t begin, uint32_t total, uint32_t turn_start) const;
  // A periodic snapshot when the state has passed a multiple of the interval since `before`.
  void keep_periodic(uint32_t before);
  // The generation in progress, as begin() was given it.
  struct Run {
    Run(std::span<const TokenId> prompt, const GenerateOptions& options, uint32_t vocab_rows);
    void sample(std::span<const float> logits);

    std::vector<TokenId> prompt;
    GenerateOptions options;
    Sampler sampler;
    uint32_t turn_start, generated = 0;
    TokenId last = -1;  // generated and not in the state yet
    // Of the last logits. Here, so that no pass allocates for a callback that knows of them.
    std::optional<Result<GeneratedToken>> sampled;
  };
  Result<GenerationStep> prefill_step(Run& run);
  Result<GenerationStep> decode_step(Run& run);
  // Takes what the pass has sampled, if it has, into `step`.
  Status finish_step(Run& run, GenerationStep& step);
  // Tokens that the state and `tokens` begin with alike.
  uint32_t shared_prefix(std::span<const TokenId> tokens) const;

  LoadedModel& model_;
  SequenceState state_;
  Snapshots snapshots_;
  std::vector<TokenId> tokens_;  // computed, tokens_.size() == state_.length()
  std::vector<Row> rows_;        // scratch of pass()
  std::optional<Run> run_;
};

}  // namespace wader
