#include "install/fetch_plan.h"

#include <algorithm>

#include "base/check.h"

namespace wader {

uint64_t FetchPlan::bytes() const {
  uint64_t sum = 0;
  for (const FetchChunk& chunk : chunks) sum += chunk.range.bytes;
  return sum;
}

// The chunk in which `read` begins, grown or made for it.
uint32_t FetchPlanner::chunk_for(const SourceRange& read) {
  if (const auto found = open_.find({read.file, read.offset}); found != open_.end()) {
    const uint32_t number = found->second;
    SourceRange& range = chunks_[number].chunk.range;
    open_.erase(found);
    if (range.bytes + read.bytes <= kMaxMergeBytes) {
      range.bytes += read.bytes;
      open_[{read.file, read.offset + read.bytes}] = number;
      return number;
    }
  }
  const auto first = static_cast<uint32_t>(chunks_.size());
  for (uint64_t done = 0; done < read.bytes; done += chunks_.back().chunk.range.bytes)
    chunks_.push_back(
        {{{read.file, read.offset + done, std::min(kMaxChunkBytes, read.bytes - done)}},
         UINT64_MAX});
  open_[{read.file, read.offset + read.bytes}] = static_cast<uint32_t>(chunks_.size() - 1);
  return first;
}

void FetchPlanner::use(uint32_t number, uint64_t offset, uint64_t bytes) {
  Chunk& chunk = chunks_[number];
  chunk.chunk.uses += bytes;
  chunk.needed_from = std::min(chunk.needed_from, offset);
}

void FetchPlanner::add(const SourceRange& read, bool needed) {
  CHECK(read.bytes > 0);
  const uint32_t first = chunk_for(read);
  if (!needed) return;
  reads_.push_back({read, first});
  uint32_t number = first;
  for (uint64_t at = read.offset, end = read.offset + read.bytes; at < end; ++number) {
    const SourceRange& range = chunks_[number].chunk.range;
    const uint64_t part = std::min(end, range.offset + range.bytes) - at;
    use(number, at, part);
    at += part;
  }
}

FetchPlan FetchPlanner::finish() {
  FetchPlan plan;
  plan.reads = std::move(reads_);
  std::vector<uint32_t> number_of(chunks_.size());
  for (size_t i = 0; i < chunks_.size(); ++i) {
    FetchChunk chunk = chunks_[i].chunk;
    number_of[i] = static_cast<uint32_t>(plan.chunks.size());
    if (chunk.uses == 0) continue;
    const uint64_t unneeded = chunks_[i].needed_from - chunk.range.offset;
    chunk.range.offset += unneeded;
    chunk.range.bytes -= unneeded;
    plan.chunks.push_back(chunk);
  }
  for (FetchPlan::Read& read : plan.reads) read.chunk = number_of[read.chunk];
  *this = FetchPlanner();
  return plan;
}

}  // namespace wader
