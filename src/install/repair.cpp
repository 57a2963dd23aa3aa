#include "install/repair.h"

#include <filesystem>
#include <set>
#include <utility>
#include <vector>

#include "base/error.h"
#include "base/hash.h"
#include "base/json.h"
#include "base/machine.h"
#include "container/container.h"
#include "container/digest_file.h"
#include "container/manifest.h"
#include "install/hub_tree.h"
#include "install/plan.h"
#include "install/repack.h"
#include "io/file.h"

namespace wader {
namespace {

namespace fs = std::filesystem;

Error other_source(std::string_view part) {
  return corrupt_error(
      "{}: the source does not give what was there; it is another one, or the "
      "container was made with other options",
      part);
}

// Layout for layout the same container: only then do parts fit.
Status check_same(const Manifest& planned, const Manifest& there) {
  const auto shape = [](Manifest manifest) {
    manifest.source.clear();
    manifest.revision.clear();
    manifest.report = nullptr;
    for (auto& [name, record] : manifest.files) record.digest.clear();
    return manifest_to_text(manifest);
  };
  if (shape(planned) == shape(there)) return {};
  return invalid_argument_error(
      "the container holds experts as {} and the trunk as {} of {} layers: repair it with the "
      "options "
      "that it was installed with",
      expert_format_text(there.experts.format), trunk_format_text(there), there.spec.layer_count());
}

uint64_t bytes_of(const Manifest& manifest, const DamagedPart& part) {
  switch (part.kind) {
    case DamagedPart::Kind::small_file:
      return manifest.files.at(part.file).bytes;
    case DamagedPart::Kind::trunk_tensor:
      return manifest.trunk[part.index].bytes;
    case DamagedPart::Kind::expert:
      return manifest.experts.stride_bytes;
    default:
      return part.bytes;
  }
}

class Mender {
 public:
  Mender(const Container& container, const InstallPlan& plan, Repacker& repacker)
      : container_(container), plan_(plan), repacker_(repacker) {}

  Status mend(const DamagedPart& part) {
    switch (part.kind) {
      case DamagedPart::Kind::small_file:
        return mend_small_file(part.file);
      case DamagedPart::Kind::trunk_tensor:
        return mend_tensor(part.index);
      case DamagedPart::Kind::trunk_padding:
        return mend_padding(part);
      case DamagedPart::Kind::expert:
        return mend_expert(part.layer, static_cast<uint32_t>(part.index));
      case DamagedPart::Kind::surplus: {
        ASSIGN_OR_RETURN(File file, open_sized(part.file));
        return file.sync();
      }
    }
    UNREACHABLE("no such kind");
  }

 private:
  // The file with the length that it should have.
  Result<File> open_sized(const std::string& name) {
    std::error_code error;
    fs::create_directory(container_.directory() / kExpertsFolder, error);
    ASSIGN_OR_RETURN(File file, File::open(container_.directory() / name, File::Mode::update));
    RETURN_IF_ERROR(file.allocate(container_.manifest().files.at(name).bytes));
    return file;
  }

  Status mend_small_file(const std::string& name) {
    for (const InstallPlan::PlannedFile& small : plan_.small_files) {
      if (small.name != name) continue;
      std::string text = small.text.value_or("");
      if (!small.text) {
        text.resize(small.stamp.bytes);
        RETURN_IF_ERROR(small.file.read_at(0, std::as_writable_bytes(std::span(text))));
      }
      if (digest_to_hex(xxh3_64(text)) != container_.manifest().files.at(name).digest)
        return other_source(name);
      return write_file_atomically(container_.directory() / name, text);
    }
    return other_source(name);
  }

  Status mend_expert(uint32_t layer, uint32_t expert) {
    ASSIGN_OR_RETURN(const auto record, repacker_.make_expert(layer, expert));
    if (record_digest(record) != container_.expert_digest(layer, expert))
      return other_source(fmt::format("layer {}, expert {}", layer, expert));
    ASSIGN_OR_RETURN(File file, open_sized(expert_file_name(layer)));
    RETURN_IF_ERROR(file.write_at(uint64_t{expert} * record.size(), record));
    return file.sync();
  }

  Status mend_tensor(size_t index) {
    const TrunkTensor& t = container_.manifest().trunk[index];
    const RowBytes row = row_bytes(t.format, t.cols()).value();
    const uint64_t scales_at = t.offset_bytes + t.rows() * row.codes;
    const uint64_t biases_at = scales_at + t.rows() * row.scales;
    ASSIGN_OR_RETURN(File file, open_sized(std::string(kTrunkFile)));
    RowLoss loss;
    const auto take = [&](uint64_t first, const ContainerWriter::TrunkRows& rows) -> Status {
      RETURN_IF_ERROR(file.write_at(t.offset_bytes + first * row.codes, rows.codes));
      RETURN_IF_ERROR(file.write_at(scales_at + first * row.scales, rows.scales));
      return file.write_at(biases_at + first * row.biases, rows.biases);
    };
    RETURN_IF_ERROR(repacker_.make_tensor(index, 0, loss, take));
    RETURN_IF_ERROR(file.sync());
    // A tensor can be too large to hold: it was damaged before, so it is written first and checked
    // then.
    Xxh3Stream stream;
    std::vector<std::byte> buffer(kMiB);
    for (uint64_t done = 0; done < t.bytes;) {
      const auto piece = std::span(buffer).first(std::min<uint64_t>(kMiB, t.bytes - done));
      RETURN_IF_ERROR(file.read_at(t.offset_bytes + done, piece));
      stream.update(piece);
      done += piece.size();
    }
    if (stream.digest() == container_.trunk_digest(index)) return {};
    return other_source(fmt::format("trunk tensor {}", t.name));
  }

  Status mend_padding(const DamagedPart& part) {
    ASSIGN_OR_RETURN(File file, open_sized(part.file));
    const std::vector<std::byte> zeros(part.bytes);
    RETURN_IF_ERROR(file.write_at(part.offset, zeros));
    return file.sync();
  }

  const Container& container_;
  const InstallPlan& plan_;
  Repacker& repacker_;
};

}  // namespace

Result<RepairReport> repair(const InstallOptions& options, const ProgressFn& progress) {
  ASSIGN_OR_RETURN(const Container container, Container::open_to_repair(options.destination));
  if (container.in_place())
    return unsupported_error(
        "{}: its experts are those of {}, which is not ours to mend; `wader rm` it, and it is made "
        "again when the checkpoint is used",
        container.directory().string(), container.in_place()->directory.string());
  ASSIGN_OR_RETURN(const VerifyReport found, verify_container(container, progress));
  RepairReport report;
  if (found.problems.empty()) return report;
  ASSIGN_OR_RETURN(const InstallPlan plan, make_install_plan(options));
  RETURN_IF_ERROR(check_same(plan.container.manifest, container.manifest()));
  const uint32_t threads =
      options.threads > 0 ? options.threads : choose_threads(process_affinity()).threads;
  ASSIGN_OR_RETURN(Repacker repacker, Repacker::create(plan, static_cast<int>(threads)));
  Mender mender(container, plan, repacker);
  uint64_t total = 0;
  for (const DamagedPart& part : found.damaged) total += bytes_of(container.manifest(), part);
  ProgressMeter meter(progress, total, "the repair was stopped; run it again to continue");
  for (const DamagedPart& part : found.damaged) {
    RETURN_IF_ERROR(mender.mend(part));
    ++report.parts;
    RETURN_IF_ERROR(meter.advance("repair", bytes_of(container.manifest(), part)));
  }
  RETURN_IF_ERROR(sync_directory(container.directory() / kExpertsFolder));
  RETURN_IF_ERROR(sync_directory(container.directory()));
  RETURN_IF_ERROR(Container::open(options.destination));
  report.source_bytes_read = repacker.source_bytes_read();
  if (plan.hub) report.fetched_bytes = plan.hub->client().bytes_received();
  return report;
}

}  // namespace wader
