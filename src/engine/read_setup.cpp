#include "engine/read_setup.h"

#include <algorithm>
#include <ctime>

#include "base/error.h"
#include "base/hash.h"
#include "io/aligned_buffer.h"
#include "io/read_probe.h"

namespace wader {
namespace {

constexpr uint32_t kReadsInFlight = 64;
constexpr uint32_t kMostProbeFiles = 8;
constexpr uint32_t kProbeRecords = 4;  // of memory

Result<std::optional<bool>> forced_direct(const EngineOptions& options) {
  if (options.direct == "on") return std::optional(true);
  if (options.direct == "off") return std::optional(false);
  if (options.direct == "auto") return std::optional<bool>();
  return invalid_argument_error("--direct takes on, off or auto, not '{}'", options.direct);
}

Result<std::optional<ReadEngine>> forced_engine(const EngineOptions& options) {
  if (options.io == "auto") return std::optional<ReadEngine>();
  if (const auto engine = read_engine_from_name(options.io)) return engine;
  return invalid_argument_error("--io takes auto, uring or threads, not '{}'", options.io);
}

uint64_t record_bytes(const Container& container) {
  return container.manifest().experts.stride_bytes;
}

Result<std::unique_ptr<ReadQueue>> queue_of(ReadEngine engine, const Container& container) {
  return make_queue(engine, kReadsInFlight, record_bytes(container));
}

// Whether reads with O_DIRECT may be taken: they work here and are not forbidden. An error when
// they are forced and do not.
Result<bool> may_read_direct(const Container& container, std::optional<bool> forced) {
  if (forced == false) return false;
  const bool works = direct_reads_work(ContainerExperts::probe_file(container).string());
  if (forced == true && !works)
    return unsupported_error("{}: the file system does not read with O_DIRECT; use --direct auto",
                             container.directory().string());
  return works;
}

// The methods that the flags leave and this system has, in order of preference. An error when a
// forced one does not work.
Result<std::vector<ReadMethod>> candidates_for(const Container& container,
                                               const EngineOptions& options) {
  ASSIGN_OR_RETURN(const auto engine, forced_engine(options));
  ASSIGN_OR_RETURN(const auto direct, forced_direct(options));
  bool uring = false;
  if (engine != ReadEngine::threads) {
    auto queue = queue_of(ReadEngine::uring, container);
    uring = queue.ok();
    if (!uring && engine == ReadEngine::uring) return std::move(queue).error().within("--io uring");
  }
  ASSIGN_OR_RETURN(const bool direct_works, may_read_direct(container, direct));
  std::vector<ReadMethod> candidates;
  for (const ReadMethod method : kReadMethods) {
    const bool works =
        (method.engine == ReadEngine::threads || uring) && (!method.direct || direct_works);
    if (works && method.engine == engine.value_or(method.engine) &&
        method.direct == direct.value_or(method.direct))
      candidates.push_back(method);
  }
  CHECK(!candidates.empty());
  return candidates;
}

// The preferred method is as good for a model that is read in a moment.
bool is_small(const Container& container, const EngineOptions& options) {
  return container.manifest().expert_bytes() < options.measured_expert_bytes;
}

Result<ReadRates> place_of(const Container& container) {
  const std::filesystem::path& directory =
      container.in_place() ? container.in_place()->directory : container.directory();
  return read_place(directory.string(), digest_to_hex(container.identity()));
}

// Rates that hold here and now; otherwise the place alone, with none.
ReadRates stored_rates(const Container& container, const ReadRates& place) {
  const auto text =
      read_text_file(container.directory() / std::string(kReadRatesFile), kMaxReadRatesBytes);
  if (!text.ok()) return place;
  auto rates = parse_read_rates(*text);
  return rates.ok() && rates->same_place(place) ? std::move(rates).value() : place;
}

bool cover(const ReadRates& rates, std::span<const ReadMethod> candidates) {
  return std::all_of(candidates.begin(), candidates.end(),
                     [&](ReadMethod method) { return rates.find(method) != nullptr; });
}

std::string now_text() {
  const std::time_t now = std::time(nullptr);
  std::tm date = {};
  char text[32] = {};
  if (gmtime_r(&now, &date) == nullptr ||
      std::strftime(text, sizeof text, "%Y-%m-%dT%H:%M:%SZ", &date) == 0)
    return "";
  return text;
}

Result<std::vector<MeasuredMethod>> measure(const Container& container,
                                            std::span<const ReadMethod> candidates,
                                            uint64_t memory_bytes) {
  ProbeJob job;
  job.record_bytes = record_bytes(container);
  job.records_a_file = container.spec().experts;
  job.seed = container.identity();
  std::vector<std::filesystem::path> files = container.expert_files();
  if (const auto& source = container.in_place()) {
    // A checkpoint's files are of any size, and other bytes of theirs are read as fast.
    files.clear();
    for (const SourceFile& file : source->files) {
      if (file.bytes < job.record_bytes) continue;
      files.push_back(source->directory / file.name);
      job.records_a_file = std::min(job.records_a_file, file.bytes / job.record_bytes);
    }
    if (files.empty()) return unsupported_error("no file holds a whole record");
  }
  const size_t step = (files.size() + kMostProbeFiles - 1) / kMostProbeFiles;
  for (size_t i = 0; i < files.size(); i += step) job.files.push_back(files[i]);
  const uint64_t records =
      std::clamp<uint64_t>(memory_bytes / job.record_bytes, 1, uint64_t{kProbeRecords});
  ASSIGN_OR_RETURN(AlignedBuffer memory,
                   AlignedBuffer::allocate(records * job.record_bytes, AlignedBuffer::Pages::huge));
  job.memory = memory.span();
  return measure_methods(job, candidates);
}

// The rates of `fresh`, and of the others what was known before. Not kept where the directory
// cannot be written: then it is measured each time.
void store(const Container& container, ReadRates rates, std::span<const MeasuredMethod> fresh) {
  std::erase_if(rates.rates, [&](const MeasuredMethod& old) {
    return std::any_of(fresh.begin(), fresh.end(),
                       [&](const MeasuredMethod& rate) { return rate.method == old.method; });
  });
  rates.rates.insert(rates.rates.end(), fresh.begin(), fresh.end());
  rates.measured_at = now_text();
  (void)write_file_atomically(container.directory() / std::string(kReadRatesFile),
                              read_rates_to_text(rates));
}

// The file's rates when they serve, else new ones.
Result<ReadMethod> choose_method(const Container& container, const EngineOptions& options,
                                 std::span<const ReadMethod> candidates, uint64_t memory_bytes) {
  if (candidates.size() == 1 || is_small(container, options)) return candidates.front();
  ASSIGN_OR_RETURN(const ReadRates place, place_of(container));
  ReadRates rates = stored_rates(container, place);
  if (cover(rates, candidates)) return best_method(candidates, rates.rates);
  const auto fresh = measure(container, candidates, memory_bytes);
  // A read that fails here fails again when the expert is needed, with a message that names it.
  if (!fresh.ok()) return candidates.front();
  store(container, std::move(rates), *fresh);
  return best_method(candidates, *fresh);
}

}  // namespace

Status validate_read_options(const EngineOptions& options) {
  if (auto engine = forced_engine(options); !engine.ok()) return std::move(engine).error();
  if (auto direct = forced_direct(options); !direct.ok()) return std::move(direct).error();
  return {};
}

Result<ReadSetup> open_reads(const Container& container, const EngineOptions& options,
                             uint64_t memory_bytes) {
  ReadSetup setup;
  if (options.make_read_queue) {
    ASSIGN_OR_RETURN(const auto direct, forced_direct(options));
    ASSIGN_OR_RETURN(const bool direct_works, may_read_direct(container, direct));
    ASSIGN_OR_RETURN(setup.source, ContainerExperts::open(container, direct_works));
    setup.queue = options.make_read_queue();
    return setup;
  }
  ASSIGN_OR_RETURN(const std::vector<ReadMethod> candidates, candidates_for(container, options));
  ASSIGN_OR_RETURN(const ReadMethod method,
                   choose_method(container, options, candidates, memory_bytes));
  ASSIGN_OR_RETURN(setup.source, ContainerExperts::open(container, method.direct));
  ASSIGN_OR_RETURN(setup.queue, queue_of(method.engine, container));
  return setup;
}

Result<ReadReport> report_reads(const Container& container, const EngineOptions& options) {
  ASSIGN_OR_RETURN(const std::vector<ReadMethod> candidates, candidates_for(container, options));
  ASSIGN_OR_RETURN(const ReadRates place, place_of(container));
  ReadReport report{candidates.front(), ReadReport::Why::unmeasured,
                    stored_rates(container, place)};
  if (candidates.size() == 1) {
    report.why = ReadReport::Why::forced;
  } else if (is_small(container, options)) {
    report.why = ReadReport::Why::small;
  } else if (cover(report.rates, candidates)) {
    report.why = ReadReport::Why::measured;
    report.method = best_method(candidates, report.rates.rates);
  }
  return report;
}

std::string read_report_text(const ReadReport& report) {
  const std::string method = read_method_text(report.method);
  const MeasuredMethod* rate = report.rates.find(report.method);
  const std::string measured =
      rate == nullptr ? std::string()
                      : fmt::format("{:.2f} GB/s measured {}", rate->bytes_per_second / 1e9,
                                    report.rates.measured_at.substr(0, 10));
  switch (report.why) {
    case ReadReport::Why::forced:
      return method + (rate ? " (" + measured + ")" : "");
    case ReadReport::Why::measured:
      return fmt::format("{}: the best by measurement ({})", method, measured);
    case ReadReport::Why::small:
      return fmt::format("{} (too small a model to measure)", method);
    case ReadReport::Why::unmeasured:
      return "chosen by a short measurement at first use";
  }
  UNREACHABLE("no such case");
}

}  // namespace wader
