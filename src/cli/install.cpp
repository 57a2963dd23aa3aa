#include "install/install.h"

#include <fmt/format.h>

#include <cmath>

#include "base/error.h"
#include "base/units.h"
#include "cli/commands.h"
#include "cli/console.h"
#include "cli/models.h"
#include "cli/options.h"
#include "cli/report.h"
#include "cli/text.h"

namespace wader {
namespace {

namespace fs = std::filesystem;

Status check_experts(const Args& args) {
  const std::string format = args.text("--experts", "auto");
  if (format == "auto" || format == "mxfp4") return {};
  if (format == "affine4" || format == "affine8" || format == "bf16") {
    return invalid_argument_error(
        "--experts {} comes with other families; GPT-OSS experts are kept in mxfp4, byte for byte",
        format);
  }
  return invalid_argument_error("--experts must be auto or mxfp4, not '{}'", format);
}

Result<DType> trunk_format(const Args& args) {
  const std::string format = args.text("--trunk", "auto");
  if (format == "auto" || format == "affine8") return DType::affine8;
  if (format == "bf16") return DType::bf16;
  return invalid_argument_error("--trunk must be auto, affine8 or bf16, not '{}'", format);
}

Result<InstallOptions> install_options(const Args& args) {
  InstallOptions options;
  options.source = args.operand(0);
  RETURN_IF_ERROR(check_experts(args));
  ASSIGN_OR_RETURN(options.trunk, trunk_format(args));
  ASSIGN_OR_RETURN(const uint64_t layers, args.whole("--layers", 1, 100'000, 0));
  options.layers = static_cast<uint32_t>(layers);
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

void print_report(const InstallReport& report) {
  print(terminal_safe(fmt::format("{} {}: {} read, {} written",
                                  report.resumed ? "completed" : "installed",
                                  report.container.string(), format_bytes(report.source_bytes_read),
                                  format_bytes(report.container_bytes))));
  if (std::isfinite(report.trunk_snr_db))
    print(fmt::format(", trunk at {:.1f} dB", report.trunk_snr_db));
  print("\n");
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
  Json facts = {{"event", "report"},
                {"container", report->container.string()},
                {"source_bytes_read", report->source_bytes_read},
                {"container_bytes", report->container_bytes},
                {"resumed", report->resumed},
                {"trunk_snr_db", nullptr}};
  if (std::isfinite(report->trunk_snr_db)) facts["trunk_snr_db"] = report->trunk_snr_db;
  print_json(facts);
  return 0;
}

}  // namespace wader
