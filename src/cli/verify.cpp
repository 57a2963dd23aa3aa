#include <fmt/format.h>

#include <chrono>

#include "base/error.h"
#include "base/units.h"
#include "cli/commands.h"
#include "cli/console.h"
#include "cli/options.h"
#include "cli/text.h"

namespace wader {

Result<int> run_verify(const Args& args) {
  const bool json = args.has("--json");
  ASSIGN_OR_RETURN(const Container container, open_container(args));
  watch_interrupts();
  const auto start = std::chrono::steady_clock::now();
  auto report =
      verify_container(container, make_progress(json ? ProgressStyle::none : ProgressStyle::human));
  show_status("");
  if (!report.ok()) return not_usage(std::move(report).error());
  const std::chrono::duration<double> took = std::chrono::steady_clock::now() - start;
  if (json) {
    print_json({{"path", container.directory().string()},
                {"ok", report->problems.empty()},
                {"bytes", report->bytes},
                {"seconds", took.count()},
                {"problems", report->problems}});
    return report->problems.empty() ? 0 : 1;
  }
  for (const std::string& problem : report->problems) print(terminal_safe_line(problem) + "\n");
  const std::string size =
      fmt::format("{} in {}", format_bytes(report->bytes), format_seconds(took.count()));
  if (report->problems.empty()) {
    print(fmt::format("every checksum matches ({})\n", size));
    return 0;
  }
  return corrupt_error(
      "{} damaged part{} found ({})\n{}", report->problems.size(),
      report->problems.size() == 1 ? "" : "s", size,
      container.in_place()
          ? "get a damaged file of the checkpoint again; what wader made of it is made anew after "
            "wader rm"
          : "mend it with the command that installed it and --repair");
}

}  // namespace wader
