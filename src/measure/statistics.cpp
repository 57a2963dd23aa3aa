#include "measure/statistics.h"

#include <algorithm>
#include <cmath>
#include <numeric>
#include <vector>

#include "base/check.h"

namespace wader {

Spread spread_of(std::span<const double> values) {
  CHECK(!values.empty());
  std::vector<double> sorted(values.begin(), values.end());
  std::sort(sorted.begin(), sorted.end());
  const size_t n = sorted.size();
  return {(sorted[(n - 1) / 2] + sorted[n / 2]) / 2, sorted.front(), sorted.back()};
}

double percentile(std::span<const double> ascending, double fraction) {
  CHECK(!ascending.empty() && fraction >= 0 && fraction <= 1);
  const double rank = std::ceil(fraction * static_cast<double>(ascending.size()));
  return ascending[static_cast<size_t>(std::max(rank, 1.0)) - 1];
}

size_t median_index(std::span<const double> values) {
  CHECK(!values.empty());
  std::vector<size_t> order(values.size());
  std::iota(order.begin(), order.end(), size_t{0});
  std::sort(order.begin(), order.end(), [&](size_t a, size_t b) {
    return values[a] != values[b] ? values[a] < values[b] : a < b;
  });
  return order[(order.size() - 1) / 2];
}

double sign_test(uint32_t wins, uint32_t losses) {
  const uint32_t n = wins + losses, most = std::max(wins, losses);
  if (n == 0) return 1;
  // In logarithms: binomial coefficients of a thousand rounds are beyond a double.
  double tail = 0;
  for (uint32_t k = most; k <= n; ++k)
    tail += std::exp(std::lgamma(n + 1.0) - std::lgamma(k + 1.0) - std::lgamma(n - k + 1.0) -
                     n * std::log(2.0));
  return std::min(1.0, 2 * tail);
}

Comparison compare_pairs(std::span<const double> a, std::span<const double> b) {
  CHECK(!a.empty() && a.size() == b.size());
  Comparison out;
  std::vector<double> ratios;
  for (size_t i = 0; i < a.size(); ++i) {
    ratios.push_back(b[i] / a[i]);
    out.larger += b[i] > a[i];
    out.smaller += b[i] < a[i];
  }
  out.ratio = spread_of(ratios);
  out.p_value = sign_test(out.larger, out.smaller);
  return out;
}

}  // namespace wader
