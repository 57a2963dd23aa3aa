#include "cli/in_place.h"

#include <fmt/format.h>

#include "base/error.h"
#include "base/hash.h"
#include "base/units.h"
#include "cli/console.h"
#include "cli/models.h"
#include "cli/options.h"
#include "cli/text.h"
#include "container/manifest.h"
#include "install/install.h"
#include "io/file.h"
#include "sampler/sampler.h"

namespace wader {
namespace {

namespace fs = std::filesystem;

bool is_there(const fs::path& path) {
  std::error_code ignored;
  return fs::exists(path, ignored);
}

// So that "-in-place-" and 16 digits more are still a model's name.
constexpr size_t kMostNameBytes = 96;

// ORG--NAME for a snapshot in the hub's local cache, …/models--ORG--NAME/snapshots/COMMIT, else the
// directory's own name.
std::string name_of(const fs::path& checkpoint) {
  constexpr std::string_view kPrefix = "models--";
  const fs::path repository = checkpoint.parent_path().parent_path();
  const bool hub = checkpoint.parent_path().filename() == "snapshots" &&
                   repository.filename().string().starts_with(kPrefix);
  if (!hub) return model_name_from(checkpoint).substr(0, kMostNameBytes);
  return model_name_from(repository).substr(kPrefix.size(), kMostNameBytes);
}

}  // namespace

bool is_checkpoint(const fs::path& path) {
  if (is_there(path / kManifestFile) || is_there(path / kJournalFile) ||
      !is_there(path / "config.json"))
    return false;
  std::error_code error;
  for (fs::directory_iterator it(path, error), end; !error && it != end; it.increment(error))
    if (it->path().extension() == ".safetensors") return true;
  return false;
}

Result<fs::path> in_place_path(const fs::path& checkpoint) {
  ASSIGN_OR_RETURN(const fs::path models, models_directory());
  std::error_code error;
  const fs::path whole = fs::canonical(checkpoint, error);
  if (error) return errno_error(error.value(), checkpoint.string());
  return models / fmt::format("{}-in-place-{}.wader", name_of(whole),
                              digest_to_hex(xxh3_64(std::string_view(whole.native()))));
}

Result<fs::path> in_place_container(const fs::path& checkpoint) {
  ASSIGN_OR_RETURN(const fs::path path, in_place_path(checkpoint));
  if (is_there(path / kManifestFile) && !is_there(path / kJournalFile)) return path;
  RETURN_IF_ERROR(check_generation_config(checkpoint));
  InstallOptions options;
  options.source = checkpoint;
  options.destination = path;
  options.in_place = true;
  print_note(fmt::format(
      "{} is used in place: reading it once for checksums and a small copy of its trunk, in {}",
      checkpoint.string(), path.string()));
  watch_interrupts();
  const auto report = install(options, make_progress(ProgressStyle::human));
  show_status("");
  if (!report.ok()) {
    Error failure = not_usage(report.error());
    if (failure.code == ErrorCode::cancelled)
      failure.message = "stopped\nthe same command continues where this one stopped";
    return failure;
  }
  print_note(fmt::format("{} read, {} written", format_bytes(report->source_bytes_read),
                         format_bytes(report->container_bytes)));
  return path;
}

Status check_generation_config(const fs::path& source) {
  const fs::path file = source / "generation_config.json";
  std::error_code error;
  if (!fs::is_regular_file(file, error)) return {};
  const auto check = [&]() -> Status {
    ASSIGN_OR_RETURN(const std::string text, read_text_file(file, kMaxSmallFileBytes));
    ASSIGN_OR_RETURN(const Json json, parse_json(text, "generation_config.json"));
    ASSIGN_OR_RETURN([[maybe_unused]] const SamplingParams sampling,
                     sampling_from_generation_config(json));
    ASSIGN_OR_RETURN([[maybe_unused]] const auto eos, eos_from_generation_config(json));
    return {};
  };
  if (Status status = check(); !status.ok()) {
    Error bad = not_usage(std::move(status).error()).within(source.string());
    bad.message += "; mend or remove that file, then install";
    return bad;
  }
  return {};
}

}  // namespace wader
