// What an engine owns: the container, the trunk, the slots, the threads, the workspace.
#pragma once

#include <memory>
#include <optional>

#include "base/thread_pool.h"
#include "engine/engine.h"
#include "engine/pool_governor.h"
#include "experts/lookahead.h"
#include "experts/usage_file.h"
#include "model/container_experts.h"
#include "model/forward.h"
#include "model/snapshots.h"

namespace wader {

class LoadedModel final : public Engine {
 public:
  // Second step of Engine::open, after the plan was made.
  static Result<std::unique_ptr<LoadedModel>> load(Container container,
                                                   std::unique_ptr<Tokenizer> tokenizer,
                                                   const EngineOptions& options,
                                                   const MemoryPlan& plan);

  ~LoadedModel() override;

  const Container& container() const override { return container_; }
  const Tokenizer* tokenizer() const override { return tokenizer_.get(); }
  const MemoryPlan& plan() const override { return plan_; }
  std::string io_description() const override;
  std::span<const LayerPredictions> predictions() const override { return cache_->predictions(); }
  bool is_resident(uint32_t layer, uint32_t expert) const override {
    return cache_->policy().is_resident(layer, expert);
  }
  const ExpertSource& expert_source() const override { return *source_; }
  ReadQueue& read_queue() override {
    cache_->settle();
    return *queue_;
  }
  std::string lookahead_description() const override { return lookahead_.description(); }
  const Kernels& kernels() const override { return *kernels_; }
  std::span<const std::byte> trunk_bytes() const override { return weights_.bytes(); }
  const SamplingParams& default_sampling() const override { return default_sampling_; }
  const std::vector<TokenId>& eos_ids() const override { return eos_ids_; }
  Result<std::unique_ptr<Session>> new_session() override;
  EngineStats stats() const override;
  const ExpertCounters& expert_counters() const override { return cache_->counters(); }

  // One pass over `rows`, its times and what lookahead gave counted.
  Status run(std::span<const Row> rows, const LogitsFn& on_logits,
             const ForwardObserver* observer = nullptr);
  // Null when nobody watches.
  const ForwardObserver* routing_observer() const {
    return routing_observer_.on_router ? &routing_observer_ : nullptr;
  }
  EngineStats& counters() { return stats_; }
  // Between two passes.
  void govern() {
    if (governor_) governor_->tick(stats_);
  }
  void session_closed() { --open_sessions_; }

 private:
  LoadedModel(Container container, std::unique_ptr<Tokenizer> tokenizer, const MemoryPlan& plan);
  Status read_generation_config();
  UsageIdentity usage_identity() const;
  void begin_with_usage();

  Container container_;
  std::unique_ptr<Tokenizer> tokenizer_;
  MemoryPlan plan_;
  SamplingParams default_sampling_;
  std::vector<TokenId> eos_ids_;
  TrunkWeights weights_;
  RopeTable rope_;
  const Kernels* kernels_ = nullptr;
  std::unique_ptr<ThreadPool> threads_;
  Workspace work_;
  // Declared in this order: the cache drains the queue before either goes, and the files outlive
  // both.
  std::unique_ptr<ContainerExperts> source_;
  std::unique_ptr<ReadQueue> queue_;
  std::unique_ptr<ExpertCache> cache_;
  std::unique_ptr<Experts> other_experts_;  // of EngineOptions::make_experts, else null
  LookaheadGate lookahead_{LookaheadMode::off};
  ForwardObserver routing_observer_;
  bool keeps_usage_ = false;
  std::optional<PoolGovernor> governor_;
  EngineStats stats_;
  uint32_t open_sessions_ = 0;
};

}  // namespace wader
