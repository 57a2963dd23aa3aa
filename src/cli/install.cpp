#include "install/install.h"

#include <fmt/format.h>

#include <cmath>
#include <initializer_list>
#include <optional>

#include "base/error.h"
#include "base/json.h"
#include "base/units.h"
#include "cli/commands.h"
#include "cli/console.h"
#include "cli/in_place.h"
#include "cli/models.h"
#include "cli/options.h"
#include "cli/report.h"
#include "cli/text.h"

namespace wader {
namespace {

namespace fs = std::filesystem;

// Nothing for auto.
Result<std::optional<DType>> format_flag(const Args& args, std::string_view flag,
                                         std::initializer_list<DType> choices) {
  const std::string text = args.text(flag, "auto");
  if (text == "auto") return std::optional<DType>();
  std::string names = "auto";
  for (const DType choice : choices) {
    if (text == dtype_name(choice)) return std::optional(choice);
    names += fmt::format(", {}", dtype_name(choice));
  }
  return invalid_argument_error("{} must be one of {}, not '{}'", flag, names, text);
}

Result<InstallOptions> install_options(const Args& args) {
  InstallOptions options;
  options.source = args.operand(0);
  ASSIGN_OR_RETURN(
      options.experts,
      format_flag(args, "--experts", {DType::mxfp4, DType::affine4, DType::affine8, DType::bf16}));
  ASSIGN_OR_RETURN(options.trunk, format_flag(args, "--trunk", {DType::affine8, DType::bf16}));
  ASSIGN_OR_RETURN(const uint64_t layers, args.whole("--layers", 1, 100'000, 0));
  options.layers = static_cast<uint32_t>(layers);
  ASSIGN_OR_RETURN(const uint64_t threads, args.whole("--threads", 1, 1024, 0));
  options.threads = static_cast<uint32_t>(threads);
  if (args.has("--output") && args.text("--output").empty()) {
    return invalid_argument_error("--output must name a directory");
  }
  std::error_code error;
  if (!fs::exists(options.source, error)) {
    return not_found_error(
        "no checkpoint at {}\nthis version installs from local directories; it does not download",
        options.source.string());
  }
  if (args.has("--revision")) {
    return invalid_argument_error("--revision names a state of a hub source; {} is a local one",
                                  options.source.string());
  }
  if (args.has("--output")) {
    options.destination = args.text("--output");
  } else {
    ASSIGN_OR_RETURN(const fs::path directory, models_directory());
    options.destination = directory / fmt::format("{}.wader", model_name_from(options.source));
  }
  return options;
}

Json part_json(const StoredPart& part) {
  Json json = {{"source", part.source}, {"stored", part.stored}, {"snr_db", nullptr}};
  if (std::isfinite(part.snr_db)) json["snr_db"] = part.snr_db;
  return json;
}

// How the user calls the model from now on: its name when it is in the models directory.
std::string model_argument(const fs::path& container) {
  const auto directory = models_directory();
  std::error_code error;
  if (directory.ok() && fs::equivalent(container.parent_path(), *directory, error)) {
    return container.stem().string();
  }
  const std::string path = container.string();
  return path.find('/') == path.npos ? fmt::format("./{}", path) : path;
}

// "affine4: 21.6 dB", "mxfp4: copied bit for bit", "bf16: without loss" (made of mxfp4).
std::string part_line(const StoredPart& part) {
  if (std::isfinite(part.snr_db)) return fmt::format("{}: {:.1f} dB", part.stored, part.snr_db);
  return fmt::format("{}: {}", part.stored,
                     part.source == part.stored ? "copied bit for bit" : "without loss");
}

void print_report(const InstallReport& report) {
  print(terminal_safe(fmt::format("{} {}: {} read, {} written\n",
                                  report.resumed ? "completed" : "installed",
                                  report.container.string(), format_bytes(report.source_bytes_read),
                                  format_bytes(report.container_bytes))));
  print(fmt::format("experts {}, trunk {}\n", part_line(report.experts), part_line(report.trunk)));
  const std::string model = model_argument(report.container);
  // The plan is a courtesy here: a machine that cannot hold the model can still install it.
  if (auto container = Container::open(report.container); container.ok()) {
    if (auto plan = plan_for(*container, EngineOptions()); plan.ok()) {
      print(fmt::format("\n{}", plan_table(*plan, container->manifest())));
    } else {
      print_note(plan.error().message);
    }
  }
  print(terminal_safe(
      fmt::format("\nnext: wader chat {0}\n      wader info {0} --memory 4GiB\n", model)));
}

}  // namespace

Result<int> run_install(const Args& args) {
  ASSIGN_OR_RETURN(const InstallOptions options, install_options(args));
  const bool json = args.has("--json");
  watch_interrupts();
  RETURN_IF_ERROR(check_generation_config(options.source));
  auto report = install(options, make_progress(json ? ProgressStyle::json : ProgressStyle::human));
  show_status("");
  if (!report.ok()) {
    Error error = not_usage(std::move(report).error());
    if (error.code == ErrorCode::cancelled) {
      error.message =
          fmt::format("stopped\n{} is unfinished; the same command continues, wader rm deletes it",
                      options.destination.string());
    }
    return error;
  }
  if (!json) {
    print_report(*report);
    return 0;
  }
  print_json({{"event", "report"},
              {"container", report->container.string()},
              {"source_bytes_read", report->source_bytes_read},
              {"container_bytes", report->container_bytes},
              {"resumed", report->resumed},
              {"experts", part_json(report->experts)},
              {"trunk", part_json(report->trunk)}});
  return 0;
}

}  // namespace wader
