#include "cli/svg_plot.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

namespace wader {
namespace {

using ::testing::HasSubstr;
using ::testing::Not;

TEST(SvgPlot, TicksAreRoundAndFourOrMore) {
  EXPECT_EQ(tick_step(10), 2);
  EXPECT_EQ(tick_step(8), 2);
  EXPECT_EQ(tick_step(4.9), 1);
  EXPECT_EQ(tick_step(1), 0.2);
  for (double top = 1e-6; top < 1e9; top *= 1.7) {
    EXPECT_GE(top / tick_step(top), 4);
    EXPECT_LE(top / tick_step(top), 11);
  }
}

TEST(SvgPlot, LinesStandBetweenTheAxes) {
  const PlotSeries series[] = {{"bound", {{0, 0}, {10, 4}}, true}, {"rule", {{0, 8}, {10, 4}}}};
  const std::string svg = line_plot_svg({"Title", "slots", "MiB"}, series);
  EXPECT_THAT(svg, HasSubstr("d=\"M64.0 368.0L610.0 204.0\""));  // from the origin to half height
  EXPECT_THAT(svg, HasSubstr("d=\"M64.0 40.0L610.0 204.0\""));
  EXPECT_THAT(svg, HasSubstr("class=\"bound\""));
  EXPECT_THAT(svg, HasSubstr(">slots</text>"));
}

TEST(SvgPlot, NamesCannotLeaveTheirText) {
  const PlotSeries series[] = {{"</text><script>\"&\x1b[2J", {{1, 1}}, false}};
  const std::string svg = line_plot_svg({"a<b", "x", "y"}, series);
  EXPECT_THAT(svg, Not(HasSubstr("<script")));
  EXPECT_THAT(svg, Not(HasSubstr("\x1b")));
  EXPECT_THAT(svg, HasSubstr("a&lt;b"));
}

TEST(SvgPlot, NothingButZerosIsStillAPlot) {
  const PlotSeries series[] = {{"a", {{0, 0}}, false}};
  EXPECT_THAT(line_plot_svg({"t", "x", "y"}, series), HasSubstr("</svg>"));
}

}  // namespace
}  // namespace wader
