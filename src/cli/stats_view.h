// What `wader stats` shows, as lines of text. Pure.
#pragma once

#include <cstddef>
#include <string>
#include <string_view>
#include <vector>

#include "server/stats_figures.h"

namespace wader {

struct ScreenStyle {
  size_t columns = 80;  // no line needs more; at least 20 are used
  size_t lines = 0;     // at most so many, the last ones go; 0: no bound
  bool colour = false;  // SGR sequences; without it no control character at all
  bool blocks = false;  // Unicode's block elements for the sparkline, else ASCII
};

// A cell each of the last `width` values; the highest value fills it.
std::string sparkline(const std::vector<double>& values, size_t width, bool blocks);

// The server at `address`, its figures over the last `seconds`, and `notice`, where there is one:
// what is wrong just now. Strings of the server are made safe for a terminal here.
std::vector<std::string> stats_lines(const StatsHistory& history, std::string_view address,
                                     double seconds, std::string_view notice,
                                     const ScreenStyle& style);

}  // namespace wader
