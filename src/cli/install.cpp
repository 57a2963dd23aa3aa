#include "install/install.h"

#include <fmt/format.h>

#include <cmath>
#include <initializer_list>
#include <optional>

#include "base/error.h"
#include "base/json.h"
#include "base/units.h"
#include "checkpoint/source_tree.h"
#include "cli/commands.h"
#include "cli/console.h"
#include "cli/generation_config.h"
#include "cli/options.h"
#include "cli/report.h"
#include "cli/text.h"
#include "container/journal.h"
#include "container/manifest.h"
#include "install/hub_source.h"
#include "install/hub_tree.h"
#include "install/models.h"
#include "install/repair.h"
#include "io/file.h"

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
  if (args.has("--dry-run") && args.has("--repair"))
    return invalid_argument_error(
        "--dry-run says what an install would do, and --repair mends one that is done: give one of "
        "them");
  std::error_code error;
  const bool local = fs::exists(options.source, error);
  if (!local && !is_model_of_hub(args.operand(0))) {
    return not_found_error(
        "no checkpoint at {}\na model of the hub is named ORG/NAME, as in openai/gpt-oss-20b",
        options.source.string());
  }
  if (local && args.has("--revision")) {
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

void print_weight_files(const InstallReport& report) {
  std::string text = fmt::format("{} fetched\n", format_bytes(report.fetched_bytes));
  for (const InstallReport::WeightFile& file : report.weight_files)
    text += fmt::format("  {}: {}\n", file.name,
                        file.is_proven ? "SHA-256 verified"
                                       : "covered by the container's digests only (fetched out of "
                                         "order, or in several runs)");
  print(terminal_safe(text));
}

void print_report(const InstallReport& report, bool from_hub) {
  print(terminal_safe(fmt::format("{} {}: {} read, {} written\n",
                                  report.resumed ? "completed" : "installed",
                                  report.container.string(), format_bytes(report.source_bytes_read),
                                  format_bytes(report.container_bytes))));
  print(fmt::format("experts {}, trunk {}\n", part_line(report.experts), part_line(report.trunk)));
  if (from_hub) print_weight_files(report);
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

// While the hub is asked, before there is any progress to show.
bool may_ask_on(std::string_view note) {
  show_waiting(note);
  return !interrupted().load();
}

// Finds where a model of the hub comes from, and says so.
Status open_source(const Args& args, const std::string& revision, InstallOptions& options) {
  std::error_code error;
  if (fs::exists(options.source, error))
    return check_generation_config(DirectoryTree(
        fs::is_directory(options.source, error) ? options.source : options.source.parent_path()));
  ASSIGN_OR_RETURN(const HubSettings settings, hub_settings_from_environment());
  ASSIGN_OR_RETURN(HubSource source,
                   find_hub_source(settings, args.operand(0), revision, hub_cache(), may_ask_on));
  show_status("");
  if (!source.note.empty()) print_note(source.note);
  if (source.session == nullptr) {
    print_note(fmt::format("taking {} from the hub's local cache", source.snapshot.string()));
    options.source = source.snapshot;
    return check_generation_config(DirectoryTree(options.source));
  }
  options.hub = source.session;
  return check_generation_config(HubTree(options.hub, options.destination));
}

Json preview_json(const InstallPreview& preview, const fs::path& destination) {
  Json json = {{"event", "plan"},
               {"source", preview.source},
               {"revision", preview.revision},
               {"destination", destination.string()},
               {"source_bytes", preview.source_bytes},
               {"fetch_bytes", preview.fetch_bytes},
               {"read_bytes", preview.read_bytes},
               {"write_bytes", preview.write_bytes},
               {"peak_bytes", preview.peak_bytes},
               {"held_bytes", preview.held_bytes},
               {"free_bytes", preview.free_bytes},
               {"experts", preview.experts},
               {"trunk", preview.trunk}};
  if (preview.weight_files > 0) {
    json["weight_files"] = preview.weight_files;
    json["sha256_verifiable_files"] = preview.provable_files;
  }
  if (preview.bytes_per_second > 0) {
    json["bytes_per_second"] = std::round(preview.bytes_per_second);
    json["seconds"] = static_cast<double>(preview.fetch_bytes) / preview.bytes_per_second;
  }
  return json;
}

void print_preview(const InstallPreview& p, const fs::path& destination) {
  const uint64_t missing = p.peak_bytes > p.held_bytes ? p.peak_bytes - p.held_bytes : 0;
  std::string text = fmt::format("{} at {}\n", p.source, p.revision);
  if (p.fetch_bytes > 0)
    text += fmt::format("fetched    {} of {} in its weight files\n", format_bytes(p.fetch_bytes),
                        format_bytes(p.source_bytes));
  else
    text += fmt::format("read       {} of {} in its weight files\n", format_bytes(p.read_bytes),
                        format_bytes(p.source_bytes));
  text += fmt::format("written    {} to {}: experts {}, trunk {}\n", format_bytes(p.write_bytes),
                      destination.string(), p.experts, p.trunk);
  text += fmt::format("disk       {} at the peak, {} free{}\n", format_bytes(missing),
                      format_bytes(p.free_bytes), missing > p.free_bytes ? ": NOT ENOUGH" : "");
  if (p.weight_files > 0)
    text += fmt::format("SHA-256    can be verified of {} of its {} weight files\n",
                        p.provable_files, p.weight_files);
  if (p.bytes_per_second > 0)
    text +=
        fmt::format("time       about {} at {}, the rate of one connection just now, an estimate\n",
                    format_seconds(static_cast<double>(p.fetch_bytes) / p.bytes_per_second),
                    format_rate(p.bytes_per_second));
  print(terminal_safe(text));
}

Result<int> run_dry(const InstallOptions& options, bool json) {
  ASSIGN_OR_RETURN(const InstallPreview preview, preview_install(options));
  show_status("");
  if (json)
    print_json(preview_json(preview, options.destination));
  else
    print_preview(preview, options.destination);
  return 0;
}

Result<int> run_repair(const InstallOptions& options, bool json) {
  ASSIGN_OR_RETURN(
      const RepairReport report,
      repair(options, make_progress(json ? ProgressStyle::json : ProgressStyle::human)));
  show_status("");
  if (json) {
    print_json({{"event", "repair"},
                {"container", options.destination.string()},
                {"parts", report.parts},
                {"source_bytes_read", report.source_bytes_read},
                {"fetched_bytes", report.fetched_bytes}});
  } else if (report.parts == 0) {
    print("every checksum matches: nothing to repair\n");
  } else {
    print(terminal_safe(fmt::format(
        "{}: {} part{} repaired, {} of the source read\n", options.destination.string(),
        report.parts, report.parts == 1 ? "" : "s", format_bytes(report.source_bytes_read))));
  }
  return 0;
}

// A repair wants the very commit that the container was made of.
std::string wanted_revision(const Args& args, const InstallOptions& options) {
  if (args.has("--revision")) return args.text("--revision");
  if (!args.has("--repair")) return "main";
  const auto container = Container::open_to_repair(options.destination);
  return container.ok() && is_commit(container->manifest().revision)
             ? container->manifest().revision
             : "main";
}

// What a stopped install left, if it had come to leave anything.
Error stopped_error(const fs::path& destination) {
  std::error_code error;
  if (!fs::exists(destination / kJournalFile, error))
    return cancelled_error("stopped\nnothing was written");
  return cancelled_error(
      "stopped\n{} is unfinished; the same command continues, wader rm deletes it",
      destination.string());
}

Json report_json(const InstallReport& report, bool from_hub) {
  Json json = {{"event", "report"},
               {"container", report.container.string()},
               {"source_bytes_read", report.source_bytes_read},
               {"container_bytes", report.container_bytes},
               {"resumed", report.resumed},
               {"experts", part_json(report.experts)},
               {"trunk", part_json(report.trunk)}};
  if (from_hub) {
    json["fetched_bytes"] = report.fetched_bytes;
    json["weight_files"] = Json::array();
    for (const InstallReport::WeightFile& file : report.weight_files)
      json["weight_files"].push_back({{"name", file.name},
                                      {"bytes", file.bytes},
                                      {"sha256", file.sha256},
                                      {"sha256_verified", file.is_proven}});
  }
  return json;
}

}  // namespace

Result<int> run_install(const Args& args) {
  ASSIGN_OR_RETURN(InstallOptions options, install_options(args));
  const bool json = args.has("--json");
  // Before the hub is asked for anything.
  if (!args.has("--repair")) RETURN_IF_ERROR(check_destination(options.destination));
  watch_interrupts();
  if (Status opened = open_source(args, wanted_revision(args, options), options); !opened.ok()) {
    show_status("");
    if (opened.error().code == ErrorCode::cancelled) return stopped_error(options.destination);
    return not_usage(std::move(opened).error());
  }
  if (args.has("--dry-run")) {
    auto code = run_dry(options, json);
    if (!code.ok()) return not_usage(std::move(code).error());
    return code;
  }
  if (args.has("--repair")) {
    auto code = run_repair(options, json);
    show_status("");
    if (!code.ok()) return not_usage(std::move(code).error());
    return code;
  }
  auto report = install(options, make_progress(json ? ProgressStyle::json : ProgressStyle::human));
  show_status("");
  if (!report.ok()) {
    Error error = not_usage(std::move(report).error());
    return error.code == ErrorCode::cancelled ? stopped_error(options.destination) : error;
  }
  if (json)
    print_json(report_json(*report, options.hub != nullptr));
  else
    print_report(*report, options.hub != nullptr);
  return 0;
}

}  // namespace wader
