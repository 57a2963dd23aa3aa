// What repeated measurements say. Machines drift: a figure is a median with its spread, and two
// settings are compared round by round, each round's pair measured one after the other. Pure.
#pragma once

#include <cstddef>
#include <cstdint>
#include <span>

namespace wader {

struct Spread {
  double median = 0, smallest = 0, largest = 0;
};

// At least one value; of an even number the median is the mean of the middle two.
Spread spread_of(std::span<const double> values);

// Value below which the share `fraction` of the ascending values lies (nearest rank); at least one
// value.
double percentile(std::span<const double> ascending, double fraction);

// The round that stands for all: its value is the median, or the lower of the middle two.
size_t median_index(std::span<const double> values);

// Two-sided sign test: the probability that of `wins` + `losses` fair coins at least as many fall
// on one side. 1 without any.
double sign_test(uint32_t wins, uint32_t losses);

// b against a, pair by pair. A pair of equal values counts for neither.
struct Comparison {
  Spread ratio;                      // of b(i) / a(i)
  uint32_t larger = 0, smaller = 0;  // pairs in which b is
  double p_value = 1;                // of the sign test
};

// As many values of each, at least one, all positive.
Comparison compare_pairs(std::span<const double> a, std::span<const double> b);

}  // namespace wader
