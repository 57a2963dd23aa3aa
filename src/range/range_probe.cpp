#include "range/range_probe.h"

#include <algorithm>
#include <string>

#include "base/check.h"
#include "base/error.h"
#include "container/manifest.h"
#include "range/probes.h"

namespace wader {
namespace {

// Any seed will do; that it is always the same makes a model's map always the same.
constexpr uint64_t kShuffleSeed = 0x52414E4745;

std::vector<std::string> topic_names() {
  std::vector<std::string> names;
  for (const RangeTopic& topic : range_topics()) names.emplace_back(topic.name);
  return names;
}

size_t expert_count(const ArchitectureSpec& spec) {
  return size_t{spec.moe_layer_count()} * spec.experts;
}

}  // namespace

Result<std::vector<ProbePrompt>> probe_prompts(const Tokenizer& tokenizer, uint32_t context) {
  std::vector<ProbePrompt> prompts;
  for (const size_t sample : {0, 1})
    for (size_t t = 0; t < kRangeTopics; ++t) {
      const std::string_view text = range_topics()[t].texts[sample];
      ProbePrompt& prompt = prompts.emplace_back();
      prompt.topic = t;
      prompt.held_out = sample == 1;
      prompt.text_bytes = text.size();
      ASSIGN_OR_RETURN(prompt.tokens, tokenizer.encode(text));
      prompt.cut = prompt.tokens.size() > context;
      if (prompt.cut) prompt.tokens.resize(context);
    }
  return prompts;
}

RangeShape range_shape(const ArchitectureSpec& spec) {
  RangeShape shape;
  shape.experts = spec.experts;
  for (uint32_t layer = 0; layer < spec.layer_count(); ++layer)
    if (has_experts(spec, layer)) shape.layers.push_back(layer);
  return shape;
}

RoutingCounts::RoutingCounts(const ArchitectureSpec& spec) : spec_(spec) {
  for (TopicCounts& set : sets_) {
    set.tokens.resize(kRangeTopics);
    set.uses.resize(expert_count(spec) * kRangeTopics);
  }
}

void RoutingCounts::begin(const ProbePrompt& prompt) {
  CHECK(prompt.topic < kRangeTopics);
  topic_ = prompt.topic;
  into_ = &sets_[prompt.held_out ? 1 : 0];
}

void RoutingCounts::add(uint32_t layer, std::span<const uint32_t> ids) {
  CHECK(into_ != nullptr && has_experts(spec_, layer) && ids.size() % spec_.experts_per_token == 0);
  const size_t before = spec_.moe_layers_before(layer);
  if (before == 0) into_->tokens[topic_] += ids.size() / spec_.experts_per_token;
  for (const uint32_t id : ids) {
    CHECK(id < spec_.experts);
    ++into_->uses[(before * spec_.experts + id) * kRangeTopics + topic_];
  }
}

uint64_t range_memory_bytes(const ArchitectureSpec& spec) {
  // Making it: two sets of counts, affinities three times (of all, of those with places, centred),
  // experts, a line of text. Checking its text: the line, and a Json of it.
  constexpr uint64_t kLineBytes = 256, kJsonBytes = 3200;
  return expert_count(spec) * std::max(kRangeTopics * (2 * sizeof(uint32_t) + 3 * sizeof(double)) +
                                           sizeof(ExpertRange) + kLineBytes,
                                       kJsonBytes + sizeof(ExpertRange) + kLineBytes);
}

GenerateOptions probe_options() {
  GenerateOptions options;
  options.sampling.temperature = 0;
  options.max_tokens = 1;
  return options;
}

Status run_probes(Session& session, std::span<const ProbePrompt> prompts, RoutingCounts& counts,
                  const ProgressFn& progress) {
  uint64_t total_bytes = 0, done_bytes = 0;
  for (const ProbePrompt& prompt : prompts) total_bytes += prompt.text_bytes;
  for (const ProbePrompt& prompt : prompts) {
    session.reset();
    counts.begin(prompt);
    ASSIGN_OR_RETURN([[maybe_unused]] const uint32_t reused,
                     session.begin(prompt.tokens, probe_options()));
    for (bool ended = false; !ended;) {
      ASSIGN_OR_RETURN(const GenerationStep step, session.step());
      ended = step.ended.has_value();
      const uint64_t bytes =
          ended ? prompt.text_bytes : prompt.text_bytes * step.prompt_done / prompt.tokens.size();
      if (progress && !progress({"probes", done_bytes + bytes, total_bytes}))
        return cancelled_error("stopped: no range map was written");
    }
    done_bytes += prompt.text_bytes;
  }
  return {};
}

RangeMap finish_range(const RoutingCounts& counts, uint64_t model) {
  RangeMap map = build_range_map(range_shape(counts.spec()), topic_names(), counts.counts(),
                                 counts.held_out());
  map.model = model;
  const RangeByChance chance =
      shuffled_range(counts.counts(), counts.held_out(), kRangeShuffles, kShuffleSeed);
  map.by_chance.credited = chance.credited;
  map.by_chance.repeated = chance.repeated;
  return map;
}

}  // namespace wader
