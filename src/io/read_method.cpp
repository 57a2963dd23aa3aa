#include "io/read_method.h"

#include <fmt/format.h>
#include <sys/stat.h>
#include <sys/sysmacros.h>
#include <sys/utsname.h>
#include <sys/vfs.h>

#include <algorithm>
#include <cerrno>

#include "base/error.h"
#include "base/json.h"
#include "io/read_window.h"

namespace wader {
namespace {

constexpr std::string_view kFormat = "wader-read-rates";
constexpr uint64_t kVersion = 1;
// Another method must be faster by this to be taken: less is within what a disk's rate changes from
// one second to the next.
constexpr double kWorthChanging = 1.1;
// Blocking readers. Of large reads two keep the disk busy while one of them is between two; more
// only make all of them late. Small ones need more (256 KiB: 2.0 GB/s by one thread, 2.5 by two,
// 2.8 by four).
constexpr uint32_t kFewThreads = 2, kReadThreads = 4;
constexpr double kMostBytesPerSecond = 1e13;

Result<MeasuredMethod> parse_rate(const Json& json) {
  ASSIGN_OR_RETURN(const std::string name, json_string(json, "engine"));
  const auto engine = read_engine_from_name(name);
  if (!engine) return corrupt_error("engine '{}' is not known", name);
  ASSIGN_OR_RETURN(const bool direct, json_bool(json, "direct"));
  ASSIGN_OR_RETURN(const double rate,
                   json_number(json, "bytes_per_second", 1, kMostBytesPerSecond));
  return MeasuredMethod{{*engine, direct}, rate};
}

}  // namespace

std::string_view read_engine_name(ReadEngine engine) {
  return engine == ReadEngine::uring ? "uring" : "threads";
}

std::optional<ReadEngine> read_engine_from_name(std::string_view name) {
  for (const ReadEngine engine : {ReadEngine::threads, ReadEngine::uring})
    if (read_engine_name(engine) == name) return engine;
  return {};
}

std::string read_method_text(ReadMethod method) {
  return fmt::format("{}, {}", method.engine == ReadEngine::uring ? "io_uring" : "pread threads",
                     method.direct ? "O_DIRECT" : "page cache");
}

Result<std::unique_ptr<ReadQueue>> make_queue(ReadEngine engine, uint32_t capacity,
                                              uint64_t read_bytes) {
  if (engine == ReadEngine::uring) return make_uring_read_queue(capacity);
  auto queue =
      make_thread_read_queue(read_bytes < kLargeReadBytes ? kReadThreads : kFewThreads, capacity);
  if (queue == nullptr)
    return io_error(
        "the system starts no thread for reads; raise the process limit (ulimit -u, pids cgroup)");
  return queue;
}

ReadMethod best_method(std::span<const ReadMethod> candidates,
                       std::span<const MeasuredMethod> rates) {
  CHECK(!candidates.empty());
  const auto rate_of = [&](ReadMethod method) {
    for (const MeasuredMethod& rate : rates)
      if (rate.method == method) return rate.bytes_per_second;
    return 0.0;
  };
  double fastest = 0;
  for (const ReadMethod method : candidates) fastest = std::max(fastest, rate_of(method));
  for (const ReadMethod method : candidates)
    if (rate_of(method) * kWorthChanging >= fastest) return method;
  UNREACHABLE("the fastest is not beaten");
}

const MeasuredMethod* ReadRates::find(ReadMethod method) const {
  for (const MeasuredMethod& rate : rates)
    if (rate.method == method) return &rate;
  return nullptr;
}

Result<ReadRates> read_place(const std::string& directory, std::string_view container) {
  struct stat info {};
  struct statfs system {};
  utsname machine{};
  if (::stat(directory.c_str(), &info) != 0 || ::statfs(directory.c_str(), &system) != 0)
    return errno_error(errno, directory);
  if (::uname(&machine) != 0) return errno_error(errno, "uname");
  ReadRates place;
  place.container = container;
  place.device = fmt::format("{}:{}", major(info.st_dev), minor(info.st_dev));
  place.file_system = fmt::format("{:x}", static_cast<uint32_t>(system.f_type));
  place.kernel = machine.release;
  return place;
}

std::string read_rates_to_text(const ReadRates& rates) {
  Json list = Json::array();
  for (const MeasuredMethod& rate : rates.rates)
    list.push_back({{"engine", read_engine_name(rate.method.engine)},
                    {"direct", rate.method.direct},
                    {"bytes_per_second", rate.bytes_per_second}});
  const Json json = {{"format", kFormat},
                     {"version", kVersion},
                     {"container", rates.container},
                     {"device", rates.device},
                     {"file_system", rates.file_system},
                     {"kernel", rates.kernel},
                     {"measured_at", rates.measured_at},
                     {"rates", std::move(list)}};
  return json_text(json, 2) + "\n";
}

Result<ReadRates> parse_read_rates(std::string_view text) {
  ASSIGN_OR_RETURN(const Json json, parse_json(text, "read rates", /*max_depth=*/4));
  ASSIGN_OR_RETURN(const std::string format, json_string(json, "format"));
  if (format != kFormat) return corrupt_error("these are no read rates");
  ASSIGN_OR_RETURN(const uint64_t version, json_uint(json, "version", 0, ~0ull));
  if (version != kVersion) return unsupported_error("read rates of version {}", version);
  ReadRates rates;
  ASSIGN_OR_RETURN(rates.container, json_string(json, "container"));
  ASSIGN_OR_RETURN(rates.device, json_string(json, "device"));
  ASSIGN_OR_RETURN(rates.file_system, json_string(json, "file_system"));
  ASSIGN_OR_RETURN(rates.kernel, json_string(json, "kernel"));
  ASSIGN_OR_RETURN(rates.measured_at, json_string(json, "measured_at"));
  ASSIGN_OR_RETURN(const Json* list, json_member(json, "rates"));
  if (!list->is_array() || list->size() > kReadMethods.size())
    return corrupt_error("'rates' must be a list of at most {}", kReadMethods.size());
  for (const Json& item : *list) {
    ASSIGN_OR_RETURN(const MeasuredMethod rate, parse_rate(item));
    if (rates.find(rate.method) != nullptr)
      return corrupt_error("{} has two rates", read_method_text(rate.method));
    rates.rates.push_back(rate);
  }
  return rates;
}

}  // namespace wader
