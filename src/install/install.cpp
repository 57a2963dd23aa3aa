#include "install/install.h"

#include <algorithm>
#include <cmath>
#include <filesystem>
#include <system_error>
#include <utility>
#include <vector>

#include "base/error.h"
#include "base/machine.h"
#include "container/manifest.h"
#include "install/disk_room.h"
#include "install/fetch_window.h"
#include "install/hub_tree.h"
#include "install/plan.h"
#include "install/read_order.h"
#include "install/repack.h"

namespace wader {
namespace {

namespace fs = std::filesystem;

uint64_t weight_bytes(const Manifest& manifest) {
  return manifest.trunk_bytes() + manifest.expert_bytes();
}

// Mean of the numbers, to two decimals; null when there are none.
Json mean_db(const std::vector<double>& all) {
  if (all.empty()) return nullptr;
  double sum = 0;
  for (double db : all) sum += db;
  return std::round(100 * sum / static_cast<double>(all.size())) / 100;
}

// The journal is ours, but it lay on a disk in between: what is not as it was written says nothing.
Json snr_of(const Json& facts) {
  return json_has(facts, "snr_db") && facts["snr_db"].is_number() ? facts["snr_db"] : Json(nullptr);
}

// From the pieces that the journal kept, so that it is the same however many runs it took.
Json report_of(const InstallPlan& plan, const ContainerWriter& writer) {
  const Manifest& manifest = writer.manifest();
  std::vector<double> trunk_db, expert_db;
  for (const auto& [name, facts] : writer.trunk_report().items())
    if (const Json snr = snr_of(facts); snr.is_number()) trunk_db.push_back(snr.get<double>());
  Json layers = Json::object();
  for (uint32_t layer = 0; layer < manifest.spec.layer_count(); ++layer) {
    if (!has_experts(manifest.spec, layer)) continue;
    const Json& facts = writer.layer_report(layer);
    for (const auto& [matrix, value] : facts.items())
      if (const Json snr = snr_of(value); snr.is_number()) expert_db.push_back(snr.get<double>());
    layers[std::to_string(layer)] = facts;
  }
  return {{"source_kind", plan.checkpoint->kind()},
          {"trunk_bytes", manifest.trunk_bytes()},
          {"expert_bytes", manifest.expert_bytes()},
          {"trunk",
           {{"source", plan.trunk_source_text},
            {"stored", trunk_format_text(manifest)},
            {"mean_snr_db", mean_db(trunk_db)},
            {"matrices", writer.trunk_report()}}},
          {"experts",
           {{"source", expert_format_text(plan.checkpoint->expert_format())},
            {"stored", expert_format_text(manifest.experts.format)},
            {"mean_snr_db", mean_db(expert_db)},
            {"layers", std::move(layers)}}}};
}

StoredPart stored_part(const Json& part) {
  StoredPart out{part["source"].get<std::string>(), part["stored"].get<std::string>()};
  if (part["mean_snr_db"].is_number()) out.snr_db = part["mean_snr_db"].get<double>();
  return out;
}

// What an earlier run left, finished or not.
uint64_t bytes_there(const InstallPlan& plan, const ContainerWriter& writer) {
  uint64_t bytes = writer.finished_bytes();
  const Manifest& manifest = writer.manifest();
  for (const auto& [layer, order] : plan.container.expert_order)
    if (!writer.layer_finished(layer))
      bytes += writer.layer_start(layer).experts * manifest.experts.stride_bytes;
  if (writer.trunk_finished()) return bytes;
  const ContainerWriter::TrunkStart& start = writer.trunk_start();
  const std::vector<uint32_t>& order = plan.container.trunk_order;
  for (size_t n = 0; n < start.tensors; ++n) bytes += manifest.trunk[order[n]].bytes;
  if (start.rows == 0) return bytes;
  const TrunkTensor& t = manifest.trunk[order[start.tensors]];
  return bytes + start.rows * row_bytes(t.format, t.cols()).value().total();
}

// Everything that is still missing, then the finish. Returns the container's bytes.
Result<uint64_t> write_container(const InstallPlan& plan, Repacker& repacker,
                                 ContainerWriter& writer, ProgressMeter& meter,
                                 const fs::path& destination) {
  std::string_view phase = "trunk";
  if (plan.hub) {
    plan.hub->client().set_wait([&](std::string_view note) { return meter.wait(phase, note); });
    RETURN_IF_ERROR(start_fetching(plan, writer, destination));
  }
  for (const InstallPlan::PlannedFile& small : plan.small_files)
    RETURN_IF_ERROR(small.text ? writer.write_small_file(small.name, *small.text)
                               : writer.copy_small_file(small.name, small.file));
  RETURN_IF_ERROR(plan.check_source_unchanged());
  for (const InstallPlan::Step& step : plan.steps) {
    if (step.layer ? writer.layer_finished(*step.layer) : writer.trunk_finished()) continue;
    if (step.layer) phase = "experts";
    RETURN_IF_ERROR(meter.report(phase));
    RETURN_IF_ERROR(step.layer ? repacker.repack_layer(writer, *step.layer, meter)
                               : repacker.repack_trunk(writer, step.end, meter));
  }
  meter.set_done(writer.finished_bytes());
  RETURN_IF_ERROR(meter.report("experts"));
  if (plan.hub) {
    RETURN_IF_ERROR(plan.hub->finish_proofs());
    plan.hub->stop();
    std::error_code ignored;
    fs::remove(destination / kFetchFile, ignored);
  }
  return writer.finish(report_of(plan, writer));
}

// Where a file of the hub turned out to have another SHA-256: what was made of it is made again by
// the next run.
Status forget_refuted(const InstallPlan& plan, ContainerWriter& writer) {
  const std::vector<uint32_t>& refuted = plan.hub->files_refuted();
  if (refuted.empty()) return {};
  const std::vector<uint32_t> file_of = repository_files(plan);
  const auto is_of_it = [&](const TensorSource& source) {
    return std::any_of(source.pieces.begin(), source.pieces.end(), [&](const SourceRows& piece) {
      const auto is_refuted = [&](const SourcePlane& plane) {
        return plane.stride_bytes > 0 &&
               std::find(refuted.begin(), refuted.end(), file_of[plane.file]) != refuted.end();
      };
      return is_refuted(piece.codes) || is_refuted(piece.scales) || is_refuted(piece.biases);
    });
  };
  if (std::any_of(plan.trunk_sources.begin(), plan.trunk_sources.end(), is_of_it))
    RETURN_IF_ERROR(writer.forget(std::string(kTrunkFile)));
  for (const auto& [layer, order] : plan.container.expert_order) {
    bool of_it = false;
    for (const uint32_t expert : order) {
      ASSIGN_OR_RETURN(const auto parts, plan.expert_parts(layer, expert));
      for (const InstallPlan::ExpertPart& part : parts) of_it = of_it || is_of_it(part.source);
    }
    if (of_it) RETURN_IF_ERROR(writer.forget(expert_file_name(layer)));
  }
  return {};
}

// What the caller can do about an install that stopped half-way. `begun`: it has left something to
// continue.
Error explain(Error error, bool remote, bool begun) {
  if (error.code == ErrorCode::io && remote)
    error.message += begun ? "; run the same install again, it continues where it stopped"
                           : "; run the same install again";
  if (error.code == ErrorCode::over_budget)
    error.message +=
        "; free some space and run the same install again, it continues where it stopped";
  return error;
}

// A bad source stays bad: what came of it is of no use to a later run.
bool is_final(ErrorCode code) {
  return code == ErrorCode::corrupt || code == ErrorCode::unsupported;
}

}  // namespace

Result<uint64_t> planned_container_bytes(const InstallOptions& options) {
  ASSIGN_OR_RETURN(const InstallPlan plan, make_install_plan(options));
  return plan.disk_bytes();
}

Result<InstallReport> install(const InstallOptions& options, const ProgressFn& progress) {
  if (options.destination.empty()) return invalid_argument_error("no destination was given");
  RETURN_IF_ERROR(check_destination(options.destination));
  auto planned = make_install_plan(options);
  if (!planned.ok()) return explain(std::move(planned).error(), options.hub != nullptr, false);
  const InstallPlan plan = *std::move(planned);
  if (!plan.hub) RETURN_IF_ERROR(check_apart(plan.checkpoint->directory(), options.destination));
  RETURN_IF_ERROR(check_disk(options.destination, plan));
  const uint32_t threads =
      options.threads > 0 ? options.threads : choose_threads(process_affinity()).threads;
  ASSIGN_OR_RETURN(Repacker repacker, Repacker::create(plan, static_cast<int>(threads)));
  ASSIGN_OR_RETURN(ContainerWriter writer,
                   ContainerWriter::open(options.destination, plan.container));

  ProgressMeter meter(progress, weight_bytes(writer.manifest()),
                      "the install was stopped; run it again to continue");
  meter.set_done(bytes_there(plan, writer));
  auto bytes = write_container(plan, repacker, writer, meter, options.destination);
  if (plan.hub) plan.hub->client().set_wait({});
  if (!bytes.ok()) {
    if (plan.hub) {
      plan.hub->stop();
      RETURN_IF_ERROR(forget_refuted(plan, writer));
    }
    if (is_final(bytes.error().code)) RETURN_IF_ERROR(writer.discard());
    return explain(std::move(bytes).error(), plan.hub != nullptr, true);
  }
  InstallReport report;
  report.container = options.destination;
  report.source_bytes_read = repacker.source_bytes_read();
  report.container_bytes = *bytes;
  report.resumed = writer.resumed();
  report.started_over = writer.started_over();
  report.experts = stored_part(writer.manifest().report["experts"]);
  report.trunk = stored_part(writer.manifest().report["trunk"]);
  if (plan.hub) {
    report.fetched_bytes = plan.hub->client().bytes_received();
    const std::vector<uint32_t>& proven = plan.hub->files_proven();
    for (const uint32_t file : plan.hub->files_opened()) {
      const HubFile& facts = plan.hub->client().files()[file];
      const bool is_proven = std::find(proven.begin(), proven.end(), file) != proven.end();
      report.weight_files.push_back({facts.name, facts.bytes, facts.sha256, is_proven});
    }
  }
  return report;
}

}  // namespace wader
