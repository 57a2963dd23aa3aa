#include "measure/io_bench.h"

#include <fmt/format.h>
#include <sys/resource.h>

#include <algorithm>
#include <array>
#include <chrono>
#include <cmath>
#include <cstring>
#include <optional>
#include <random>

#include "base/check.h"
#include "base/error.h"
#include "io/aligned_buffer.h"

namespace wader {
namespace {

using Clock = std::chrono::steady_clock;

constexpr uint64_t kMostReadsARound = 4096;

double seconds_between(Clock::time_point from, Clock::time_point to) {
  return std::chrono::duration<double>(to - from).count();
}

double process_cpu_seconds() {
  rusage usage{};
  if (::getrusage(RUSAGE_SELF, &usage) != 0) return 0;
  const auto seconds = [](const timeval& t) {
    return static_cast<double>(t.tv_sec) + 1e-6 * static_cast<double>(t.tv_usec);
  };
  return seconds(usage.ru_utime) + seconds(usage.ru_stime);
}

struct OpenFile {
  File file;
  uint64_t bytes;
};

// All files once past the page cache and once through it: every setting reads these.
class FileSets {
 public:
  explicit FileSets(std::span<const std::filesystem::path> paths) : paths_(paths) {}

  Result<const std::vector<OpenFile>*> get(bool direct) {
    auto& set = sets_[direct ? 1 : 0];
    if (!set.empty()) return &set;
    if (direct && !direct_reads_work(paths_.front().string()))
      return unsupported_error("{}: the file system does not read with O_DIRECT",
                               paths_.front().string());
    std::vector<OpenFile> opened;
    for (const auto& path : paths_) {
      ASSIGN_OR_RETURN(File file,
                       File::open(path, direct ? File::Mode::read_direct : File::Mode::read));
      ASSIGN_OR_RETURN(const uint64_t bytes, file.size());
      opened.push_back({std::move(file), bytes});
    }
    set = std::move(opened);
    return &set;
  }

 private:
  std::span<const std::filesystem::path> paths_;
  std::array<std::vector<OpenFile>, 2> sets_;  // page cache, O_DIRECT
};

// The files that are large enough for a setting's reads, and a queue.
struct Opened {
  std::vector<const OpenFile*> files;
  std::unique_ptr<ReadQueue> queue;
};

Result<Opened> open_for(FileSets& sets, const IoSetting& setting) {
  Opened opened;
  ASSIGN_OR_RETURN(const std::vector<OpenFile>* set, sets.get(setting.method.direct));
  for (const OpenFile& file : *set)
    if (file.bytes >= setting.read_bytes) opened.files.push_back(&file);
  if (opened.files.empty())
    return invalid_argument_error("{}: too small for reads of {}", set->front().file.path(),
                                  format_bytes(setting.read_bytes));
  ASSIGN_OR_RETURN(opened.queue,
                   make_queue(setting.method.engine, setting.depth, setting.read_bytes));
  return opened;
}

// One setting's reads.
class Reader {
 public:
  Reader(Opened opened, IoRun& run, std::span<std::byte> memory, uint64_t seed)
      : opened_(std::move(opened)), run_(run), memory_(memory), rng_(seed) {}

  Status round(uint64_t round_bytes) {
    const IoSetting& setting = run_.setting;
    const uint64_t count = std::clamp<uint64_t>(round_bytes / setting.read_bytes,
                                                2 * uint64_t{setting.depth}, kMostReadsARound);
    choose_places(count / setting.depth * setting.depth);
    if (!setting.method.direct) drop_cached(places_);
    const double cpu = process_cpu_seconds();
    ASSIGN_OR_RETURN(const double seconds, setting.burst ? in_bursts() : steadily());
    run_.cpu_seconds += process_cpu_seconds() - cpu;
    const uint64_t bytes = places_.size() * setting.read_bytes;
    run_.bytes += bytes;
    run_.rates.push_back(static_cast<double>(bytes) / std::max(seconds, 1e-9));
    return {};
  }

 private:
  void choose_places(uint64_t count) {
    const uint64_t bytes = run_.setting.read_bytes;
    places_.clear();
    while (places_.size() < count) {
      const OpenFile& file = *opened_.files[rng_() % opened_.files.size()];
      places_.push_back({&file.file, rng_() % (file.bytes / bytes) * bytes, bytes});
    }
  }

  Result<double> in_bursts() {
    std::vector<double> landed(run_.setting.depth);
    double seconds = 0;
    for (size_t i = 0; i < places_.size(); i += run_.setting.depth) {
      ASSIGN_OR_RETURN(
          const double took,
          burst_seconds(*opened_.queue, std::span(places_).subspan(i, run_.setting.depth), memory_,
                        landed));
      seconds += took;
      run_.latencies.insert(run_.latencies.end(), landed.begin(), landed.end());
    }
    return seconds;
  }

  // Whatever lands is followed by the next read in its memory.
  Result<double> steadily() {
    ReadQueue& queue = *opened_.queue;
    std::vector<Clock::time_point> submitted(run_.setting.depth);
    std::vector<size_t> place_of(run_.setting.depth);
    std::vector<ReadCompletion> landed(run_.setting.depth);
    Status status;
    size_t next = 0;
    const auto submit = [&](uint64_t slot, Clock::time_point now) {
      if (next == places_.size() || !status.ok()) return;
      submitted[slot] = now;
      place_of[slot] = next;
      const ReadRequest request = {places_[next++], memory_.data() + slot * run_.setting.read_bytes,
                                   slot};
      queue.submit(std::span(&request, 1));
    };
    const auto start = Clock::now();
    auto now = start;
    for (uint64_t slot = 0; slot < run_.setting.depth; ++slot) submit(slot, now);
    while (const size_t n = queue.wait(landed)) {
      now = Clock::now();
      for (const ReadCompletion& c : std::span(landed).first(n)) {
        const Extent& place = places_[place_of[c.tag]];
        if (status.ok() && (c.errno_value != 0 || c.bytes_read != place.bytes))
          status = read_error(c, place);
        run_.latencies.push_back(seconds_between(submitted[c.tag], now));
        submit(c.tag, now);
      }
    }
    RETURN_IF_ERROR(std::move(status));
    return seconds_between(start, now);
  }

  Opened opened_;
  IoRun& run_;
  std::span<std::byte> memory_;
  std::mt19937_64 rng_;
  std::vector<Extent> places_;
};

}  // namespace

Result<std::vector<IoRun>> bench_io(std::span<const std::filesystem::path> files,
                                    std::span<const IoSetting> settings,
                                    const IoBenchOptions& options) {
  CHECK(!files.empty() && options.rounds > 0);
  uint64_t memory_bytes = 0;
  for (const IoSetting& setting : settings) {
    CHECK(setting.depth > 0 && setting.read_bytes > 0 &&
          setting.read_bytes % kDirectAlignment == 0);
    memory_bytes = std::max(memory_bytes, setting.depth * setting.read_bytes);
  }
  ASSIGN_OR_RETURN(AlignedBuffer memory,
                   AlignedBuffer::allocate(memory_bytes, AlignedBuffer::Pages::huge));
  std::memset(memory.data(), 1, memory.size());
  std::vector<IoRun> runs(settings.size());
  FileSets sets(files);
  std::vector<std::optional<Reader>> readers(settings.size());
  for (size_t i = 0; i < settings.size(); ++i) {
    runs[i].setting = settings[i];
    auto opened = open_for(sets, settings[i]);
    if (opened.ok())
      readers[i].emplace(std::move(opened).value(), runs[i], memory.span(), options.seed + i);
    else if (opened.error().code == ErrorCode::unsupported)
      runs[i].refused = opened.error().message;
    else
      return std::move(opened).error();
  }
  for (uint32_t round = 0; round < options.rounds; ++round) {
    if (options.on_step) options.on_step(fmt::format("round {} of {}", round + 1, options.rounds));
    for (size_t i = 0; i < settings.size(); ++i) {
      if (options.cancel != nullptr && *options.cancel) return cancelled_error("stopped");
      std::optional<Reader>& reader = readers[(i + round) % settings.size()];
      if (reader) RETURN_IF_ERROR(reader->round(options.round_bytes));
    }
  }
  for (IoRun& run : runs) std::sort(run.latencies.begin(), run.latencies.end());
  return runs;
}

std::vector<std::vector<Extent>> random_expert_places(const ExpertSource& source,
                                                      std::span<const uint32_t> layers,
                                                      size_t count, uint64_t seed) {
  CHECK(!layers.empty());
  std::mt19937_64 rng(seed);
  std::vector<std::vector<Extent>> records(count);
  for (std::vector<Extent>& record : records) {
    const uint32_t layer = layers[rng() % layers.size()];
    const auto extents = source.extents(layer, static_cast<uint32_t>(rng() % source.experts()));
    for (const SlotExtent& extent : extents) record.push_back(extent.from);
  }
  return records;
}

}  // namespace wader
