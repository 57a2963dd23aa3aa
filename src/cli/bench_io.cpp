// `wader bench io`: the disk under a model, measured in the sizes and bursts that decoding reads.
#include <fmt/format.h>

#include <algorithm>
#include <limits>

#include "base/error.h"
#include "cli/commands.h"
#include "cli/console.h"
#include "cli/options.h"
#include "cli/text.h"
#include "install/models.h"
#include "io/aligned_buffer.h"
#include "measure/io_bench.h"
#include "measure/statistics.h"

namespace wader {
namespace {

constexpr uint64_t kMostDepth = 64;
constexpr uint64_t kMostMemoryBytes = 2 * kGiB;
constexpr uint64_t kFileReadBytes = 4 * kMiB;  // of a file that is no model's

// The items of a list separated by commas, each through `parse`.
template <typename Parse>
auto parse_list(const std::string& text, Parse&& parse)
    -> Result<std::vector<std::decay_t<decltype(*parse(text))>>> {
  std::vector<std::decay_t<decltype(*parse(text))>> items;
  for (const std::string_view part : split_list(text)) {
    ASSIGN_OR_RETURN(auto item, parse(std::string(part)));
    items.push_back(std::move(item));
  }
  return items;
}

Result<std::vector<uint32_t>> depths(const Args& args, std::string_view flag,
                                     const std::string& fallback) {
  const std::string text = args.text(flag, fallback);
  if (text == "none") return std::vector<uint32_t>();
  return parse_list(text, [&](const std::string& item) -> Result<uint32_t> {
    uint64_t value = 0;
    const bool digits =
        !item.empty() && item.size() <= 2 &&
        std::all_of(item.begin(), item.end(), [](char c) { return c >= '0' && c <= '9'; });
    if (digits) value = std::stoul(item);
    if (value == 0 || value > kMostDepth)
      return invalid_argument_error(
          "{} takes numbers from 1 to {} such as 1,2,4, or none, not '{}'", flag, kMostDepth, text);
    return static_cast<uint32_t>(value);
  });
}

// The expert files of a model and its record's size, or one file.
struct Target {
  std::vector<std::filesystem::path> files;
  uint64_t read_bytes = kFileReadBytes;
  std::string name;
};

Result<Target> target_of(const Args& args) {
  Target target;
  const std::filesystem::path path = args.operand(0);
  std::error_code ignored;
  if (std::filesystem::is_regular_file(path, ignored)) {
    target.files = {path};
    target.name = path.string();
    return target;
  }
  ASSIGN_OR_RETURN(const Container container, open_container(args));
  target.files = container.expert_files();
  target.read_bytes = container.manifest().experts.stride_bytes;
  target.name = container.directory().string();
  return target;
}

Result<std::vector<ReadMethod>> methods_of(const Args& args) {
  const std::string engine = args.text("--engine", "all"), direct = args.text("--direct", "all");
  if (engine != "all" && !read_engine_from_name(engine))
    return invalid_argument_error("--engine must be uring, threads or all, not '{}'", engine);
  if (direct != "all" && direct != "on" && direct != "off")
    return invalid_argument_error("--direct must be on, off or all, not '{}'", direct);
  std::vector<ReadMethod> methods;
  for (const ReadMethod method : kReadMethods)
    if ((engine == "all" || read_engine_from_name(engine) == method.engine) &&
        (direct == "all" || (direct == "on") == method.direct))
      methods.push_back(method);
  return methods;
}

Result<std::vector<IoSetting>> settings_of(const Args& args, const Target& target) {
  ASSIGN_OR_RETURN(const std::vector<ReadMethod> methods, methods_of(args));
  ASSIGN_OR_RETURN(const std::vector<uint32_t> steady, depths(args, "--depth", "1,2,4,8"));
  ASSIGN_OR_RETURN(const std::vector<uint32_t> bursts, depths(args, "--burst", "1,2,3,4,5,6,7,8"));
  std::vector<uint64_t> sizes = {target.read_bytes};
  if (args.has("--size")) {
    ASSIGN_OR_RETURN(sizes, parse_list(args.text("--size"), parse_bytes));
  }
  std::vector<IoSetting> settings;
  for (const uint64_t size : sizes) {
    if (size == 0 || size > kMostMemoryBytes / kMostDepth)
      return invalid_argument_error("--size must be 1 byte to {}, not {}",
                                    format_bytes(kMostMemoryBytes / kMostDepth),
                                    format_bytes(size));
    const uint64_t read_bytes = align_up(size, kDirectAlignment);
    for (const ReadMethod method : methods) {
      for (const uint32_t depth : steady) settings.push_back({method, read_bytes, depth, false});
      for (const uint32_t depth : bursts) settings.push_back({method, read_bytes, depth, true});
    }
  }
  if (settings.empty())
    return invalid_argument_error("--depth none and --burst none leave nothing to measure");
  return settings;
}

double cpu_seconds_a_gigabyte(const IoRun& run) {
  return run.cpu_seconds / (static_cast<double>(run.bytes) / 1e9);
}

Json run_json(const IoRun& run) {
  Json json = {{"engine", read_engine_name(run.setting.method.engine)},
               {"direct", run.setting.method.direct},
               {"read_bytes", run.setting.read_bytes},
               {run.setting.burst ? "burst" : "depth", run.setting.depth}};
  if (!run.refused.empty()) {
    json["refused"] = run.refused;
    return json;
  }
  const Spread rate = spread_of(run.rates);
  json["bytes_per_second"] = rate.median;
  json["bytes_per_second_smallest"] = rate.smallest;
  json["bytes_per_second_largest"] = rate.largest;
  json["latency_seconds"] = {{"p50", percentile(run.latencies, 0.5)},
                             {"p90", percentile(run.latencies, 0.9)},
                             {"p99", percentile(run.latencies, 0.99)},
                             {"max", run.latencies.back()}};
  json["cpu_seconds_per_gigabyte"] = cpu_seconds_a_gigabyte(run);
  return json;
}

std::string row(const IoRun& run) {
  const IoSetting& s = run.setting;
  const std::string name =
      fmt::format("{:<25} {:>10}  {:<5} {:>2}", read_method_text(s.method),
                  format_bytes(s.read_bytes), s.burst ? "burst" : "depth", s.depth);
  if (!run.refused.empty()) return fmt::format("{}  {}\n", name, terminal_safe_line(run.refused));
  const Spread rate = spread_of(run.rates);
  const auto ms = [&](double fraction) { return percentile(run.latencies, fraction) * 1e3; };
  return fmt::format(
      "{}  {:>5.2f} ({:.2f} to {:.2f}) {:>8.2f} {:>7.2f} {:>7.2f} {:>7.2f} {:>6.3f}\n", name,
      rate.median / 1e9, rate.smallest / 1e9, rate.largest / 1e9, ms(0.5), ms(0.9), ms(0.99), ms(1),
      cpu_seconds_a_gigabyte(run));
}

constexpr std::string_view kHead =
    "reads                           each                GB/s                   "
    "p50     p90     p99  max ms CPU s/GB\n";

}  // namespace

Result<int> run_bench_io(const Args& args) {
  IoBenchOptions options;
  ASSIGN_OR_RETURN(const uint64_t rounds, args.whole("--rounds", 1, 10'000, options.rounds));
  options.rounds = static_cast<uint32_t>(rounds);
  ASSIGN_OR_RETURN(options.seed, args.whole("--seed", 0, std::numeric_limits<uint64_t>::max(), 1));
  ASSIGN_OR_RETURN(const Target target, target_of(args));
  ASSIGN_OR_RETURN(const std::vector<IoSetting> settings, settings_of(args, target));
  options.cancel = &interrupted();
  options.on_step = [](const std::string& step) { show_status(step); };
  watch_interrupts();
  auto runs = bench_io(target.files, settings, options);
  show_status("");
  if (!runs.ok()) return not_usage(std::move(runs).error());
  if (args.has("--json")) {
    Json results = Json::array();
    for (const IoRun& run : *runs) results.push_back(run_json(run));
    print_json({{"path", target.name}, {"rounds", options.rounds}, {"results", results}});
    return 0;
  }
  print(kHead);
  for (const IoRun& run : *runs) print(row(run));
  const bool cached = std::any_of(runs->begin(), runs->end(), [](const IoRun& run) {
    return !run.setting.method.direct && run.refused.empty();
  });
  print(fmt::format("{} rounds, medians with the smallest and largest; latencies of single reads\n",
                    options.rounds));
  if (cached)
    print("reads through the page cache: what they read was dropped from it before each round\n");
  return 0;
}

}  // namespace wader
