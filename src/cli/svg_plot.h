// A line plot as SVG text: axes, a few round ticks, one line a series with its name. Follows the
// reader's light or dark scheme. Pure.
#pragma once

#include <span>
#include <string>
#include <string_view>
#include <vector>

namespace wader {

struct PlotSeries {
  std::string name;
  struct Point {
    double x, y;
  };
  std::vector<Point> points;  // ascending x
  bool is_bound = false;      // drawn dashed: what no series can get below
};

struct PlotLabels {
  std::string title, x, y;
};

// Both axes start at 0. Names and labels may hold any text. At least one point, all finite and ≥ 0.
std::string line_plot_svg(const PlotLabels& labels, std::span<const PlotSeries> series);

// The largest of 1, 2, 5 times a power of ten that divides `top` into at least four steps.
double tick_step(double top);

}  // namespace wader
