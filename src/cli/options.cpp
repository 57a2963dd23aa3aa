#include "cli/options.h"

#include <fmt/format.h>
#include <unistd.h>

#include <cerrno>
#include <charconv>
#include <cstdlib>
#include <ctime>
#include <limits>
#include <random>

#include "base/error.h"
#include "base/units.h"
#include "cli/console.h"
#include "cli/in_place.h"
#include "cli/text.h"
#include "install/models.h"

namespace wader {
namespace {

constexpr uint64_t kMaxU32 = std::numeric_limits<uint32_t>::max();

Status whole_u32(const Args& args, std::string_view flag, uint32_t min, uint32_t& value) {
  if (args.text(flag) == "auto") return {};
  ASSIGN_OR_RETURN(const uint64_t number, args.whole(flag, min, kMaxU32, value));
  value = static_cast<uint32_t>(number);
  return {};
}

Status apply_sampling_flags(const Args& args, SamplingParams& params) {
  ASSIGN_OR_RETURN(params.temperature, args.number("--temperature", params.temperature));
  ASSIGN_OR_RETURN(const uint64_t top_k,
                   args.whole("--top-k", 0, std::numeric_limits<uint64_t>::max(), params.top_k));
  params.top_k = static_cast<uint32_t>(std::min(top_k, kMaxU32));
  ASSIGN_OR_RETURN(params.top_p, args.number("--top-p", params.top_p));
  ASSIGN_OR_RETURN(params.min_p, args.number("--min-p", params.min_p));
  ASSIGN_OR_RETURN(params.repetition_penalty,
                   args.number("--repetition-penalty", params.repetition_penalty));
  ASSIGN_OR_RETURN(params.presence_penalty,
                   args.number("--presence-penalty", params.presence_penalty));
  ASSIGN_OR_RETURN(params.frequency_penalty,
                   args.number("--frequency-penalty", params.frequency_penalty));
  ASSIGN_OR_RETURN(params.seed,
                   args.whole("--seed", 0, std::numeric_limits<uint64_t>::max(), params.seed));
  if (args.has("--greedy")) {
    if (args.has("--temperature") && params.temperature != 0) {
      return invalid_argument_error("--greedy and --temperature {} exclude each other",
                                    args.text("--temperature"));
    }
    params.temperature = 0;
  }
  return validate_sampling(params);
}

// Of a switch that is on unless it is turned off.
Result<bool> on_or_off(const Args& args, std::string_view flag) {
  const std::string value = args.text(flag, "on");
  if (value != "on" && value != "off")
    return invalid_argument_error("{} must be on or off, not '{}'", flag, value);
  return value == "on";
}

bool valid_date(std::string_view text) {
  if (text.size() != 10 || text[4] != '-' || text[7] != '-') return false;
  const auto part = [&](size_t from, size_t count) {
    int value = -1;
    const auto [stop, code] =
        std::from_chars(text.data() + from, text.data() + from + count, value);
    return code == std::errc{} && stop == text.data() + from + count ? value : -1;
  };
  const int year = part(0, 4), month = part(5, 2), day = part(8, 2);
  if (year < 1 || month < 1 || month > 12 || day < 1) return false;
  static constexpr int kDays[] = {31, 28, 31, 30, 31, 30, 31, 31, 30, 31, 30, 31};
  const bool leap = (year % 4 == 0 && year % 100 != 0) || year % 400 == 0;
  return day <= kDays[month - 1] + (month == 2 && leap ? 1 : 0);
}

std::string date_text(const std::tm& date) {
  return fmt::format("{:04}-{:02}-{:02}", date.tm_year + 1900, date.tm_mon + 1, date.tm_mday);
}

}  // namespace

Result<EngineOptions> engine_options(const Args& args) {
  EngineOptions options;
  ASSIGN_OR_RETURN(options.memory_bytes, args.bytes("--memory", 0));
  RETURN_IF_ERROR(whole_u32(args, "--context", 1, options.context));
  RETURN_IF_ERROR(whole_u32(args, "--chunk", 1, options.chunk));
  RETURN_IF_ERROR(whole_u32(args, "--slots", 1, options.slots));
  RETURN_IF_ERROR(whole_u32(args, "--threads", 1, options.threads));
  options.kernels = args.text("--kernels", options.kernels);
  options.cache_policy = args.text("--cache-policy", options.cache_policy);
  options.io = args.text("--io", options.io);
  options.direct = args.text("--direct", options.direct);
  options.lookahead = args.text("--lookahead", options.lookahead);
  if (args.command() == Command::chat || args.command() == Command::generate ||
      args.command() == Command::serve) {
    ASSIGN_OR_RETURN(options.keeps_usage, on_or_off(args, "--usage"));
  }
  ASSIGN_OR_RETURN(options.governor, on_or_off(args, "--governor"));
  RETURN_IF_ERROR(validate_engine_options(options));
  return options;
}

Result<SamplingParams> sampling_params(const Args& args, const SamplingParams& defaults) {
  SamplingParams params = defaults;
  if (!args.has("--seed")) {
    std::random_device random;
    params.seed = random();  // 32 bits: short enough to be typed again
  }
  RETURN_IF_ERROR(apply_sampling_flags(args, params));
  return params;
}

Status check_sampling_flags(const Args& args) {
  SamplingParams params;
  RETURN_IF_ERROR(apply_sampling_flags(args, params));
  if (args.command() == Command::trace) return {};  // its limit is --count
  const Result<uint32_t> limit = max_tokens(args);
  return limit.ok() ? Status() : Status(limit.error());
}

Result<uint32_t> max_tokens(const Args& args) {
  ASSIGN_OR_RETURN(const uint64_t limit, args.whole("--max-tokens", 1, kMaxU32, 0));
  return static_cast<uint32_t>(limit);
}

Result<std::optional<ReasoningEffort>> reasoning_effort(const Args& args) {
  std::optional<ReasoningEffort> effort;
  if (!args.has("--reasoning")) return effort;
  const std::string text = args.text("--reasoning");
  if (text == "low") {
    effort = ReasoningEffort::low;
  } else if (text == "medium") {
    effort = ReasoningEffort::medium;
  } else if (text == "high") {
    effort = ReasoningEffort::high;
  } else if (text == "off") {
    effort = ReasoningEffort::off;
  } else {
    return invalid_argument_error("--reasoning must be low, medium, high or off, not '{}'", text);
  }
  return effort;
}

Result<std::string> conversation_date(const Args& args) {
  if (args.has("--date")) {
    const std::string date = args.text("--date");
    if (valid_date(date)) return date;
    return invalid_argument_error("--date must be a day as YYYY-MM-DD, not '{}'", date);
  }
  std::tm date = {};
  if (const char* epoch = std::getenv("SOURCE_DATE_EPOCH"); epoch != nullptr && *epoch != '\0') {
    const std::string_view text(epoch);
    int64_t seconds = 0;
    const auto [stop, code] = std::from_chars(text.data(), text.data() + text.size(), seconds);
    constexpr int64_t kMaxSeconds = 253402300799;  // the last second of the year 9999
    if (code != std::errc{} || stop != text.data() + text.size() || seconds < 0 ||
        seconds > kMaxSeconds) {
      return invalid_argument_error("SOURCE_DATE_EPOCH must be seconds since 1970, not '{}'", text);
    }
    const std::time_t time = seconds;
    gmtime_r(&time, &date);
  } else {
    const std::time_t now = std::time(nullptr);
    localtime_r(&now, &date);
  }
  return date_text(date);
}

Error not_usage(Error error) {
  if (error.code == ErrorCode::invalid_argument) error.code = ErrorCode::corrupt;
  return error;
}

Result<Container> open_container(const Args& args) {
  ASSIGN_OR_RETURN(const std::filesystem::path path, container_of(args.operand(0)));
  Result<Container> container = Container::open(path);
  if (!container.ok()) return not_usage(std::move(container).error());
  return container;
}

void warn_of_overcommit(const MemoryPlan& plan) {
  if (plan.total_bytes() <= plan.available_bytes) return;
  print_note(fmt::format(
      "warning: this plan takes {}, the machine has {} left: the system may end the program",
      format_bytes(plan.total_bytes()), format_bytes(plan.available_bytes)));
}

Result<std::unique_ptr<Engine>> open_engine(const Container& container,
                                            const EngineOptions& options) {
  auto engine = Engine::open(container.directory(), options);
  if (!engine.ok()) return not_usage(std::move(engine).error());
  warn_of_overcommit((*engine)->plan());
  return engine;
}

Result<std::vector<int32_t>> token_ids_flag(const Args& args, std::string_view flag,
                                            uint32_t limit) {
  std::string text = args.text(flag);
  if (text == "-") {
    ASSIGN_OR_RETURN(text, read_input(kMaxInputBytes));
  } else if (text.starts_with('@')) {
    ASSIGN_OR_RETURN(text, read_text_file(text.substr(1), kMaxInputBytes));
  }
  Result<std::vector<int32_t>> ids = parse_token_ids(text, limit);
  if (!ids.ok()) return std::move(ids).error().within(flag);
  return ids;
}

Result<std::string> read_input(uint64_t max_bytes) {
  std::string text;
  char buffer[64 << 10];
  for (;;) {
    if (!wait_for_input()) return cancelled_error("stopped while reading standard input");
    const ssize_t count = read(STDIN_FILENO, buffer, sizeof buffer);
    if (count < 0 && errno == EINTR) continue;
    if (count < 0) return errno_error(errno, "standard input");
    if (count == 0) return text;
    text.append(buffer, static_cast<size_t>(count));
    if (text.size() > max_bytes) {
      return over_budget_error("standard input holds more than {} bytes", max_bytes);
    }
  }
}

}  // namespace wader
