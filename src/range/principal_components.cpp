#include "range/principal_components.h"

#include <Eigen/Dense>
#include <algorithm>
#include <cmath>

#include "base/check.h"

namespace wader {
namespace {

using Points = Eigen::Matrix<double, Eigen::Dynamic, Eigen::Dynamic, Eigen::RowMajor>;

// Magnitudes nearer than this are equal: rounding must not choose between them.
constexpr double kSameMagnitude = 1e-9;

std::vector<double> with_fixed_sign(const Eigen::VectorXd& axis) {
  Eigen::Index largest = 0;
  for (Eigen::Index i = 1; i < axis.size(); ++i)
    if (std::abs(axis[i]) > std::abs(axis[largest]) + kSameMagnitude) largest = i;
  const double sign = axis[largest] < 0 ? -1 : 1;
  std::vector<double> out(static_cast<size_t>(axis.size()));
  for (size_t i = 0; i < out.size(); ++i) out[i] = sign * axis[static_cast<Eigen::Index>(i)];
  return out;
}

}  // namespace

PrincipalComponents principal_components(std::span<const double> points, size_t columns) {
  CHECK(columns > 0 && points.size() % columns == 0);
  const auto width = static_cast<Eigen::Index>(columns);
  const auto rows = static_cast<Eigen::Index>(points.size() / columns);
  PrincipalComponents out;
  out.mean.assign(columns, 0);
  for (auto& axis : out.axes) axis.assign(columns, 0);
  if (rows == 0) return out;

  const Eigen::Map<const Points> matrix(points.data(), rows, width);
  const Eigen::RowVectorXd mean = matrix.colwise().mean();
  const Points centred = matrix.rowwise() - mean;
  const Eigen::MatrixXd covariance =
      centred.transpose() * centred / static_cast<double>(std::max<Eigen::Index>(rows, 1));
  const Eigen::SelfAdjointEigenSolver<Eigen::MatrixXd> solver(covariance);
  CHECK(solver.info() == Eigen::Success);
  std::copy(mean.begin(), mean.end(), out.mean.begin());
  const double total = covariance.trace();
  // Points that are equal differ by the rounding of their mean.
  const double scale = matrix.squaredNorm() / static_cast<double>(rows);
  if (!(total > 1e-24 * scale)) return out;
  for (size_t c = 0; c < out.axes.size() && c < columns; ++c) {
    const Eigen::Index at = width - 1 - static_cast<Eigen::Index>(c);  // the solver's order rises
    const double share = solver.eigenvalues()[at] / total;
    if (!(share > 1e-12)) break;
    out.explained[c] = share;
    out.axes[c] = with_fixed_sign(solver.eigenvectors().col(at));
  }
  return out;
}

std::array<double, 3> project(const PrincipalComponents& components,
                              std::span<const double> point) {
  CHECK(point.size() == components.mean.size());
  std::array<double, 3> out{};
  for (size_t c = 0; c < out.size(); ++c)
    for (size_t i = 0; i < point.size(); ++i)
      out[c] += components.axes[c][i] * (point[i] - components.mean[i]);
  return out;
}

}  // namespace wader
