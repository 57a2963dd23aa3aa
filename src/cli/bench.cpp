#include <fmt/format.h>

#include <algorithm>
#include <charconv>
#include <limits>
#include <map>
#include <memory>
#include <optional>

#include "base/error.h"
#include "base/machine.h"
#include "base/units.h"
#include "cli/bench_report.h"
#include "cli/commands.h"
#include "cli/console.h"
#include "cli/options.h"
#include "io/aligned_buffer.h"
#include "io/read_queue.h"
#include "measure/mapped_experts.h"

namespace wader {
namespace {

// Of --disk-rate: what an NVMe disk takes to begin.
constexpr double kModelDiskLatencySeconds = 100e-6;
constexpr uint32_t kModelDiskReads = 64;
// A read is not interrupted: it must end in reasonable time.
constexpr uint64_t kLeastModelDiskRate = kMiB;

constexpr uint32_t kMaxRounds = 10'000;
constexpr uint32_t kMaxThreads = 1024;
constexpr uint32_t kMaxCount = 1u << 24;  // beyond every context

Result<uint32_t> whole_u32(const Args& args, std::string_view flag, uint32_t most,
                           uint32_t fallback) {
  ASSIGN_OR_RETURN(const uint64_t value, args.whole(flag, 1, most, fallback));
  return static_cast<uint32_t>(value);
}

bool is_pair(const Args& args) {
  return args.has("--a") || args.has("--b");
}

// The command line alone, or the two settings of --a and --b; one left out is what stands beside.
Result<std::vector<Args>> settings_of(const Args& args, std::span<const std::string_view> allowed) {
  if (!is_pair(args)) return std::vector<Args>{args};
  ASSIGN_OR_RETURN(Args a, args.with_setting("--a", allowed));
  ASSIGN_OR_RETURN(Args b, args.with_setting("--b", allowed));
  return std::vector<Args>{std::move(a), std::move(b)};
}

// bench kernels

// A number before and after an x: "2880x768".
Result<std::pair<uint32_t, uint32_t>> parse_shape(const std::string& text) {
  uint32_t rows = 0, cols = 0;
  const char* const end = text.data() + text.size();
  const auto first = std::from_chars(text.data(), end, rows);
  if (first.ec == std::errc{} && first.ptr != end && *first.ptr == 'x') {
    const auto second = std::from_chars(first.ptr + 1, end, cols);
    if (second.ec == std::errc{} && second.ptr == end) return std::pair{rows, cols};
  }
  return invalid_argument_error("--shape must be ROWSxCOLUMNS such as 2880x2880, not '{}'", text);
}

Result<std::optional<KernelOpKind>> kernel_op(const Args& args) {
  const std::string name = args.text("--op", "all");
  for (const KernelOpKind op : kKernelOps)
    if (kernel_op_name(op) == name) return std::optional(op);
  if (name == "all") return std::optional<KernelOpKind>();
  return invalid_argument_error("--op must be matmul, attend, delta or all, not '{}'", name);
}

// A shape without an operation is a matrix's.
Result<std::vector<KernelCase>> cases_of_shape(const Args& args, std::optional<KernelOpKind> op,
                                               const std::optional<MatrixFormat>& format) {
  ASSIGN_OR_RETURN(const auto shape, parse_shape(args.text("--shape")));
  const KernelOpKind kind = op.value_or(KernelOpKind::matmul);
  std::vector<MatrixFormat> formats = {DType::mxfp4, DType::affine4, DType::affine8};
  if (format) formats = {*format};
  if (kind != KernelOpKind::matmul) formats = {MatrixFormat()};
  std::vector<KernelCase> cases;
  for (const MatrixFormat& one : formats)
    for (const uint32_t tokens : {1u, 16u, 128u})
      cases.push_back({kind, one, shape.first, shape.second, tokens});
  return cases;
}

std::vector<KernelCase> released_cases(std::optional<KernelOpKind> op,
                                       const std::optional<MatrixFormat>& format) {
  std::vector<KernelCase> all = released_kernel_cases(), cases;
  // A format that is none of the usual takes their shapes: mxfp4's stand for all.
  const bool usual = format && std::any_of(all.begin(), all.end(), [&](const KernelCase& c) {
                       return c.op == KernelOpKind::matmul && c.format == *format;
                     });
  for (KernelCase c : all) {
    if (op && c.op != *op) continue;
    if (format) {
      const MatrixFormat shape_of = usual ? *format : MatrixFormat(DType::mxfp4);
      if (c.op != KernelOpKind::matmul || c.format != shape_of) continue;
      c.format = *format;
    }
    cases.push_back(c);
  }
  return cases;
}

// The same shapes with `tokens`, each once.
void set_tokens(std::vector<KernelCase>& cases, uint32_t tokens) {
  std::erase_if(cases, [](const KernelCase& c) { return c.tokens != 1; });
  for (KernelCase& c : cases) c.tokens = tokens;
}

Result<std::vector<KernelCase>> kernel_cases(const Args& args) {
  std::optional<MatrixFormat> format;
  if (args.has("--format")) {
    format = format_from_name(args.text("--format"));
    if (!format)
      return invalid_argument_error("--format '{}' is no format; try mxfp4, affine4 or affine8",
                                    args.text("--format"));
  }
  ASSIGN_OR_RETURN(const uint32_t tokens, whole_u32(args, "--tokens", 1u << 16, 0));
  ASSIGN_OR_RETURN(const std::optional<KernelOpKind> op, kernel_op(args));
  if (format && op && *op != KernelOpKind::matmul)
    return invalid_argument_error("--format is of weights, which {} has none of",
                                  kernel_op_name(*op));
  ASSIGN_OR_RETURN(std::vector<KernelCase> cases, args.has("--shape")
                                                      ? cases_of_shape(args, op, format)
                                                      : released_cases(op, format));
  if (tokens > 0) set_tokens(cases, tokens);
  ASSIGN_OR_RETURN(const uint32_t matrices, whole_u32(args, "--matrices", 1u << 10, 1));
  if (matrices > 1 && !op)
    std::erase_if(cases, [](const KernelCase& c) { return c.op != KernelOpKind::matmul; });
  for (KernelCase& c : cases) c.matrices = matrices;
  for (const KernelCase& c : cases) RETURN_IF_ERROR(check_kernel_case(c));
  return cases;
}

// What a run of `bench kernels` measures with: back ends, and a pool for each thread count.
class KernelSettings {
 public:
  static Result<KernelSettings> from(const Args& args) {
    constexpr std::string_view kAllowed[] = {"--kernels", "--threads"};
    ASSIGN_OR_RETURN(const std::vector<Args> parts, settings_of(args, kAllowed));
    KernelSettings out;
    for (const Args& part : parts) {
      ASSIGN_OR_RETURN(ThreadPool * pool, out.pool_for(part));
      const std::string name = part.text("--kernels", parts.size() == 2 ? "auto" : "all");
      if (name == "all" && parts.size() == 2)
        return invalid_argument_error(
            "--a and --b compare two settings: give each one back end, not --kernels all");
      if (name == "all") {
        for (const Kernels* kernels : available_kernels()) out.all_.push_back({kernels, pool});
        continue;
      }
      auto kernels = select_kernels(name);
      if (!kernels.ok()) return std::move(kernels).error().within("--kernels");
      out.all_.push_back({*kernels, pool});
    }
    return out;
  }
  const std::vector<KernelSetting>& all() const { return all_; }
  // The limits of the machine are measured with the most threads of any setting.
  ThreadPool& widest() { return *pools_.rbegin()->second; }

 private:
  Result<ThreadPool*> pool_for(const Args& part) {
    uint32_t threads = 0;
    if (part.text("--threads", "auto") == "auto") {
      threads = choose_threads(process_affinity()).threads;
    } else {
      ASSIGN_OR_RETURN(threads, whole_u32(part, "--threads", kMaxThreads, 1));
    }
    auto& pool = pools_[threads];
    if (pool == nullptr) pool = std::make_unique<ThreadPool>(static_cast<int>(threads));
    if (pool->size() < static_cast<int>(threads))
      return io_error("the system started only {} of {} threads; use --threads {}", pool->size(),
                      threads, pool->size());
    return pool.get();
  }

  std::vector<KernelSetting> all_;
  std::map<uint32_t, std::unique_ptr<ThreadPool>> pools_;
};

Comparison compare_kernels(const KernelRun& run) {
  std::vector<double> speeds[2];
  for (size_t i = 0; i < 2; ++i)
    for (const double seconds : run.seconds[i]) speeds[i].push_back(1 / seconds);
  return compare_pairs(speeds[0], speeds[1]);
}

// bench decode and prefill

Result<EngineBenchOptions> engine_bench_options(const Args& args, EngineWork work) {
  EngineBenchOptions options;
  options.work = work;
  const bool decode = work == EngineWork::decode;
  ASSIGN_OR_RETURN(options.count, whole_u32(args, "--count", kMaxCount, decode ? 64 : 512));
  ASSIGN_OR_RETURN(options.rounds, whole_u32(args, "--rounds", kMaxRounds, is_pair(args) ? 9 : 3));
  ASSIGN_OR_RETURN(options.seed, args.whole("--seed", 0, std::numeric_limits<uint64_t>::max(), 1));
  if (decode) {
    ASSIGN_OR_RETURN(options.prompt_tokens, whole_u32(args, "--prompt-tokens", kMaxCount, 32));
    ASSIGN_OR_RETURN(options.temperature, args.number("--temperature", 0));
    SamplingParams sampling;
    sampling.temperature = options.temperature;
    RETURN_IF_ERROR(validate_sampling(sampling));
  }
  options.cancel = &interrupted();
  options.on_step = [](const std::string& step) { show_status(step); };
  return options;
}

std::vector<std::string_view> engine_flags(Command command) {
  std::vector<std::string_view> names;
  for (const FlagSpec& flag : flag_specs())
    if (flag.group == FlagGroup::engine && flag.belongs_to(command)) names.push_back(flag.name);
  for (const std::string_view name : {"--mmap", "--disk-rate"}) names.push_back(name);
  return names;
}

Result<int> run_bench_engine(const Args& args, EngineWork work) {
  ASSIGN_OR_RETURN(const EngineBenchOptions options, engine_bench_options(args, work));
  ASSIGN_OR_RETURN(const std::vector<Args> parts, settings_of(args, engine_flags(args.command())));
  ASSIGN_OR_RETURN(const Container container, open_container(args));
  std::vector<EngineOptions> settings;
  for (const Args& part : parts) {
    ASSIGN_OR_RETURN(EngineOptions setting, engine_options(part));
    if (setting.context > 0 && setting.context < context_needed(options))
      return invalid_argument_error("--context {} is less than the {} tokens of a round",
                                    setting.context, context_needed(options));
    if (part.has("--mmap")) {
      setting.make_experts = map_experts;
      setting.slots = container.spec().experts_per_token;
      setting.lookahead = "off";
      setting.governor = false;
    }
    ASSIGN_OR_RETURN(const uint64_t disk_rate, part.bytes("--disk-rate", 0));
    if (part.has("--disk-rate") && disk_rate < kLeastModelDiskRate)
      return invalid_argument_error("--disk-rate {} is less than {} a second",
                                    part.text("--disk-rate"), format_bytes(kLeastModelDiskRate));
    if (disk_rate > 0) {
      // The bytes come from the page cache when the model says so: no real disk's time is added.
      setting.direct = "off";
      setting.make_read_queue = [disk_rate] {
        return make_throttled_read_queue(static_cast<double>(disk_rate), kModelDiskLatencySeconds,
                                         kModelDiskReads);
      };
    }
    settings.push_back(std::move(setting));
  }
  watch_interrupts();
  auto runs = bench_engine(container, settings, options);
  show_status("");
  if (!runs.ok()) return not_usage(std::move(runs).error());
  for (const EngineRun& run : *runs) warn_of_overcommit(run.plan);
  std::optional<Comparison> comparison;
  if (runs->size() == 2) comparison = compare_speed(*runs, options);
  if (args.has("--json")) {
    Json out = engine_json(runs->front(), options);
    if (comparison)
      out = {{"a", std::move(out)},
             {"b", engine_json(runs->back(), options)},
             {"comparison", comparison_json(*comparison, options.rounds)}};
    print_json(out);
    return 0;
  }
  print(engine_table(*runs, options));
  if (comparison) print(comparison_line(*comparison, options.rounds) + "\n");
  return 0;
}

}  // namespace

Result<int> run_bench_kernels(const Args& args) {
  ASSIGN_OR_RETURN(const std::vector<KernelCase> cases, kernel_cases(args));
  ASSIGN_OR_RETURN(const uint32_t rounds, whole_u32(args, "--rounds", kMaxRounds, 9));
  ASSIGN_OR_RETURN(KernelSettings settings, KernelSettings::from(args));
  const bool pair = is_pair(args), as_json = args.has("--json");
  ASSIGN_OR_RETURN(AlignedBuffer memory,
                   AlignedBuffer::allocate(kBandwidthBytes, AlignedBuffer::Pages::huge));
  std::fill(memory.data(), memory.data() + memory.size(), std::byte{1});
  MachineRates machine(settings.widest(), memory.span());
  watch_interrupts();
  Json results = Json::array(), comparisons = Json::array();
  std::vector<double> bandwidth, peak;
  if (!as_json) print(kernel_table_head());
  for (const KernelCase& c : cases) {
    if (interrupted()) return cancelled_error("stopped");
    show_status(fmt::format("{} {}x{}, {} tokens", kernel_op_name(c.op), c.rows, c.cols, c.tokens));
    ASSIGN_OR_RETURN(const KernelRun run, bench_kernel_case(c, settings.all(), rounds, machine));
    show_status("");
    bandwidth.insert(bandwidth.end(), run.bandwidth.begin(), run.bandwidth.end());
    peak.insert(peak.end(), run.int8_peak.back().begin(), run.int8_peak.back().end());
    for (size_t i = 0; i < settings.all().size(); ++i) {
      if (as_json)
        results.push_back(kernel_json(c, settings.all()[i], run, i));
      else
        print(kernel_table_row(c, settings.all()[i], kernel_figures(run, i)));
    }
    if (!pair) continue;
    if (as_json)
      comparisons.push_back(comparison_json(compare_kernels(run), rounds));
    else
      print(comparison_line(compare_kernels(run), rounds) + "\n");
    flush_output();
  }
  const Spread read = spread_of(bandwidth);
  if (as_json) {
    Json out = {{"threads", settings.widest().size()},
                {"rounds", rounds},
                {"memory_bandwidth", read.median},
                {"int8_peak", peak.empty() ? Json(nullptr) : Json(spread_of(peak).median)},
                {"results", std::move(results)}};
    if (pair) out["comparisons"] = std::move(comparisons);
    print_json(out);
  } else {
    print(fmt::format(
        "memory {:.1f} GB/s ({:.1f} to {:.1f}){}, {} threads, {} rounds\n", read.median / 1e9,
        read.smallest / 1e9, read.largest / 1e9,
        peak.empty() ? std::string()
                     : fmt::format(", 8-bit peak {:.0f} GOP/s ({:.0f} to {:.0f})",
                                   spread_of(peak).median / 1e9, spread_of(peak).smallest / 1e9,
                                   spread_of(peak).largest / 1e9),
        settings.widest().size(), rounds));
  }
  return 0;
}

Result<int> run_bench_decode(const Args& args) {
  return run_bench_engine(args, EngineWork::decode);
}

Result<int> run_bench_prefill(const Args& args) {
  return run_bench_engine(args, EngineWork::prefill);
}

}  // namespace wader
