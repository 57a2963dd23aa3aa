#include "install/read_order.h"

#include <algorithm>

#include "base/hash.h"
#include "base/json.h"
#include "base/units.h"
#include "container/manifest.h"
#include "install/fetch_window.h"
#include "install/hub_tree.h"

namespace wader {
namespace {

constexpr uint64_t kBatchBytes = 2 * kMiB;  // of trunk rows; a longer row is a batch of its own

class ReadPlanner {
 public:
  explicit ReadPlanner(const InstallPlan& plan) : plan_(plan), reader_(plan) {}

  // Tensors [first, end) in the plan's order.
  void add_trunk(size_t first, size_t end, const ContainerWriter::TrunkStart& start) {
    planner_.begin_unit();
    for (size_t n = first; n < end; ++n) {
      const size_t i = plan_.container.trunk_order[n];
      const TensorSource& source = plan_.trunk_sources[i];
      const uint64_t batch = trunk_batch_rows(plan_, i);
      for (uint64_t row = 0; row < source.rows; row += batch) {
        const SourceReader::Request request{&source, row, room(std::min(batch, source.rows - row))};
        const bool done = n < start.tensors || (n == start.tensors && row < start.rows);
        add({&request, 1}, !done);
      }
    }
  }

  Status add_layer(uint32_t layer, uint32_t experts_done) {
    planner_.begin_unit();
    const std::vector<uint32_t>& order = plan_.container.expert_order.at(layer);
    for (uint32_t n = 0; n < order.size(); ++n) {
      ASSIGN_OR_RETURN(const auto parts, plan_.expert_parts(layer, order[n]));
      uint64_t rows = 0;
      for (const InstallPlan::ExpertPart& part : parts) rows += part.source.rows;
      add(expert_requests(parts, room(rows)), n >= experts_done);
    }
    return {};
  }

  FetchPlan finish() { return planner_.finish(); }

 private:
  std::span<SourceRow> room(uint64_t rows) {
    if (rows_.size() < rows) rows_.resize(rows);
    return std::span(rows_).first(rows);
  }
  void add(std::span<const SourceReader::Request> requests, bool needed) {
    for (const SourceRange& range : reader_.ranges(requests)) planner_.add(range, needed);
  }

  const InstallPlan& plan_;
  SourceReader reader_;
  FetchPlanner planner_;
  std::vector<SourceRow> rows_;
};

}  // namespace

uint64_t trunk_batch_rows(const InstallPlan& plan, size_t index) {
  const TrunkTensor& t = plan.container.manifest.trunk[index];
  const uint64_t row = std::max(longest_row_bytes(plan.trunk_sources[index]),
                                row_bytes(t.format, t.cols()).value().total());
  return std::clamp<uint64_t>(kBatchBytes / row, 1, t.rows());
}

std::vector<SourceReader::Request> expert_requests(std::span<const InstallPlan::ExpertPart> parts,
                                                   std::span<SourceRow> rows) {
  std::vector<SourceReader::Request> requests;
  size_t at = 0;
  for (const InstallPlan::ExpertPart& part : parts) {
    requests.push_back({&part.source, 0, rows.subspan(at, part.source.rows)});
    at += part.source.rows;
  }
  return requests;
}

Result<FetchPlan> plan_reads(const InstallPlan& plan, const ContainerWriter* writer) {
  ReadPlanner planner(plan);
  for (const InstallPlan::Step& step : plan.steps) {
    if (!step.layer) {
      if (writer == nullptr || !writer->trunk_finished())
        planner.add_trunk(
            step.first, step.end,
            writer == nullptr ? ContainerWriter::TrunkStart() : writer->trunk_start());
    } else if (writer == nullptr || !writer->layer_finished(*step.layer)) {
      RETURN_IF_ERROR(planner.add_layer(
          *step.layer, writer == nullptr ? 0 : writer->layer_start(*step.layer).experts));
    }
  }
  return planner.finish();
}

std::vector<uint32_t> repository_files(const InstallPlan& plan) {
  std::vector<uint32_t> file_of;
  const std::string prefix = plan.hub->client().repository() + "/";
  for (const auto& file : plan.checkpoint->files()) {
    CHECK(file->path().starts_with(prefix));
    file_of.push_back(plan.hub->client().find(file->path().substr(prefix.size())).value());
  }
  return file_of;
}

Status start_fetching(const InstallPlan& plan, const ContainerWriter& writer,
                      const std::filesystem::path& destination) {
  ASSIGN_OR_RETURN(FetchPlan reads, plan_reads(plan, &writer));
  const std::vector<uint32_t> file_of = repository_files(plan);
  for (FetchPlan::Read& read : reads.reads) read.range.file = file_of[read.range.file];
  for (FetchChunk& chunk : reads.chunks) chunk.range.file = file_of[chunk.range.file];
  const uint64_t identity = xxh3_64(json_text(plan.container.origin));
  ASSIGN_OR_RETURN(FetchWindow window,
                   FetchWindow::open(destination / kFetchFile, plan.window_bytes(), identity));
  return plan.hub->start(std::move(reads), std::move(window), plan.ahead_bytes());
}

}  // namespace wader
