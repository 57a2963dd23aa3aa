#include <fmt/format.h>

#include <algorithm>
#include <chrono>
#include <limits>

#include "base/error.h"
#include "cli/commands.h"
#include "cli/console.h"
#include "cli/options.h"
#include "cli/report.h"
#include "cli/text.h"

namespace wader {
namespace {

// --count, or --max-tokens, which the other commands call it.
Result<uint32_t> token_count(const Args& args) {
  const bool counted = args.has("--count");
  if (counted && args.has("--max-tokens")) {
    return invalid_argument_error("--count and --max-tokens mean the same: give one");
  }
  if (!counted && !args.has("--max-tokens")) {
    return invalid_argument_error("wader generate needs --count N");
  }
  ASSIGN_OR_RETURN(const uint64_t count, args.whole(counted ? "--count" : "--max-tokens", 1,
                                                    std::numeric_limits<uint32_t>::max(), 0));
  return static_cast<uint32_t>(count);
}

struct Request {
  EngineOptions engine;
  GenerateOptions generate;
  std::vector<int32_t> prompt;
};

// Everything that can be wrong with the usage shows before the model is loaded.
Result<Request> read_request(const Args& args, const ArchitectureSpec& spec) {
  Request request;
  ASSIGN_OR_RETURN(request.engine, engine_options(args));
  RETURN_IF_ERROR(check_sampling_flags(args));
  ASSIGN_OR_RETURN(request.generate.max_tokens, token_count(args));
  if (!args.has("--tokens")) return invalid_argument_error("wader generate needs --tokens IDS");
  ASSIGN_OR_RETURN(request.prompt, token_ids_flag(args, "--tokens", spec.vocab_rows));
  if (args.has("--stop")) {
    ASSIGN_OR_RETURN(request.generate.stop_ids, token_ids_flag(args, "--stop", spec.vocab_rows));
  }
  if (request.prompt.size() > spec.max_context) {
    return over_budget_error("{} tokens are more than the model's context of {}",
                             request.prompt.size(), spec.max_context);
  }
  if (request.engine.context == 0) {  // exactly what the request needs
    request.engine.context = static_cast<uint32_t>(
        std::min<uint64_t>(spec.max_context, request.prompt.size() + request.generate.max_tokens));
  }
  return request;
}

}  // namespace

Result<int> run_generate(const Args& args) {
  ASSIGN_OR_RETURN(const Container container, open_container(args));
  ASSIGN_OR_RETURN(Request request, read_request(args, container.spec()));
  watch_interrupts();
  ASSIGN_OR_RETURN(const auto engine, open_engine(container, request.engine));
  ASSIGN_OR_RETURN(request.generate.sampling, sampling_params(args, engine->default_sampling()));
  ASSIGN_OR_RETURN(const auto session, engine->new_session());

  RunFigures figures;
  const auto start = std::chrono::steady_clock::now();
  const auto seconds = [&] {
    return std::chrono::duration<double>(std::chrono::steady_clock::now() - start).count();
  };
  request.generate.cancel = &interrupted();
  request.generate.on_token = [&](TokenId) {
    if (figures.first_token_seconds == 0) figures.first_token_seconds = seconds();
    return true;
  };
  ASSIGN_OR_RETURN(const Generation generation,
                   session->generate(request.prompt, request.generate));
  figures.seconds = seconds();
  figures.engine = engine->stats();
  figures.prompt_tokens = static_cast<uint32_t>(request.prompt.size());
  figures.reused_tokens = generation.reused_tokens;
  figures.new_tokens = static_cast<uint32_t>(generation.ids.size());
  figures.seed = request.generate.sampling.seed;

  if (args.has("--json")) {
    print_json({{"ids", generation.ids},
                {"finish_reason", finish_name(generation.reason)},
                {"stats", figures_json(figures, engine->plan().budget_bytes)}});
  } else {
    print(join_ids(generation.ids, " ") + "\n");
  }
  if (args.has("--stats")) print_note(figures_line(figures, engine->plan().budget_bytes));
  if (generation.reason == FinishReason::cancelled) return cancelled_error("stopped");
  if (generation.reason == FinishReason::context_full) {
    print_note(fmt::format("the context of {} tokens is full after {} new ones",
                           engine->plan().context, generation.ids.size()));
  }
  return 0;
}

}  // namespace wader
