#include "cli/svg_plot.h"

#include <fmt/format.h>

#include <algorithm>
#include <array>
#include <cmath>

#include "base/check.h"
#include "cli/text.h"

namespace wader {
namespace {

constexpr double kWidth = 760, kHeight = 420;
constexpr double kLeft = 64, kRight = 150, kTop = 40, kBottom = 52;

// Mid-tones with a contrast of 3:1 or more on white and on #1a1a1a.
constexpr std::array<std::string_view, 8> kColours = {"#c7402d", "#2f7fd1", "#2b8f50", "#b0731c",
                                                      "#8f5fd0", "#c2478f", "#1e8c93", "#7a7a33"};
constexpr std::string_view kStyle =
    "text{font:13px system-ui,sans-serif;fill:#222}.paper{fill:#fff}.grid{stroke:#8884}"
    ".axis{stroke:#888}path{fill:none;stroke-width:2}.bound{stroke:#222;stroke-dasharray:6 4}"
    "@media(prefers-color-scheme:dark){text{fill:#ddd}.paper{fill:#1a1a1a}.bound{stroke:#ddd}}";

std::string escaped(std::string_view text) {
  std::string out;
  for (const char c : terminal_safe_line(text)) {
    if (c == '<')
      out += "&lt;";
    else if (c == '>')
      out += "&gt;";
    else if (c == '&')
      out += "&amp;";
    else if (c == '"')
      out += "&quot;";
    else
      out += c;
  }
  return out;
}

struct Scale {
  double x_top, y_top;
  double x(double value) const { return kLeft + value / x_top * (kWidth - kLeft - kRight); }
  double y(double value) const {
    return kHeight - kBottom - value / y_top * (kHeight - kTop - kBottom);
  }
};

std::string text_at(double x, double y, std::string_view anchor, std::string_view text) {
  return fmt::format("<text x=\"{:.1f}\" y=\"{:.1f}\" text-anchor=\"{}\">{}</text>\n", x, y, anchor,
                     escaped(text));
}
std::string line_at(std::string_view kind, double x1, double y1, double x2, double y2) {
  return fmt::format(
      "<line class=\"{}\" x1=\"{:.1f}\" y1=\"{:.1f}\" x2=\"{:.1f}\" y2=\"{:.1f}\"/>\n", kind, x1,
      y1, x2, y2);
}

std::string axes(const PlotLabels& labels, const Scale& scale) {
  const double right = kWidth - kRight, floor = kHeight - kBottom;
  std::string out;
  const double x_step = tick_step(scale.x_top), y_step = tick_step(scale.y_top);
  for (int i = 0; i * y_step <= scale.y_top * 1.0001; ++i) {
    const double y = scale.y(i * y_step);
    out += line_at("grid", kLeft, y, right, y);
    out += text_at(kLeft - 8, y + 4, "end", fmt::format("{:.6g}", i * y_step));
  }
  for (int i = 0; i * x_step <= scale.x_top * 1.0001; ++i)
    out += text_at(scale.x(i * x_step), floor + 20, "middle", fmt::format("{:.6g}", i * x_step));
  out += line_at("axis", kLeft, floor, right, floor);
  out += text_at(kLeft, 22, "start", labels.title);
  out += text_at((kLeft + right) / 2, kHeight - 10, "middle", labels.x);
  out += fmt::format(
      "<text x=\"16\" y=\"{0:.1f}\" text-anchor=\"middle\" transform=\"rotate(-90 16 {0:.1f})\">{1}"
      "</text>\n",
      (kTop + floor) / 2, escaped(labels.y));
  return out;
}

}  // namespace

double tick_step(double top) {
  CHECK(top > 0 && std::isfinite(top));
  const double power = std::pow(10, std::floor(std::log10(top)));
  for (const double step : {2.0, 1.0, 0.5, 0.2, 0.1})
    if (top / (step * power) >= 4) return step * power;
  UNREACHABLE("a tenth divides into ten");
}

std::string line_plot_svg(const PlotLabels& labels, std::span<const PlotSeries> series) {
  Scale scale{0, 0};
  for (const PlotSeries& one : series)
    for (const auto& point : one.points) {
      CHECK(std::isfinite(point.x) && std::isfinite(point.y) && point.x >= 0 && point.y >= 0);
      scale.x_top = std::max(scale.x_top, point.x);
      scale.y_top = std::max(scale.y_top, point.y);
    }
  if (scale.x_top == 0) scale.x_top = 1;
  if (scale.y_top == 0) scale.y_top = 1;
  std::string out = fmt::format(
      "<svg xmlns=\"http://www.w3.org/2000/svg\" viewBox=\"0 0 {0:.0f} {1:.0f}\" role=\"img\">\n"
      "<title>{2}</title>\n<style>{3}</style>\n"
      "<rect class=\"paper\" width=\"{0:.0f}\" height=\"{1:.0f}\"/>\n",
      kWidth, kHeight, escaped(labels.title), kStyle);
  out += axes(labels, scale);
  size_t colour = 0;
  for (size_t i = 0; i < series.size(); ++i) {
    const std::string stroke =
        series[i].is_bound
            ? std::string("class=\"bound\"")
            : fmt::format("style=\"stroke:{}\"", kColours[colour++ % kColours.size()]);
    std::string path;
    for (const auto& point : series[i].points)
      path += fmt::format("{}{:.1f} {:.1f}", path.empty() ? "M" : "L", scale.x(point.x),
                          scale.y(point.y));
    out += fmt::format("<path {} d=\"{}\"/>\n", stroke, path);
    const double y = kTop + 20.0 * static_cast<double>(i), x = kWidth - kRight + 16;
    out += fmt::format("<path {} d=\"M{:.1f} {:.1f}h22\"/>\n", stroke, x, y);
    out += text_at(x + 28, y + 4, "start", series[i].name);
  }
  return out + "</svg>\n";
}

}  // namespace wader
