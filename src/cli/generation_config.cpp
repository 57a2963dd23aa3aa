#include "cli/generation_config.h"

#include "base/error.h"
#include "base/json.h"
#include "cli/options.h"
#include "container/manifest.h"
#include "sampler/sampler.h"

namespace wader {

Status check_generation_config(const SourceTree& tree) {
  constexpr std::string_view kName = "generation_config.json";
  if (!tree.has(kName)) return {};
  const auto check = [&]() -> Status {
    RETURN_IF_ERROR(tree.check(kName));
    ASSIGN_OR_RETURN(const std::string text, tree.read_text(kName, kMaxSmallFileBytes));
    ASSIGN_OR_RETURN(const Json json, parse_json(text, kName));
    ASSIGN_OR_RETURN([[maybe_unused]] const SamplingParams sampling,
                     sampling_from_generation_config(json));
    ASSIGN_OR_RETURN([[maybe_unused]] const auto eos, eos_from_generation_config(json));
    return {};
  };
  Status status = check();
  if (status.ok() || status.error().code == ErrorCode::io) return status;
  Error bad = not_usage(std::move(status).error()).within(tree.directory().string());
  bad.message += "; mend or remove that file, then install";
  return bad;
}

}  // namespace wader
