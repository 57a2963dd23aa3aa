#include "cli/stats_view.h"

#include <fmt/format.h>

#include <algorithm>
#include <array>
#include <cmath>

#include "base/units.h"
#include "cli/report.h"
#include "cli/text.h"

namespace wader {
namespace {

constexpr size_t kLabelColumns = 11, kLeastColumns = 20, kWidestBar = 66;
constexpr std::string_view kReset = "\x1b[0m";

// A text and what it looks like: an SGR sequence, or nothing.
struct Span {
  std::string text;
  std::string_view look = {};
};
using Spans = std::vector<Span>;

constexpr std::string_view kBold = "\x1b[1m", kDim = "\x1b[2m", kAlarm = "\x1b[33m";
// Of parts of a bar, by position; letters tell them apart without colour.
constexpr std::array<std::string_view, 8> kPartLooks = {
    "\x1b[34m", "\x1b[36m", "\x1b[35m", "\x1b[33m", "\x1b[32m", "\x1b[31m", "\x1b[94m", "\x1b[37m"};

std::string percent(double share) {
  return std::isfinite(share) ? fmt::format("{:.1f} %", 100 * share) : "-";
}

std::string tokens_per_second(double rate) {
  return fmt::format("{:.{}f} tok/s", rate, rate < 1000 ? 1 : 0);
}

std::string count(double value) {
  return fmt::format("{:.0f}", value);
}

std::string uptime(double seconds) {
  return seconds < 60 ? fmt::format("{:.0f} s", std::floor(seconds)) : format_seconds(seconds);
}

size_t columns_of_spans(const Spans& spans) {
  size_t columns = 0;
  for (const Span& span : spans) columns += columns_of(span.text);
  return columns;
}

// The first `columns` code points.
std::string_view first_columns(std::string_view text, size_t columns) {
  size_t end = 0;
  for (; end < text.size(); ++end) {
    const bool begins = (static_cast<unsigned char>(text[end]) & 0xC0) != 0x80;
    if (begins && columns-- == 0) break;
  }
  return text.substr(0, end);
}

// Lines of the screen, each a label and items that go on below the first where they do not fit.
class Lines {
 public:
  explicit Lines(const ScreenStyle& style)
      : style_(style), columns_(std::max(style.columns, kLeastColumns)) {}

  size_t room() const { return columns_ - kLabelColumns; }
  size_t bar_room() const { return std::min(room() - 2, kWidestBar); }  // brackets beside it

  void row(std::string_view label, const std::vector<Spans>& items) {
    Spans line = {{pad_to(label, kLabelColumns), kDim}};
    bool first = true;
    for (const Spans& item : items) {
      if (!first && columns_of_spans(line) + 2 + columns_of_spans(item) > columns_) {
        add(line);
        line = {{std::string(kLabelColumns, ' ')}};
        first = true;
      }
      if (!first) line.push_back({"  "});
      line.insert(line.end(), item.begin(), item.end());
      first = false;
    }
    add(line);
  }
  void row(std::string_view label, const std::vector<std::string>& items) {
    std::vector<Spans> spans;
    for (const std::string& item : items) spans.push_back({{item}});
    row(label, spans);
  }

  // Cut at the screen's edge.
  void add(const Spans& spans) {
    std::string line;
    size_t left = columns_;
    for (const Span& span : spans) {
      const std::string_view shown = first_columns(span.text, left);
      left -= columns_of(shown);
      const bool styled = style_.colour && !span.look.empty() && !shown.empty();
      if (styled) line += span.look;
      line += shown;
      if (styled) line += kReset;
    }
    while (line.ends_with(' ')) line.pop_back();
    lines_.push_back(std::move(line));
  }

  void note(std::string_view text) {
    for (const std::string& line : wrap(text, columns_)) add({{line, kAlarm}});
  }

  std::vector<std::string> take() {
    if (style_.lines > 0 && lines_.size() > style_.lines) lines_.resize(style_.lines);
    return std::move(lines_);
  }

 private:
  const ScreenStyle& style_;
  size_t columns_;
  std::vector<std::string> lines_;
};

// "[PPTTEE..]": runs of a letter, each with its part's look.
Spans bar_spans(std::string_view bar, std::string_view letters) {
  Spans spans = {{"["}};
  for (size_t begin = 0; begin < bar.size();) {
    const size_t end = std::min(bar.find_first_not_of(bar[begin], begin), bar.size());
    const size_t part = letters.find(bar[begin]);
    spans.push_back({std::string(bar.substr(begin, end - begin)),
                     part == letters.npos ? kDim : kPartLooks[part % kPartLooks.size()]});
    begin = end;
  }
  spans.push_back({"]"});
  return spans;
}

void show_memory(Lines& lines, const StatsSnapshot& now) {
  const PlanBar bar = plan_bar(now.plan, lines.bar_room());
  std::string letters;
  std::vector<Spans> legend;
  for (const PlanPart& part : plan_parts(now.plan)) {
    letters += part.letter;
    if (part.bytes == 0) continue;
    legend.push_back(
        {{std::string(1, part.letter), kPartLooks[(letters.size() - 1) % kPartLooks.size()]},
         {fmt::format(" {} {}", part.name, format_bytes(part.bytes))}});
  }
  const double resident =
      static_cast<double>(now.resident_bytes) / static_cast<double>(bar.whole_bytes);
  lines.row("memory", {fmt::format("budget {},", format_bytes(now.plan.budget_bytes)),
                       fmt::format("planned {},", format_bytes(now.plan.total_bytes())),
                       fmt::format("resident {}", format_bytes(now.resident_bytes))});
  lines.row("  plan", std::vector<Spans>{bar_spans(bar.text, letters)});
  lines.row("  resident", std::vector<Spans>{bar_spans(
                              wader::bar(resident, static_cast<int>(lines.bar_room())), "#")});
  lines.row("", legend);
}

void show_speed(Lines& lines, const StatsHistory& history, const std::optional<StatsRates>& rates,
                bool blocks) {
  const StatsSnapshot& now = history.last();
  lines.row("answers",
            {fmt::format("{} running,", now.running), fmt::format("{} in the queue;", now.queued),
             fmt::format("up to {} at a time", now.plan.sessions)});
  const auto rate = [&](double StatsRates::*figure) {
    return rates ? tokens_per_second(*rates.*figure) : "-";
  };
  lines.row("speed", {fmt::format("{} of answers,", rate(&StatsRates::answer_tokens_per_second)),
                      fmt::format("{} of prompts", rate(&StatsRates::prompt_tokens_per_second))});
  const std::vector<double> minute = history.answer_tokens_by_second();
  if (minute.size() < 2) return;
  const std::string most =
      fmt::format("at most {}", tokens_per_second(*std::ranges::max_element(minute)));
  lines.row(fmt::format("  {} s", minute.size()),
            {sparkline(minute, std::min(lines.room(), StatsHistory::kSeconds), blocks), most});
}

void show_reads(Lines& lines, const StatsSnapshot& now, const std::optional<StatsRates>& rates) {
  using enum StatsCounter;
  std::vector<std::string> disk = {rates ? format_rate(rates->read_bytes_per_second)
                                         : std::string("-")};
  if (rates && now.disk_bytes_per_second && *now.disk_bytes_per_second > 0) {
    const double share = rates->read_bytes_per_second / *now.disk_bytes_per_second;
    disk.push_back(fmt::format("[{}]", bar(share, 20)));
    disk.push_back(fmt::format("{} of the {} it can do", percent(share),
                               format_rate(*now.disk_bytes_per_second)));
  }
  disk.back() += ",";
  disk.push_back(fmt::format("{} in all", format_bytes(static_cast<uint64_t>(now[bytes_read]))));
  lines.row("disk", disk);
  const double all_hits = share_of(now[hits], now[hits] + now[misses]);
  lines.row("experts", {fmt::format("{} found in memory,", rates ? percent(rates->hit_share) : "-"),
                        fmt::format("{} since the start", percent(all_hits))});
  lines.row("lookahead",
            {fmt::format("{} right,", rates ? percent(rates->right_share) : "-"),
             fmt::format("{} of the reading hidden", rates ? percent(rates->hidden_share) : "-")});
}

void show_phases(Lines& lines, const std::optional<StatsRates>& rates) {
  constexpr std::string_view kLetters = "MREAHW";
  constexpr std::array<std::string_view, kStatsPhases> kNames = {
      "mixer", "router", "experts", "lookahead", "head", "waiting for the disk"};
  if (!rates || !(rates->passes_seconds > 0)) {
    lines.row("time", std::vector<std::string>{rates ? "nothing was computed" : "-"});
    return;
  }
  std::string text;
  std::vector<Spans> legend;
  double sum = 0;
  const size_t width = lines.bar_room();
  for (size_t i = 0; i < kStatsPhases; ++i) {
    sum += rates->phase_shares[i];
    const auto end = static_cast<size_t>(std::lround(sum * static_cast<double>(width)));
    if (end > text.size()) text.resize(std::min(end, width), kLetters[i]);
    legend.push_back({{std::string(1, kLetters[i]), kPartLooks[i]},
                      {fmt::format(" {} {}", kNames[i], percent(rates->phase_shares[i]))}});
  }
  lines.row("time", std::vector<Spans>{bar_spans(text, kLetters)});
  lines.row("", legend);
}

void show_totals(Lines& lines, const StatsSnapshot& now) {
  using enum StatsCounter;
  lines.row("requests", {fmt::format("{} finished,", count(now[finished])),
                         fmt::format("{} cancelled,", count(now[cancelled])),
                         fmt::format("{} failed,", count(now[failed])),
                         fmt::format("{} refused", count(now[refused]))});
  lines.row("slots", {fmt::format("{} of {} in use;", now.usable_slots, now.plan.slots),
                      fmt::format("shrunk {},", count(now[pool_shrinks])),
                      fmt::format("grown {} times", count(now[pool_growths]))});
}

}  // namespace

std::string sparkline(const std::vector<double>& values, size_t width, bool blocks) {
  constexpr std::array<std::string_view, 8> kBlocks = {"▁", "▂", "▃", "▄", "▅", "▆", "▇", "█"};
  constexpr std::array<std::string_view, 8> kAscii = {"_", ".", ":", "-", "=", "+", "*", "#"};
  const auto& levels = blocks ? kBlocks : kAscii;
  double most = 0;
  const size_t begin = values.size() > width ? values.size() - width : 0;
  for (size_t i = begin; i < values.size(); ++i) most = std::max(most, values[i]);
  std::string line;
  for (size_t i = begin; i < values.size(); ++i) {
    const double share = most > 0 ? std::clamp(values[i] / most, 0.0, 1.0) : 0;
    // The lowest level is for nothing at all, so that little can be told from it.
    const double level = share > 0 ? std::max(1.0, std::round(7 * share)) : 0;
    line += levels[static_cast<size_t>(level)];
  }
  return line;
}

std::vector<std::string> stats_lines(const StatsHistory& history, std::string_view address,
                                     double seconds, std::string_view notice,
                                     const ScreenStyle& style) {
  Lines lines(style);
  if (history.empty()) {
    lines.add({{terminal_safe_line(address), kBold}});
  } else {
    const StatsSnapshot& now = history.last();
    lines.row("wader", std::vector<Spans>{{{terminal_safe_line(now.model), kBold},
                                           {fmt::format(" ({})", terminal_safe_line(now.family))}},
                                          {{terminal_safe_line(address)}},
                                          {{fmt::format("up {}", uptime(now.uptime_seconds))}}});
    const std::optional<StatsRates> rates = history.rates(seconds);
    if (!notice.empty()) lines.note(terminal_safe_line(notice));
    show_memory(lines, now);
    show_speed(lines, history, rates, style.blocks);
    show_reads(lines, now, rates);
    show_phases(lines, rates);
    show_totals(lines, now);
    if (rates)
      lines.row(
          "",
          std::vector<Spans>{
              {{fmt::format("Rates and shares are of the last {:.0f} s.", rates->seconds), kDim}}});
    return lines.take();
  }
  if (!notice.empty()) lines.note(terminal_safe_line(notice));
  return lines.take();
}

}  // namespace wader
