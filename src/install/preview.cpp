// preview_install: what an install would do, from headers and a short measurement.
#include <chrono>
#include <vector>

#include "base/units.h"
#include "container/manifest.h"
#include "install/disk_room.h"
#include "install/install.h"
#include "install/plan.h"
#include "install/read_order.h"

namespace wader {
namespace {

// Of one connection over up to 8 MiB: less than several give, and said to be an estimate.
Result<double> measure_rate(const InstallPlan& plan, const FetchPlan& reads) {
  constexpr uint64_t kProbeBytes = 8 * kMiB;
  uint64_t bytes = 0;
  std::vector<std::byte> buffer(kMaxChunkBytes);
  const auto start = std::chrono::steady_clock::now();
  for (const FetchChunk& chunk : reads.chunks) {
    if (bytes >= kProbeBytes) break;
    if (chunk.range.bytes < kMaxMergeBytes) continue;
    RETURN_IF_ERROR(plan.checkpoint->files()[chunk.range.file]->read_at(
        chunk.range.offset, std::span(buffer).first(chunk.range.bytes)));
    bytes += chunk.range.bytes;
  }
  const std::chrono::duration<double> took = std::chrono::steady_clock::now() - start;
  return bytes == 0 ? 0 : static_cast<double>(bytes) / took.count();
}

}  // namespace

Result<InstallPreview> preview_install(const InstallOptions& options) {
  ASSIGN_OR_RETURN(const InstallPlan plan, make_install_plan(options));
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
  ASSIGN_OR_RETURN(preview.bytes_per_second, measure_rate(plan, reads));
  return preview;
}

}  // namespace wader
