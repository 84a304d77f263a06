// Numbers of golden cases: inputs, and how far results may be from the reference.
#include <algorithm>
#include <cmath>

#include "golden/golden_case.h"
#include "support/compare.h"

namespace attn::golden {
namespace {

// Scores of this expected size, which spread to +-20 and more, are within float32's bar as it is.
constexpr double kBarSize = 10;

double norm(const double* values, int64_t count) {
  double sum = 0;
  for (int64_t i = 0; i < count; ++i) {
    if (std::isfinite(values[i])) sum += values[i] * values[i];
  }
  return std::sqrt(sum);
}

int64_t rows_of(const std::vector<double>& values, int64_t row_length) {
  return row_length == 0 ? 0 : static_cast<int64_t>(values.size()) / row_length;
}

double norm_of(const std::vector<double>& rows) {
  return norm(rows.data(), static_cast<int64_t>(rows.size()));
}

}  // namespace

void fill(const View& view, test::Random& random, double sigma) {
  for_each_address(view, [&](void* at) {
    // Twelve uniform numbers have variance 1; their sum is exact enough to be the same everywhere.
    double sum = -6;
    for (int i = 0; i < 12; ++i) sum += random.uniform();
    test::store(at, view.type, sigma * sum);
  });
}

Bounds bounds_of(Type type, const std::vector<double>& values, int64_t row_length,
                 const std::vector<double>& least, const std::vector<double>& excess) {
  const double bar = test::error_bar(type);
  const double smallest = std::sqrt(static_cast<double>(row_length)) * test::tiny_of(type) / bar;
  Bounds bounds;
  for (int64_t row = 0; row < rows_of(values, row_length); ++row) {
    const size_t at = static_cast<size_t>(row);
    double size =
        std::max(norm(&values[at * static_cast<size_t>(row_length)], row_length), smallest);
    if (!least.empty() && std::isfinite(least[at])) size = std::max(size, least[at]);
    if (!excess.empty()) size *= excess[at];
    bounds.rows.push_back(test::kRowFactor * bar * size);
  }
  bounds.whole = norm_of(bounds.rows) / test::kRowFactor;
  return bounds;
}

Bounds rounding_bounds(Type type, const std::vector<double>& values, int64_t row_length) {
  Bounds bounds;
  for (int64_t row = 0; row < rows_of(values, row_length); ++row) {
    double largest = 0;
    for (int64_t i = 0; i < row_length; ++i) {
      largest = std::max(largest, std::fabs(values[static_cast<size_t>(row * row_length + i)]));
    }
    bounds.rows.push_back(std::sqrt(static_cast<double>(row_length)) * largest *
                          std::max(test::epsilon_of(type), 5e-7));
  }
  bounds.whole = norm_of(bounds.rows);
  return bounds;
}

Bounds exact_bounds(const std::vector<double>& values, int64_t row_length) {
  return {std::vector<double>(static_cast<size_t>(rows_of(values, row_length)), 0.0), 0};
}

Bounds log_sum_exp_bounds(const std::vector<double>& values, const std::vector<double>& sizes,
                          double bar) {
  Bounds bounds;
  for (size_t i = 0; i < values.size(); ++i) {
    const double value = std::isfinite(values[i]) ? std::fabs(values[i]) : 0;
    const double size = std::isfinite(sizes[i]) ? sizes[i] : 0;
    bounds.rows.push_back(bar * std::max({1.0, value, size}));
  }
  bounds.whole = norm_of(bounds.rows);
  return bounds;
}

std::vector<double> excess_of(Type type, const std::vector<double>& weighing_sizes) {
  std::vector<double> excess(weighing_sizes.size(), 1.0);
  if (type == Type::kFloat16 || type == Type::kBfloat16) return excess;
  for (size_t i = 0; i < excess.size(); ++i) {
    if (std::isfinite(weighing_sizes[i])) excess[i] = std::max(1.0, weighing_sizes[i] / kBarSize);
  }
  return excess;
}

}  // namespace attn::golden
