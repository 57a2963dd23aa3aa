// wader-synth: a container with the true dimensions of a released model and random weights.
#include <unistd.h>

#include <CLI/CLI.hpp>
#include <cstdio>
#include <string>

#include "base/error.h"
#include "base/units.h"
#include "release.h"
#include "shapes.h"
#include "synth.h"

namespace {

using namespace wader;

struct Arguments {
  std::string model, experts, trunk = "affine8", release;
  uint32_t layers = 0;
  bench::SynthOptions options;
};

Result<uint64_t> run(Arguments& arguments) {
  bench::SynthOptions& options = arguments.options;
  const auto shape = bench::released_shape(arguments.model);
  if (!shape)
    return invalid_argument_error("--model {} is not one of: {}", arguments.model,
                                  bench::released_shape_names());
  options.spec = *shape;
  if (arguments.layers > options.spec.layer_count())
    return invalid_argument_error("--layers {}: the model has {}", arguments.layers,
                                  options.spec.layer_count());
  if (arguments.layers > 0) options.spec.layers.resize(arguments.layers, LayerKind::full_attention);
  options.experts = bench::usual_expert_format(options.spec);
  if (!arguments.experts.empty()) {
    const auto format = format_from_name(arguments.experts);
    if (!format) return invalid_argument_error("--experts {} is no format", arguments.experts);
    options.experts = {*format, *format};
  }
  const auto trunk = format_from_name(arguments.trunk);
  if (!trunk || (!is_affine(trunk->dtype) && trunk->dtype != DType::bf16))
    return invalid_argument_error("--trunk {} is not affine4, affine8 or bf16", arguments.trunk);
  options.trunk = *trunk;
  const bool is_terminal = ::isatty(STDERR_FILENO) == 1;
  uint64_t shown_bytes = 0;
  return bench::write_synthetic_container(options, [&](const Progress& progress) {
    if (is_terminal && progress.done_bytes - shown_bytes >= 64 * kMiB) {
      shown_bytes = progress.done_bytes;
      std::fprintf(stderr, "\r%s of %s ", format_bytes(shown_bytes).c_str(),
                   format_bytes(progress.total_bytes).c_str());
    }
    return true;
  });
}

Result<uint64_t> release(const Arguments& arguments) {
  ASSIGN_OR_RETURN(const Container container, Container::open(arguments.options.destination));
  return bench::write_release(container, arguments.release);
}

}  // namespace

int main(int argc, char** argv) {
  Arguments arguments;
  CLI::App app(
      "Writes a container with the true dimensions of a released model and random "
      "weights, to measure speed and memory with.",
      "wader-synth");
  app.add_option("--model", arguments.model, "Shape: " + wader::bench::released_shape_names())
      ->required();
  app.add_option("-o,--output", arguments.options.destination, "The container's directory")
      ->required();
  app.add_option("--layers", arguments.layers, "Only the first N layers; 0 = all");
  app.add_option("--skew", arguments.options.skew,
                 "Spread of the experts' popularity, 0 = uniform (docs/results.md has values that "
                 "resemble real models)");
  app.add_option(
      "--experts", arguments.experts,
      "Format of the experts: mxfp4, affine4, affine8, bf16; default: the model's usual");
  app.add_option("--trunk", arguments.trunk, "Format of the trunk: affine8, affine4 or bf16");
  app.add_option("--release", arguments.release,
                 "Also write it as a released GPT-OSS checkpoint into this directory; needs "
                 "--trunk bf16");
  app.add_option("--seed", arguments.options.seed, "Seed of the weights");
  try {
    app.parse(argc, argv);
  } catch (const CLI::ParseError& error) {
    return app.exit(error) == 0 ? 0 : 2;
  }
  const auto bytes = run(arguments);
  if (::isatty(STDERR_FILENO) == 1) std::fprintf(stderr, "\n");
  if (!bytes.ok()) {
    std::fprintf(stderr, "wader-synth: %s\n", bytes.error().message.c_str());
    return 1;
  }
  std::printf("%s  %s\n", arguments.options.destination.c_str(),
              wader::format_bytes(*bytes).c_str());
  if (arguments.release.empty()) return 0;
  const auto released = release(arguments);
  if (!released.ok()) {
    std::fprintf(stderr, "wader-synth: %s\n", released.error().message.c_str());
    return 1;
  }
  std::printf("%s  %s\n", arguments.release.c_str(), wader::format_bytes(*released).c_str());
  return 0;
}
