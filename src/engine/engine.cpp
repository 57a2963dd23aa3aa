#include "engine/engine.h"

#include <malloc.h>

#include <algorithm>

#include "base/error.h"
#include "base/machine.h"
#include "engine/loaded_model.h"
#include "engine/read_setup.h"
#include "engine/timeline.h"
#include "experts/usage_file.h"

namespace wader {
namespace {

uint32_t thread_count(const EngineOptions& options) {
  return options.threads ? options.threads : choose_threads(process_affinity()).threads;
}

Result<std::unique_ptr<Tokenizer>> load_tokenizer(const Container& container) {
  if (!container.has_file("tokenizer.json")) return std::unique_ptr<Tokenizer>();
  ASSIGN_OR_RETURN(Tokenizer tokenizer,
                   Tokenizer::load((container.directory() / "tokenizer.json").string()));
  if (tokenizer.vocab_size() > container.spec().vocab_rows)
    return corrupt_error("tokenizer.json names {} ids, the model has {} rows",
                         tokenizer.vocab_size(), container.spec().vocab_rows);
  return std::make_unique<Tokenizer>(std::move(tokenizer));
}

// Code, libraries and stacks: 8.2 to 8.8 MiB beside the heap are resident after a start, with what
// the kernel maps around the pages that were touched (docs/results.md).
constexpr uint64_t kProgramBytes = 8 * kMiB;
constexpr uint64_t kProgramSpreadBytes = 1 * kMiB;

// What the process holds before the model is loaded. Resident pages differ by half a MiB between
// two starts, and a plan that followed them would choose other slots and another context each time:
// so the heap is counted in what was asked of it (tokenizer, manifest), to whole MiB, and the
// program by a constant; the plan's reserve is there for the difference. What is resident beyond it
// (sanitizers, a preloaded library) counts.
uint64_t process_bytes(const ProcessMemory& process) {
  const struct mallinfo2 heap = mallinfo2();
  const uint64_t counted = kProgramBytes + align_up(heap.uordblks + heap.hblkhd, kMiB);
  return std::max(counted,
                  process.resident_bytes - std::min(process.resident_bytes, kProgramSpreadBytes));
}

// The program and the tokenizer are in memory already, everything else is planned.
Result<MemoryPlan> make_plan(const Container& container, const EngineOptions& options) {
  ASSIGN_OR_RETURN(const Kernels* kernels, select_kernels(options.kernels));
  malloc_trim(0);  // loading a tokenizer leaves freed pages behind
  const ProcessMemory process = process_memory();
  const MemoryRoom room = memory_room();
  // One eighth of the room stays with the system and the page cache, which metadata and the trunk's
  // read need.
  const MachineMemory machine{
      process.resident_bytes + room.available_bytes - room.available_bytes / 8,
      options.process_bytes ? options.process_bytes : process_bytes(process)};
  PlanRequest request{.trunk_bytes = TrunkWeights::resident_bytes(container.manifest()),
                      .expert_stride_bytes = ContainerExperts::slot_bytes(container),
                      .budget_bytes = options.memory_bytes,
                      .kv_dtype = kernels->kv_dtype,
                      .context = options.context,
                      .chunk = options.chunk,
                      .slots = options.slots,
                      .threads = thread_count(options),
                      .sessions = std::max(options.sessions, 1u),
                      .snapshots = options.snapshots,
                      .extra_bytes = options.extra_bytes};
  auto planned = plan_memory(container.spec(), request, machine);
  if (options.sessions == 0 && planned.ok()) {
    request.sessions = sessions_that_fit(*planned);
    planned = plan_memory(container.spec(), request, machine);
  }
  if (!planned.ok() && planned.error().code == ErrorCode::over_budget && options.memory_bytes == 0)
    return std::move(planned).error().within(room.reason);
  ASSIGN_OR_RETURN(MemoryPlan plan, std::move(planned));
  if (options.process_bytes == 0 && process.peak_resident_bytes > plan.budget_bytes)
    return over_budget_error(
        "--memory {} is less than the {} that loading the tokenizer took; try --memory {}MiB",
        format_bytes(plan.budget_bytes), format_bytes(process.peak_resident_bytes),
        process.peak_resident_bytes / kMiB + 1);
  return plan;
}

}  // namespace

Status validate_engine_options(const EngineOptions& options) {
  if (options.threads > 1024)
    return invalid_argument_error("--threads {} is more than 1024", options.threads);
  if (options.sessions > 1024)
    return invalid_argument_error("{} sessions are more than 1024", options.sessions);
  RETURN_IF_ERROR(validate_read_options(options));
  if (auto mode = lookahead_mode_from_name(options.lookahead); !mode.ok())
    return std::move(mode).error();
  if (auto kernels = select_kernels(options.kernels); !kernels.ok())
    return std::move(kernels).error().within("--kernels");
  if (auto rule = eviction_rule_from_name(options.cache_policy); !rule.ok())
    return std::move(rule).error().within("--cache-policy");
  return {};
}

EngineStats stats_between(const EngineStats& before, const EngineStats& after) {
  EngineStats d = after;
  d.prefill_tokens -= before.prefill_tokens;
  d.decode_tokens -= before.decode_tokens;
  d.prefill_seconds -= before.prefill_seconds;
  d.decode_seconds -= before.decode_seconds;
  d.experts = after.experts.since(before.experts);
  d.pass_seconds.mixer -= before.pass_seconds.mixer;
  d.pass_seconds.router -= before.pass_seconds.router;
  d.pass_seconds.experts -= before.pass_seconds.experts;
  d.pass_seconds.lookahead -= before.pass_seconds.lookahead;
  d.pass_seconds.head -= before.pass_seconds.head;
  d.pool_shrinks -= before.pool_shrinks;
  d.pool_growths -= before.pool_growths;
  return d;
}

Result<MemoryPlan> plan_for(const Container& container, const EngineOptions& options) {
  RETURN_IF_ERROR(validate_engine_options(options));
  // Loaded and dropped: what it takes is part of what the plan must hold.
  ASSIGN_OR_RETURN(const auto tokenizer, load_tokenizer(container));
  return make_plan(container, options);
}

Result<std::unique_ptr<Engine>> Engine::open(const std::filesystem::path& path,
                                             const EngineOptions& options) {
  RETURN_IF_ERROR(validate_engine_options(options));
  ASSIGN_OR_RETURN(Container container, Container::open(path));
  ASSIGN_OR_RETURN(auto tokenizer, load_tokenizer(container));
  ASSIGN_OR_RETURN(const MemoryPlan plan, make_plan(container, options));
  ASSIGN_OR_RETURN(auto model,
                   LoadedModel::load(std::move(container), std::move(tokenizer), options, plan));
  return std::unique_ptr<Engine>(std::move(model));
}

LoadedModel::LoadedModel(Container container, std::unique_ptr<Tokenizer> tokenizer,
                         const MemoryPlan& plan)
    : container_(std::move(container)),
      tokenizer_(std::move(tokenizer)),
      plan_(plan),
      rope_(container_.spec().rope, container_.spec().rotary_dim) {}

Result<std::unique_ptr<LoadedModel>> LoadedModel::load(Container container,
                                                       std::unique_ptr<Tokenizer> tokenizer,
                                                       const EngineOptions& options,
                                                       const MemoryPlan& plan) {
  std::unique_ptr<LoadedModel> model(
      new LoadedModel(std::move(container), std::move(tokenizer), plan));
  const ArchitectureSpec& spec = model->container_.spec();
  RETURN_IF_ERROR(model->read_generation_config());
  ASSIGN_OR_RETURN(model->kernels_, select_kernels(options.kernels));
  ASSIGN_OR_RETURN(const EvictionRule rule, eviction_rule_from_name(options.cache_policy));
  ASSIGN_OR_RETURN(const LookaheadMode lookahead, lookahead_mode_from_name(options.lookahead));
  model->lookahead_ = LookaheadGate(lookahead);
  model->threads_ = std::make_unique<ThreadPool>(static_cast<int>(plan.threads));
  if (model->threads_->size() < static_cast<int>(plan.threads))
    return io_error(
        "the system started only {} of {} compute threads; use --threads {}, or raise the process "
        "limit",
        model->threads_->size(), plan.threads, model->threads_->size());
  ASSIGN_OR_RETURN(model->work_,
                   Workspace::create(spec, std::max(plan.chunk, plan.sessions), plan.threads));
  ASSIGN_OR_RETURN(ReadSetup reads, open_reads(model->container_, options, plan.slots_bytes));
  model->source_ = std::move(reads.source);
  model->queue_ = std::move(reads.queue);
  ASSIGN_OR_RETURN(model->cache_, ExpertCache::create(*model->source_, plan.slots, rule,
                                                      *model->queue_, *model->threads_));
  ASSIGN_OR_RETURN(model->weights_, TrunkWeights::load(model->container_));
  if (options.make_experts) {
    ASSIGN_OR_RETURN(model->other_experts_, options.make_experts(model->container_));
  }
  if (options.on_routing)
    model->routing_observer_.on_router = [on_routing = options.on_routing](
                                             uint32_t layer, std::span<const uint32_t> ids,
                                             std::span<const float>) { on_routing(layer, ids); };
  model->keeps_usage_ = options.keeps_usage;
  if (options.keeps_usage) model->begin_with_usage();
  if (options.governor)
    model->governor_.emplace(*model->cache_, plan, model->source_->slot_bytes(),
                             options.memory_bytes == 0, model->source_->direct(),
                             options.read_memory);
  return model;
}

// A file that is missing, damaged or of another container is no history; it is replaced at the end.
void LoadedModel::begin_with_usage() {
  auto usage = read_usage_file(container_.directory() / kUsageFile, usage_identity());
  if (usage.ok()) cache_->policy().history().begin_with(*usage);
}

UsageIdentity LoadedModel::usage_identity() const {
  return {container_.identity(), source_->layers(), source_->experts()};
}

LoadedModel::~LoadedModel() {
  // A model that was opened and did nothing has nothing to say, and a directory that cannot be
  // written to keeps what it has.
  if (keeps_usage_ && cache_ != nullptr && cache_->policy().history().has_counted())
    (void)write_usage_file(container_.directory() / kUsageFile, usage_identity(),
                           cache_->policy().history().whole_past());
}

Status LoadedModel::read_generation_config() {
  if (!container_.has_file("generation_config.json")) return {};
  ASSIGN_OR_RETURN(const std::string text, container_.read_small_file("generation_config.json"));
  ASSIGN_OR_RETURN(const Json json, parse_json(text, "generation_config.json"));
  ASSIGN_OR_RETURN(default_sampling_, sampling_from_generation_config(json));
  ASSIGN_OR_RETURN(eos_ids_, eos_from_generation_config(json));
  return {};
}

Status LoadedModel::run(std::span<const Row> rows, const LogitsFn& on_logits,
                        const ForwardObserver* observer) {
  const bool decodes = rows.size() == 1;
  const PassSeconds seconds_before = stats_.pass_seconds;
  const ExpertCounters before = cache_->counters();
  RETURN_IF_ERROR(forward({container_.spec(), container_.manifest().experts, weights_, rope_,
                           *kernels_, other_experts_ ? *other_experts_ : *cache_, *threads_, work_,
                           decodes ? lookahead_.active() : lookahead_.mode() != LookaheadMode::off,
                           &stats_.pass_seconds},
                          rows, on_logits, observer));
  if (!decodes) return {};
  const ExpertCounters experts = cache_->counters().since(before);
  lookahead_.end_pass({.pass_seconds = stats_.pass_seconds.total() - seconds_before.total(),
                       .wait_seconds = experts.wait_seconds,
                       .predict_seconds = stats_.pass_seconds.lookahead - seconds_before.lookahead,
                       .hidden_seconds = experts.hidden_seconds,
                       .delay_seconds = experts.delay_seconds});
  return {};
}

std::string LoadedModel::io_description() const {
  return queue_->description() + (source_->direct() ? ", O_DIRECT" : ", page cache");
}

Result<std::unique_ptr<Session>> LoadedModel::new_session() {
  if (open_sessions_ >= plan_.sessions)
    return invalid_argument_error(
        "this engine was planned for {} session{} at a time; close another first", plan_.sessions,
        plan_.sessions == 1 ? "" : "s");
  const ArchitectureSpec& spec = container_.spec();
  const StateShape shape{plan_.context, plan_.chunk, kernels_->kv_dtype};
  ASSIGN_OR_RETURN(SequenceState state, SequenceState::create(spec, shape));
  ASSIGN_OR_RETURN(Snapshots snapshots,
                   Snapshots::create(snapshot_bytes(spec, shape), plan_.snapshots));
  ++open_sessions_;
  return std::unique_ptr<Session>(
      std::make_unique<Timeline>(*this, std::move(state), std::move(snapshots)));
}

EngineStats LoadedModel::stats() const {
  EngineStats stats = stats_;
  stats.experts = cache_->counters();
  stats.peak_rss_bytes = process_memory().peak_resident_bytes;
  stats.slots = cache_->slot_count();
  stats.usable_slots = cache_->usable_count();
  return stats;
}

}  // namespace wader
