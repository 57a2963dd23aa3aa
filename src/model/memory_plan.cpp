#include "model/memory_plan.h"

#include <fmt/format.h>

#include <algorithm>
#include <vector>

#include "base/error.h"
#include "model/state.h"
#include "model/workspace.h"

namespace wader {
namespace {

// Queues, completions and the stacks that read threads touch; measured 0.3 MiB with 4 threads.
constexpr uint64_t kIoBytes = kMiB;
// What each expert of each layer has in the cache's books: its place in the files, its history
// (52 bytes), its slot's key and read (92).
constexpr uint64_t kBookBytesPerExpert = 192;
// What malloc keeps beyond its live blocks, stacks of compute threads, page tables of the buffers,
// terminal editing, sampling over a large vocabulary's worth of small vectors; measured 2–4 MiB in
// chat; and 1 MiB by which the program's pages may exceed what is counted for them.
constexpr uint64_t kReserveBytes = 6 * kMiB;
// The resident size of one program differs between two starts by where the system maps its pages;
// measured 0.2 MiB.
constexpr uint64_t kJitterBytes = kMiB / 2;
// Sampler with penalties: penalised logits, weights, ids and bins under selection, counts.
constexpr uint64_t kSamplerBytesPerVocabRow = 17;

constexpr uint32_t kAutoContexts[] = {8192, 4096, 2048, 1024};
// A long chunk reads each expert once for many tokens and unpacks its weights once. Beyond
// kModestChunk only where all scratch stays under a 16th of the budget: slots serve decode.
constexpr uint32_t kAutoChunks[] = {512, 256, 128, 64, 32, 16};
constexpr uint32_t kModestChunk = 128;

// Snapshots are worth what they save: computing a conversation again reads most experts again. A
// 32nd of the budget, or two where they cost no more than a 16th, at most 8.
uint32_t snapshot_count(const ArchitectureSpec& spec, const PlanRequest& request,
                        uint64_t budget_bytes, uint32_t context, uint32_t chunk) {
  const uint64_t each = request.sessions * snapshot_bytes(spec, {context, chunk, request.kv_dtype});
  if (each == 0) return 0;
  if (request.snapshots != kAutoSnapshots) return request.snapshots;
  const uint64_t few = std::min<uint64_t>(2, budget_bytes / 16 / each);
  return static_cast<uint32_t>(std::min<uint64_t>(8, std::max(few, budget_bytes / 32 / each)));
}

MemoryPlan fixed_costs(const ArchitectureSpec& spec, const PlanRequest& request,
                       const MachineMemory& machine, uint32_t context, uint32_t chunk) {
  MemoryPlan plan{};
  plan.budget_bytes = request.budget_bytes ? request.budget_bytes : machine.available_bytes;
  plan.available_bytes = machine.available_bytes;
  plan.context = context;
  plan.chunk = std::min(chunk, context);
  plan.threads = request.threads;
  plan.working_set_slots = spec.experts_per_token;
  plan.process_bytes = machine.process_bytes;
  plan.trunk_bytes = request.trunk_bytes;
  plan.sessions = request.sessions;
  plan.state_bytes = request.sessions * state_bytes(spec, {context, plan.chunk, request.kv_dtype});
  plan.snapshots = snapshot_count(spec, request, plan.budget_bytes, context, plan.chunk);
  plan.snapshots_bytes = uint64_t{plan.snapshots} * request.sessions *
                         snapshot_bytes(spec, {context, plan.chunk, request.kv_dtype});
  plan.scratch_bytes =
      Workspace::bytes(spec, std::max(plan.chunk, request.sessions), request.threads) +
      kSamplerBytesPerVocabRow * spec.vocab_rows * request.sessions;
  plan.io_bytes = kIoBytes + kBookBytesPerExpert * spec.experts * uint64_t{spec.layer_count()};
  plan.reserve_bytes = kReserveBytes + request.extra_bytes;
  return plan;
}

uint32_t slots_that_fit(const MemoryPlan& plan, uint64_t stride_bytes, uint32_t all_slots) {
  const uint64_t used = plan.total_bytes();
  if (used >= plan.budget_bytes) return 0;
  const uint64_t fit = std::min<uint64_t>((plan.budget_bytes - used) / stride_bytes, all_slots);
  return static_cast<uint32_t>(
      fit == all_slots ? fit : fit / plan.working_set_slots * plan.working_set_slots);
}

Error does_not_fit(const PlanRequest& request, const MemoryPlan& plan, uint64_t slots_bytes) {
  const uint64_t needed = plan.total_bytes() + slots_bytes;
  const bool automatic = request.budget_bytes == 0;
  // A larger --memory would only be a promise that the machine cannot keep.
  const std::string remedy = automatic
                                 ? "free some memory, raise the limit, or take a smaller --context"
                                 : fmt::format("try --memory {}MiB or a smaller --context",
                                               (needed + kJitterBytes + kMiB - 1) / kMiB);
  return over_budget_error(
      "{} {} is {} bytes too small: program {}, trunk {}, state for {} tokens {}, scratch "
      "for chunks of {} {}, reads {}, reserve {}, and {} for the smallest pool of experts need {} "
      "bytes; {}",
      automatic ? "what --memory auto found," : "--memory", format_bytes(plan.budget_bytes),
      needed - plan.budget_bytes, format_bytes(plan.process_bytes), format_bytes(plan.trunk_bytes),
      plan.context, format_bytes(plan.state_bytes + plan.snapshots_bytes), plan.chunk,
      format_bytes(plan.scratch_bytes), format_bytes(plan.io_bytes),
      format_bytes(plan.reserve_bytes), format_bytes(slots_bytes), needed, remedy);
}

std::vector<uint32_t> choices(uint32_t asked, std::span<const uint32_t> automatic, uint32_t most) {
  if (asked != 0) return {std::min(asked, most)};
  std::vector<uint32_t> list;
  for (uint32_t value : automatic)
    if (list.empty() || value < most) list.push_back(std::min(value, most));
  return list;
}

Status validate_request(const ArchitectureSpec& spec, const PlanRequest& request) {
  if (request.context > spec.max_context)
    return invalid_argument_error("--context {} is more than the {} tokens this model was made for",
                                  request.context, spec.max_context);
  if (request.slots != 0 && request.slots < spec.experts_per_token)
    return invalid_argument_error(
        "--slots {} is less than one working set: a token uses {} experts of a layer at once",
        request.slots, spec.experts_per_token);
  return {};
}

}  // namespace

uint32_t sessions_that_fit(const MemoryPlan& plan_of_one) {
  constexpr uint64_t kMost = 8;
  const uint64_t each =
      std::max<uint64_t>(plan_of_one.state_bytes + plan_of_one.snapshots_bytes, 1);
  return static_cast<uint32_t>(std::clamp<uint64_t>(plan_of_one.budget_bytes / 8 / each, 1, kMost));
}

Result<MemoryPlan> plan_memory(const ArchitectureSpec& spec, const PlanRequest& request,
                               const MachineMemory& machine) {
  RETURN_IF_ERROR(validate_request(spec, request));
  const uint32_t moe_layers = spec.moe_layer_count(), all_slots = moe_layers * spec.experts;
  const uint32_t wanted =
      request.slots ? std::min(request.slots, all_slots) : spec.experts_per_token;
  // A context or chunk that we choose ourselves should leave one token's experts of every layer.
  const uint32_t comfortable =
      std::max(wanted, std::min(all_slots, moe_layers * spec.experts_per_token));

  MemoryPlan smallest{};
  for (const bool with_ease : {true, false}) {
    const uint32_t enough = with_ease ? comfortable : wanted;
    for (uint32_t context : choices(request.context, kAutoContexts, spec.max_context)) {
      for (uint32_t chunk : choices(request.chunk, kAutoChunks, context)) {
        PlanRequest bare = request;  // snapshots that we choose ourselves go before slots do
        if (!with_ease && bare.snapshots == kAutoSnapshots) bare.snapshots = 0;
        MemoryPlan plan = fixed_costs(spec, bare, machine, context, chunk);
        const uint32_t fit = slots_that_fit(plan, request.expert_stride_bytes, all_slots);
        smallest = plan;
        if (fit < enough) continue;
        if (request.chunk == 0 && chunk > kModestChunk &&
            plan.scratch_bytes > plan.budget_bytes / 16)
          continue;
        plan.slots = request.slots ? wanted : fit;
        plan.slots_bytes = plan.slots * request.expert_stride_bytes;
        return plan;
      }
    }
  }
  return does_not_fit(request, smallest, wanted * request.expert_stride_bytes);
}

}  // namespace wader
