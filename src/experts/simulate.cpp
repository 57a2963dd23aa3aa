#include "experts/simulate.h"

#include <algorithm>

#include "base/check.h"

namespace wader {
namespace {

struct Want {
  uint32_t expert, uses;
};

// The distinct experts of a pass's layer in ascending order, as forward asks for them.
void distinct_wants(std::span<const uint16_t> ids, std::vector<uint32_t>& uses,
                    std::vector<Want>& wants) {
  wants.clear();
  for (const uint16_t id : ids)
    if (uses[id]++ == 0) wants.push_back({id, 0});
  std::sort(wants.begin(), wants.end(),
            [](const Want& a, const Want& b) { return a.expert < b.expert; });
  for (Want& want : wants) want.uses = std::exchange(uses[want.expert], 0);
}

// Which of the counts a pass belongs to.
class Account {
 public:
  explicit Account(uint64_t uncounted_tokens) : uncounted_tokens_(uncounted_tokens) {}

  void begin_pass(const TracePass& pass) {
    counts_ = tokens_ >= uncounted_tokens_;
    tokens_ += pass.rows;
    decode_ = pass.rows == 1 && !pass.begins_prompt;
    if (decode_) {
      ++since_prompt_;
    } else {
      // The chunks of one prompt follow each other.
      prompt_tokens_ = (since_prompt_ > 0 || pass.begins_prompt ? 0 : prompt_tokens_) + pass.rows;
      since_prompt_ = 0;
    }
  }
  void add(uint64_t wanted, uint64_t missed) {
    if (!counts_) return;
    reads_.wanted += wanted;
    reads_.missed += missed;
    if (!decode_) return;
    reads_.decode_wanted += wanted;
    reads_.decode_missed += missed;
    if (prompt_tokens_ < kLongPrompt || since_prompt_ > kTokensAfterPrompt) return;
    reads_.after_prompt_wanted += wanted;
    reads_.after_prompt_missed += missed;
  }
  const SimulatedReads& reads() const { return reads_; }

 private:
  const uint64_t uncounted_tokens_;
  uint64_t tokens_ = 0, prompt_tokens_ = 0, since_prompt_ = 0;
  bool counts_ = false, decode_ = false;
  SimulatedReads reads_;
};

// One layer of a pass, as ExpertCache runs it: residents are pinned before any slot is given away,
// and slots of computed experts are freed where the missing need them.
uint64_t run_layer(SlotPolicy& policy, uint32_t layer, std::span<const Want> wants,
                   std::vector<uint32_t>& pinned) {
  pinned.clear();
  uint64_t missed = 0;
  for (const Want& want : wants)
    if (const auto slot = policy.pin_resident(layer, want.expert, want.uses))
      pinned.push_back(*slot);
  // An expert that makes room for another of its own pass is not resident either, but was no miss.
  const size_t residents = pinned.size();
  if (residents == wants.size()) {
    for (const uint32_t slot : pinned) policy.unpin(slot);
    return 0;
  }
  std::vector<bool> done(wants.size());
  for (size_t i = 0; i < wants.size(); ++i) done[i] = policy.is_resident(layer, wants[i].expert);
  for (size_t i = 0; i < wants.size(); ++i) {
    if (done[i]) continue;
    auto slot = policy.reserve(layer, wants[i].expert, wants[i].uses);
    if (!slot) {
      for (const uint32_t computed : pinned) policy.unpin(computed);
      pinned.clear();
      slot = policy.reserve(layer, wants[i].expert, wants[i].uses);
    }
    CHECK(slot.has_value());
    policy.commit(*slot);
    pinned.push_back(*slot);
    ++missed;
  }
  for (const uint32_t slot : pinned) policy.unpin(slot);
  return missed;
}

// Belady's MIN over (layer, expert) keys. Steps are layers of passes, counted through.
class Belady {
 public:
  Belady(const RoutingTrace& trace, uint32_t slots)
      : slots_(slots),
        experts_(trace.shape.experts),
        uses_(size_t{trace.shape.layers} * experts_),
        next_(uses_.size(), 0),
        held_at_(uses_.size(), 0),
        resident_(uses_.size(), false) {
    uint64_t step = 0;
    for (const TracePass& pass : trace.passes)
      for (uint32_t layer = 0; layer < trace.shape.layers; ++layer, ++step)
        for (const uint16_t id : trace.ids_of(pass, layer)) {
          auto& steps = uses_[key(layer, id)];
          if (steps.empty() || steps.back() != step) steps.push_back(step);
        }
  }

  uint64_t run_layer(uint32_t layer, std::span<const Want> wants) {
    ++step_;
    for (const Want& want : wants) {
      ++next_[key(layer, want.expert)];
      held_at_[key(layer, want.expert)] = step_;
    }
    missing_.clear();
    for (const Want& want : wants)
      if (!resident_[key(layer, want.expert)]) missing_.push_back(key(layer, want.expert));
    for (const size_t missing : missing_) take(missing);
    return missing_.size();
  }

 private:
  size_t key(uint32_t layer, uint32_t expert) const { return size_t{layer} * experts_ + expert; }
  uint64_t next_use(size_t key) const {
    return next_[key] < uses_[key].size() ? uses_[key][next_[key]] : UINT64_MAX;
  }
  void take(size_t key) {
    resident_[key] = true;
    if (contents_.size() < slots_) {
      contents_.push_back(key);
      return;
    }
    size_t* victim = nullptr;
    const auto later = [&](size_t a, size_t b) {
      const bool a_free = held_at_[a] != step_, b_free = held_at_[b] != step_;
      return a_free != b_free ? a_free : next_use(a) > next_use(b);
    };
    for (size_t& content : contents_)
      if (victim == nullptr || later(content, *victim)) victim = &content;
    resident_[*victim] = false;
    *victim = key;
  }

  const uint32_t slots_, experts_;
  uint64_t step_ = 0;
  std::vector<std::vector<uint64_t>> uses_;  // by key: the steps that want it
  std::vector<size_t> next_;                 // by key, into uses_
  std::vector<uint64_t> held_at_;            // by key: the last step that wanted it, from 1
  std::vector<bool> resident_;
  std::vector<size_t> contents_, missing_;
};

template <typename RunLayer>
SimulatedReads replay(const RoutingTrace& trace, uint64_t uncounted_tokens, RunLayer run) {
  Account account(uncounted_tokens);
  std::vector<uint32_t> uses(trace.shape.experts, 0);
  std::vector<Want> wants;
  for (const TracePass& pass : trace.passes) {
    account.begin_pass(pass);
    for (uint32_t layer = 0; layer < trace.shape.layers; ++layer) {
      distinct_wants(trace.ids_of(pass, layer), uses, wants);
      account.add(wants.size(), run(layer, std::span<const Want>(wants)));
    }
  }
  return account.reads();
}

}  // namespace

SimulatedReads simulate(const RoutingTrace& trace, EvictionRule rule,
                        const SimulateOptions& options) {
  SlotPolicy policy(options.slots, trace.shape.layers, trace.shape.experts, rule);
  if (!options.history.empty()) policy.history().begin_with(options.history);
  std::vector<uint32_t> pinned;
  return replay(trace, options.uncounted_tokens, [&](uint32_t layer, std::span<const Want> wants) {
    return run_layer(policy, layer, wants, pinned);
  });
}

SimulatedReads simulate_belady(const RoutingTrace& trace, const SimulateOptions& options) {
  Belady belady(trace, options.slots);
  return replay(trace, options.uncounted_tokens, [&](uint32_t layer, std::span<const Want> wants) {
    return belady.run_layer(layer, wants);
  });
}

std::vector<float> learn_history(const RoutingTrace& trace) {
  UseHistory history(trace.shape.layers, trace.shape.experts);
  (void)replay(trace, 0, [&](uint32_t layer, std::span<const Want> wants) {
    for (const Want& want : wants) history.count(layer, want.expert, want.uses);
    return uint64_t{0};
  });
  return history.whole_past();
}

}  // namespace wader
