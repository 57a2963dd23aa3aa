// From parsed flags to the library's options. Errors are invalid_argument: wrong usage.
#pragma once

#include <cstdint>
#include <memory>
#include <string>
#include <vector>

#include "base/result.h"
#include "chat/chat.h"
#include "cli/args.h"
#include "container/container.h"
#include "engine/engine.h"
#include "sampler/sampler.h"

namespace wader {

Result<EngineOptions> engine_options(const Args& args);

// The model's defaults with the flags over them. Without --seed, a random one (see seed_of in the
// statistics).
Result<SamplingParams> sampling_params(const Args& args, const SamplingParams& defaults);
// The same checks without a model, so that a wrong flag shows before anything is loaded.
Status check_sampling_flags(const Args& args);

Result<uint32_t> max_tokens(const Args& args);  // 0: no limit
Result<std::optional<ReasoningEffort>> reasoning_effort(const Args& args);
// --date, else SOURCE_DATE_EPOCH (UTC), else today (local time), as YYYY-MM-DD.
Result<std::string> conversation_date(const Args& args);

// Operand 0 resolved and opened; of a checkpoint, what in_place_container() keeps of it.
// `invalid_argument` from file contents becomes corrupt: it is not the user's usage.
Result<Container> open_container(const Args& args);
Result<std::unique_ptr<Engine>> open_engine(const Container& container,
                                            const EngineOptions& options);
// One line on standard error when the plan takes more than the machine has left.
void warn_of_overcommit(const MemoryPlan& plan);
Error not_usage(Error error);

// "1,2,3", "@FILE" or "-" → ids of a vocabulary of `limit` rows.
Result<std::vector<int32_t>> token_ids_flag(const Args& args, std::string_view flag,
                                            uint32_t limit);

// Standard input to its end, refused beyond max_bytes.
Result<std::string> read_input(uint64_t max_bytes);
constexpr uint64_t kMaxInputBytes = 256u << 20;

}  // namespace wader
