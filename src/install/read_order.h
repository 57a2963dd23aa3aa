// In which order an install reads its source: known before the first byte, so that it can be
// fetched ahead.
#pragma once

#include <cstdint>
#include <filesystem>
#include <span>
#include <vector>

#include "base/result.h"
#include "container/writer.h"
#include "install/fetch_plan.h"
#include "install/plan.h"
#include "install/source_reader.h"

namespace wader {

// Rows of trunk tensor `index` that are read and stored together.
uint64_t trunk_batch_rows(const InstallPlan& plan, size_t index);

// The reads of one expert. `rows`: room for all of its parts' rows.
std::vector<SourceReader::Request> expert_requests(std::span<const InstallPlan::ExpertPart> parts,
                                                   std::span<SourceRow> rows);

// Everything that `writer` still has to get; without a writer, everything. Files are those of
// plan.checkpoint.
Result<FetchPlan> plan_reads(const InstallPlan& plan, const ContainerWriter* writer);

// Of a hub source: which file of the repository each of plan.checkpoint's is.
std::vector<uint32_t> repository_files(const InstallPlan& plan);

// Begins to fetch all that from plan.hub, in the order in which it will be read.
Status start_fetching(const InstallPlan& plan, const ContainerWriter& writer,
                      const std::filesystem::path& destination);

}  // namespace wader
