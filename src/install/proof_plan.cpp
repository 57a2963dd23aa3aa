#include "install/proof_plan.h"

#include <algorithm>
#include <map>
#include <numeric>
#include <utility>

namespace wader {
namespace {

// One file on its way to a proof. Moments are places in the plan's order of chunks.
class FileProof {
 public:
  FileProof(const FetchPlan& plan, const ProofFile& file, std::vector<uint32_t> chunks,
            std::vector<SourceRange> kept)
      : file_(file) {
    const auto add = [&](const SourceRange& range, uint32_t chunk, uint64_t moment) {
      if (range.offset + range.bytes > file.hashed_bytes)
        parts_.push_back({range.offset, range.bytes, chunk, moment, moment});
    };
    for (const uint32_t c : chunks) add(plan.chunks[c].range, c, c);
    for (const SourceRange& range : kept) add(range, kNone, 0);
    std::sort(parts_.begin(), parts_.end(),
              [](const Part& a, const Part& b) { return a.offset < b.offset; });
  }

  uint32_t file() const { return file_.file; }
  uint64_t peak_bytes() const { return peak_bytes_; }
  const std::vector<std::pair<uint64_t, int64_t>>& steps() const { return steps_; }

  // Closes the holes; false when they are too many.
  bool close_gaps() {
    std::vector<Part> gaps;
    uint64_t frontier = file_.hashed_bytes, gap_bytes = 0, moment = 0;
    const auto close = [&](uint64_t to) {
      for (; frontier < to; frontier += gaps.back().bytes) {
        const uint64_t bytes = std::min(to - frontier, kMaxChunkBytes);
        gaps.push_back({frontier, bytes, kNone, moment, moment, true});
        gap_bytes += bytes;
        if (gap_bytes > kMaxGapBytes) return false;
      }
      return true;
    };
    for (const Part& part : parts_) {
      if (part.offset + part.bytes <= frontier) continue;
      if (part.offset > frontier && !close(part.offset)) return false;
      frontier = part.offset + part.bytes;
      moment = part.fetched;
    }
    if (!close(file_.bytes)) return false;
    parts_.insert(parts_.end(), gaps.begin(), gaps.end());
    std::sort(parts_.begin(), parts_.end(),
              [](const Part& a, const Part& b) { return a.offset < b.offset; });
    return true;
  }

  // Little pieces that everything after them would wait for come before it.
  void pull_early() {
    std::vector<uint64_t> later(parts_.size() + 1, UINT64_MAX);  // first moment of what follows
    for (size_t i = parts_.size(); i-- > 0;) later[i] = std::min(later[i + 1], parts_[i].fetched);
    for (size_t i = 0; i < parts_.size();) {
      size_t end = i;
      uint64_t bytes = 0;
      for (; end < parts_.size() && parts_[end].fetched > later[end + 1]; ++end)
        bytes += parts_[end].bytes;
      if (bytes <= kMaxEarlyRunBytes)
        for (size_t k = i; k < end; ++k)
          if (parts_[k].chunk != kNone || parts_[k].is_gap) parts_[k].fetched = later[end];
      i = std::max(end, i + 1);
    }
  }

  // How much waits, and when.
  void simulate() {
    std::vector<size_t> order(parts_.size());
    std::iota(order.begin(), order.end(), 0);
    std::stable_sort(order.begin(), order.end(),
                     [&](size_t a, size_t b) { return parts_[a].fetched < parts_[b].fetched; });
    std::vector<bool> there(parts_.size());
    size_t frontier = 0;
    std::map<uint64_t, int64_t> steps;
    for (const size_t i : order) {
      there[i] = true;
      for (; frontier < parts_.size() && there[frontier]; ++frontier) {
        const Part& part = parts_[frontier];
        const uint64_t end = std::max(parts_[i].fetched, part.read);
        if (end == part.fetched) continue;  // passed by in its turn
        steps[part.fetched] += static_cast<int64_t>(part.bytes);
        steps[end + 1] -= static_cast<int64_t>(part.bytes);
      }
    }
    steps_.assign(steps.begin(), steps.end());
    int64_t held = 0, peak = 0;
    for (const auto& [moment, bytes] : steps_) peak = std::max(peak, held += bytes);
    peak_bytes_ = static_cast<uint64_t>(peak);
  }

  // The choice fell on this file: its gaps and early pieces go into the plan.
  void apply(FetchPlan& plan, std::multimap<uint64_t, uint32_t>& at) const {
    for (const Part& part : parts_) {
      if (part.is_gap) {
        at.emplace(part.fetched, static_cast<uint32_t>(plan.chunks.size()));
        plan.chunks.push_back({{file_.file, part.offset, part.bytes}, 0, false});
      } else if (part.chunk != kNone && part.fetched < part.read) {
        plan.chunks[part.chunk].early = true;
        at.emplace(part.fetched, part.chunk);
      }
    }
  }

 private:
  static constexpr uint32_t kNone = UINT32_MAX;
  struct Part {
    uint64_t offset, bytes;
    uint32_t chunk;
    uint64_t fetched, read;
    bool is_gap = false;
  };

  ProofFile file_;
  std::vector<Part> parts_;
  std::vector<std::pair<uint64_t, int64_t>> steps_;
  uint64_t peak_bytes_ = 0;
};

// The most that waits when `more` comes to what waits already.
int64_t peak_of(const std::map<uint64_t, int64_t>& steps) {
  int64_t held = 0, peak = 0;
  for (const auto& [moment, bytes] : steps) peak = std::max(peak, held += bytes);
  return peak;
}

}  // namespace

ProofPlan plan_proofs(FetchPlan& plan, std::span<const ProofFile> files,
                      std::span<const SourceRange> kept, uint64_t room_bytes) {
  const auto reads = static_cast<uint32_t>(plan.chunks.size());
  std::map<uint32_t, std::vector<uint32_t>> chunks_of;
  std::map<uint32_t, std::vector<SourceRange>> kept_of;
  for (uint32_t c = 0; c < reads; ++c) chunks_of[plan.chunks[c].range.file].push_back(c);
  for (const SourceRange& range : kept) kept_of[range.file].push_back(range);
  std::vector<FileProof> proofs;
  for (const ProofFile& file : files) {
    FileProof proof(plan, file, chunks_of[file.file], kept_of[file.file]);
    if (!proof.close_gaps()) continue;
    proof.pull_early();
    proofs.push_back(std::move(proof));
  }
  for (FileProof& proof : proofs) proof.simulate();
  std::stable_sort(proofs.begin(), proofs.end(), [](const FileProof& a, const FileProof& b) {
    return a.peak_bytes() < b.peak_bytes();
  });
  ProofPlan chosen;
  std::map<uint64_t, int64_t> held;
  std::multimap<uint64_t, uint32_t> before;  // moment → chunks that come then, ahead of its own
  for (FileProof& proof : proofs) {
    std::map<uint64_t, int64_t> with = held;
    for (const auto& [moment, bytes] : proof.steps()) with[moment] += bytes;
    const int64_t peak = peak_of(with);
    if (peak > static_cast<int64_t>(room_bytes)) continue;
    held = std::move(with);
    chosen.held_bytes = static_cast<uint64_t>(peak);
    chosen.files.push_back(proof.file());
    proof.apply(plan, before);
  }
  std::vector<bool> placed(plan.chunks.size());
  const auto place = [&](uint32_t chunk) {
    if (!placed[chunk]) plan.order.push_back(chunk);
    placed[chunk] = true;
  };
  for (uint32_t c = 0; c < reads; ++c) {
    for (auto [it, end] = before.equal_range(c); it != end; ++it) place(it->second);
    place(c);
  }
  // Gaps of files of which nothing is read any more.
  for (const auto& [moment, chunk] : before) place(chunk);
  return chosen;
}

}  // namespace wader
