#include <fmt/format.h>

#include <algorithm>

#include "base/error.h"
#include "cli/commands.h"
#include "cli/console.h"
#include "cli/options.h"
#include "cli/text.h"
#include "io/file.h"
#include "range/range_file.h"
#include "range/range_probe.h"

namespace wader {
namespace {

std::string percent(std::optional<double> share) {
  return share ? fmt::format("{:.0f} %", *share * 100) : "-";
}

std::string table_line(std::string_view name, uint64_t tokens, uint64_t held_out,
                       const RangeTally& sum) {
  return fmt::format("{}{:>8}{:>10}{:>10}{:>8}{:>9}\n", pad_to(name, 16), tokens, held_out,
                     sum.credited, sum.tested, percent(sum.repeat_rate()));
}

std::string summary(const RangeMap& map) {
  std::string out = fmt::format("{}{:>8}{:>10}{:>10}{:>8}{:>9}\n", pad_to("topic", 16), "tokens",
                                "held out", "credited", "tested", "repeats");
  uint64_t tokens = 0, held_out = 0;
  for (uint32_t t = 0; t < map.topics.size(); ++t) {
    out += table_line(map.topics[t], map.tokens[t], map.held_out_tokens[t], tally(map, t));
    tokens += map.tokens[t];
    held_out += map.held_out_tokens[t];
  }
  out += table_line("all", tokens, held_out, tally(map));
  const auto rare = std::count_if(map.experts.begin(), map.experts.end(), [](const auto& expert) {
    return expert.activations <= kActivationsOver;
  });
  out += fmt::format(
      "\n{} of {} experts are credited with a topic; {} were used {} times or less and are not "
      "judged.\nBy chance: {:.2f} credited with shuffled topics (mean of {}), credits repeat {}.\n"
      "Three principal components explain {:.0f} % of what sets experts apart ({:.0f} + {:.0f} + "
      "{:.0f}).\n",
      tally(map).credited, map.experts.size(), rare, kActivationsOver, map.by_chance.credited,
      kRangeShuffles, percent(map.by_chance.repeat_rate),
      100 * (map.variance_explained[0] + map.variance_explained[1] + map.variance_explained[2]),
      100 * map.variance_explained[0], 100 * map.variance_explained[1],
      100 * map.variance_explained[2]);
  return out;
}

// A map of parts of texts is one, but whoever reads it should know.
void note_cut(std::span<const ProbePrompt> prompts, uint32_t context) {
  const auto cut = std::count_if(prompts.begin(), prompts.end(),
                                 [](const ProbePrompt& prompt) { return prompt.cut; });
  if (cut > 0)
    print_note(fmt::format("{} of {} probes were cut to the context of {} tokens", cut,
                           prompts.size(), context));
}

}  // namespace

Result<int> run_range(const Args& args) {
  ASSIGN_OR_RETURN(EngineOptions options, engine_options(args));
  ASSIGN_OR_RETURN(const Container container, open_container(args));
  const std::filesystem::path file = args.has("--output")
                                         ? std::filesystem::path(args.text("--output"))
                                         : container.directory() / kRangeFile;
  if (Status writable = check_range_writable(file); !writable.ok()) {
    Error error = std::move(writable).error();
    error.message += "\n-o FILE writes the map elsewhere";
    return error;
  }
  RoutingCounts counts(container.spec());
  options.extra_bytes += range_memory_bytes(container.spec());
  options.on_routing = [&](uint32_t layer, std::span<const uint32_t> ids) {
    counts.add(layer, ids);
  };
  watch_interrupts();
  ASSIGN_OR_RETURN(const auto engine, open_engine(container, options));
  if (engine->tokenizer() == nullptr)
    return unsupported_error("{} has no tokenizer: texts cannot be put to it",
                             container.directory().string());
  const uint32_t context = engine->plan().context;
  ASSIGN_OR_RETURN(const auto prompts, probe_prompts(*engine->tokenizer(), context));
  note_cut(prompts, context);
  ASSIGN_OR_RETURN(const auto session, engine->new_session());
  RETURN_IF_ERROR(run_probes(*session, prompts, counts, make_progress(ProgressStyle::human)));
  const RangeMap map = finish_range(counts, container.identity());
  RETURN_IF_ERROR(write_file_atomically(file, range_to_text(map)));
  if (args.has("--json")) {
    Json facts = range_facts(map);
    facts["file"] = file.string();
    print_json(facts);
  } else {
    print(terminal_safe(summary(map) + fmt::format("wrote {}\n", file.string())));
  }
  return 0;
}

}  // namespace wader
