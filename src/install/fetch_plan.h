// FetchPlan: the ordered reads of an install cut into what is fetched: chunks of up to a MiB, in
// the order in which they are first needed. Small neighbours that are read a little at a time
// (scales and biases of one expert after the other) become one chunk. Pure.
#pragma once

#include <cstdint>
#include <map>
#include <utility>
#include <vector>

namespace wader {

// Bytes of a source file that are read at once.
struct SourceRange {
  uint32_t file = 0;
  uint64_t offset = 0, bytes = 0;
  bool operator==(const SourceRange&) const = default;
};

constexpr uint64_t kMaxChunkBytes = 1 << 20;  // a longer read is several chunks
constexpr uint64_t kMaxMergeBytes = 1 << 20;  // how far a chunk grows by further reads

struct FetchChunk {
  SourceRange range;
  uint64_t uses = 0;   // bytes of all reads that are served from it
  bool early = false;  // fetched long before it is read
};

struct FetchPlan {
  struct Read {
    SourceRange range;
    uint32_t chunk;  // that it begins in; it goes on in the ones after it
  };
  std::vector<Read> reads;
  std::vector<FetchChunk> chunks;  // in the order of reading
  std::vector<uint32_t> order;     // in which chunks are fetched; empty: that of reading
  uint64_t bytes() const;          // of all chunks
};

class FetchPlanner {
 public:
  // A new file of the container begins: its chunks take nothing from earlier reads, so that they
  // are the same whichever files were finished before.
  void begin_unit() { open_.clear(); }
  // `needed` false: a read that an earlier run did already. It shapes the chunks, so that they are
  // the same in every run, but nothing is fetched for it.
  void add(const SourceRange& read, bool needed);
  FetchPlan finish();

 private:
  struct Chunk {
    FetchChunk chunk;
    uint64_t needed_from;
  };
  uint32_t chunk_for(const SourceRange& read);
  void use(uint32_t chunk, uint64_t offset, uint64_t bytes);

  std::vector<Chunk> chunks_;
  std::vector<FetchPlan::Read> reads_;
  std::map<std::pair<uint32_t, uint64_t>, uint32_t> open_;  // (file, end) → chunk
};

}  // namespace wader
