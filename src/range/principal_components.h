// Principal component analysis (Pearson 1901): the three directions in which points differ most.
// The same bits for the same points: an eigenvector's sign, which is arbitrary, is chosen so that
// its component of largest magnitude, the first of equals, is positive.
#pragma once

#include <array>
#include <cstddef>
#include <span>
#include <vector>

namespace wader {

struct PrincipalComponents {
  std::vector<double> mean;                 // (columns)
  std::array<std::vector<double>, 3> axes;  // each (columns), of length 1; zero where there is none
  // Shares of the whole variance, falling; zero where the points do not differ.
  std::array<double, 3> explained{};
};

// Of the rows of `points` (rows, columns), row-major, columns > 0. Rounding is no direction: one
// with less than 1e-12 of the variance counts as none.
PrincipalComponents principal_components(std::span<const double> points, size_t columns);

// Coordinates of `point` (columns) along the axes, from the mean.
std::array<double, 3> project(const PrincipalComponents& components, std::span<const double> point);

}  // namespace wader
