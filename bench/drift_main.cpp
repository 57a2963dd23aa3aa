// wader-drift: a synthetic routing trace with popularity and drifting topics, for `wader simulate`.
#include <CLI/CLI.hpp>
#include <cstdio>
#include <string>

#include "base/error.h"
#include "drift.h"
#include "shapes.h"
#include "synth.h"

namespace {

using namespace wader;

struct Arguments {
  std::string model, output;
  uint32_t layers = 0;
  bench::DriftOptions options;
};

Result<double> run(Arguments& arguments) {
  const auto spec = bench::released_shape(arguments.model);
  if (!spec)
    return invalid_argument_error("--model {} is not one of: {}", arguments.model,
                                  bench::released_shape_names());
  const uint32_t layers = arguments.layers ? arguments.layers : spec->layer_count();
  const ExpertLayout layout = expert_layout(*spec, bench::usual_expert_format(*spec));
  arguments.options.shape = {layers, spec->experts, spec->experts_per_token, layout.stride_bytes,
                             0};  // of no model
  const RoutingTrace trace = bench::drifting_trace(arguments.options);
  ASSIGN_OR_RETURN(auto writer, RoutingTraceWriter::create(arguments.output, trace.shape));
  const size_t ids_of_a_row = size_t{trace.shape.layers} * trace.shape.experts_per_token;
  for (const TracePass& pass : trace.passes)
    RETURN_IF_ERROR(
        writer.append(pass.rows, pass.begins_prompt,
                      std::span(trace.ids).subspan(pass.first_id, pass.rows * ids_of_a_row)));
  RETURN_IF_ERROR(writer.finish());
  return bench::adjacent_share(trace);
}

}  // namespace

int main(int argc, char** argv) {
  Arguments arguments;
  bench::DriftOptions& options = arguments.options;
  CLI::App app("Writes a synthetic routing trace: popularity that stays and topics that drift.",
               "wader-drift");
  app.add_option("--model", arguments.model, "Shape: " + bench::released_shape_names())->required();
  app.add_option("-o,--output", arguments.output, "The trace")->required();
  app.add_option("--layers", arguments.layers, "Only the first N layers; 0 = all")
      ->check(CLI::Range(0u, 1024u));
  app.add_option("--popularity", options.popularity, "Standard deviation of what stays");
  app.add_option("--topic", options.topic, "Standard deviation of what drifts");
  app.add_option("--topic-tokens", options.topic_tokens, "Tokens of a topic's memory")
      ->check(CLI::PositiveNumber);
  app.add_option("--prompts", options.prompts, "Prompts, each a new topic");
  app.add_option("--prompt-tokens", options.prompt_tokens, "Tokens of a prompt");
  app.add_option("--count", options.decode_tokens, "Tokens decoded after each");
  app.add_option("--chunk", options.chunk, "Rows of a prompt's pass")
      ->check(CLI::Range(1u, 65536u));
  app.add_option("--seed", options.seed, "Seed");
  try {
    app.parse(argc, argv);
  } catch (const CLI::ParseError& error) {
    return app.exit(error) == 0 ? 0 : 2;
  }
  const auto share = run(arguments);
  if (!share.ok()) {
    std::fprintf(stderr, "wader-drift: %s\n", share.error().message.c_str());
    return 1;
  }
  std::printf("%s: a decoded token shares %.1f %% of its experts with the one before\n",
              arguments.output.c_str(), 100 * *share);
  return 0;
}
