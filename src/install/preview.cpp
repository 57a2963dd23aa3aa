// preview_install: what an install would do, from headers and a short measurement.
#include <algorithm>
#include <vector>

#include "base/units.h"
#include "container/journal.h"
#include "container/manifest.h"
#include "install/disk_room.h"
#include "install/hub_tree.h"
#include "install/install.h"
#include "install/plan.h"
#include "install/read_order.h"

namespace wader {
namespace {

// Of one connection over a quarter of a MiB, the time until the first byte left out: less than what
// an install comes to, and said to be an estimate.
constexpr uint64_t kProbeBytes = 256 * kKiB;

Result<double> measure_rate(const InstallPlan& plan, const FetchPlan& reads) {
  if (reads.chunks.empty()) return 0;
  const FetchChunk& largest = *std::max_element(
      reads.chunks.begin(), reads.chunks.end(),
      [](const FetchChunk& a, const FetchChunk& b) { return a.range.bytes < b.range.bytes; });
  const std::vector<uint32_t> files = repository_files(plan);
  return plan.hub->client().measure_rate(files[largest.range.file], largest.range.offset,
                                         std::min(kProbeBytes, largest.range.bytes));
}

}  // namespace

Result<InstallPreview> preview_install(const InstallOptions& options) {
  RETURN_IF_ERROR(check_destination(options.destination));
  ASSIGN_OR_RETURN(const InstallPlan plan, make_install_plan(options));
  if (!plan.hub) RETURN_IF_ERROR(check_apart(plan.checkpoint->directory(), options.destination));
  const Manifest& manifest = plan.container.manifest;
  InstallPreview preview;
  preview.source = manifest.source;
  preview.revision = manifest.revision;
  ASSIGN_OR_RETURN(const FetchPlan reads, plan_reads(plan, nullptr));
  preview.read_bytes = reads.bytes();
  for (const SourceStamp& stamp : plan.stamps) preview.source_bytes += stamp.bytes;
  for (const auto& [name, record] : manifest.files) preview.write_bytes += record.bytes;
  preview.peak_bytes = plan.disk_bytes();
  preview.held_bytes = held_bytes(options.destination, plan);
  ASSIGN_OR_RETURN(preview.free_bytes, free_bytes_of(options.destination));
  preview.experts = expert_format_text(manifest.experts.format);
  preview.trunk = trunk_format_text(manifest);
  if (!plan.hub) return preview;
  preview.fetch_bytes = preview.read_bytes;
  preview.provable_files = plan.provable_files;
  preview.weight_files = plan.stamps.size();
  ASSIGN_OR_RETURN(preview.bytes_per_second, measure_rate(plan, reads));
  return preview;
}

}  // namespace wader
