#include "reference/attention.h"

#include <algorithm>
#include <cmath>
#include <limits>

namespace attn::reference {
namespace {

constexpr double kInfinity = std::numeric_limits<double>::infinity();
constexpr double kNan = std::numeric_limits<double>::quiet_NaN();

double norm(std::span<const double> x) {
  double sum = 0;
  for (double value : x) sum += value * value;
  return std::sqrt(sum);
}

// Four sums at a time, for speed alone.
double dot(std::span<const double> a, std::span<const double> b) {
  double sums[4] = {0, 0, 0, 0};
  size_t d = 0;
  for (; d + 4 <= a.size(); d += 4) {
    for (size_t k = 0; k < 4; ++k) sums[k] += a[d + k] * b[d + k];
  }
  for (; d < a.size(); ++d) sums[0] += a[d] * b[d];
  return (sums[0] + sums[1]) + (sums[2] + sums[3]);
}

// Fills the score stages of the cells in [first, last) and says which of them are visible.
std::vector<bool> score(const AttentionRow& row, AttentionRowResult& result) {
  const int64_t size = static_cast<int64_t>(row.query.size());
  std::vector<bool> visible(static_cast<size_t>(row.total), false);
  const double query_norm = norm(row.query);
  const int64_t end = row.unmasked ? row.total : row.last;
  for (int64_t j = row.unmasked ? 0 : row.first; j < end; ++j) {
    const size_t cell = static_cast<size_t>(j);
    const std::span<const double> key(row.keys + j * size, row.query.size());
    const double raw = row.scale * dot(row.query, key);
    const double capped = row.softcap > 0 ? row.softcap * std::tanh(raw / row.softcap) : raw;
    result.raw[cell] = raw;
    result.capped[cell] = capped;
    result.raw_size[cell] =
        std::fabs(row.scale) * query_norm * norm(key) / std::sqrt(static_cast<double>(size));
    if (j < row.first || j >= row.last) continue;
    const double bias = row.bias.empty() ? 0 : row.bias[cell];
    visible[cell] = bias != -kInfinity;
    result.biased[cell] = visible[cell] ? capped + bias : -kInfinity;
    result.score_size[cell] = result.raw_size[cell];
  }
  return visible;
}

}  // namespace

AttentionRowResult attend(const AttentionRow& row) {
  AttentionRowResult result;
  const size_t total = static_cast<size_t>(row.total);
  const size_t channels = static_cast<size_t>(row.value_size);
  result.output.assign(channels, 0);
  result.absolute.assign(channels, 0);
  for (auto* stage : {&result.raw, &result.capped, &result.biased, &result.probabilities,
                      &result.score_size, &result.raw_size}) {
    stage->assign(total, 0);
  }
  const std::vector<bool> visible = score(row, result);

  double maximum = -kInfinity;
  for (size_t j = 0; j < total; ++j) {
    if (!visible[j]) continue;
    result.visible = true;
    if (std::isnan(result.biased[j]) || result.biased[j] == kInfinity) result.poisoned = true;
    maximum = std::max(maximum, result.biased[j]);
  }
  if (!result.visible) {
    result.log_sum_exp = -kInfinity;
    return result;
  }
  if (result.poisoned) {
    result.log_sum_exp = kNan;
    std::fill(result.output.begin(), result.output.end(), kNan);
    for (size_t j = 0; j < total; ++j) {
      if (visible[j]) result.probabilities[j] = kNan;
    }
    return result;
  }

  // With a sink that towers over the scores the common reference must be the larger of the two.
  const double reference = row.has_sink ? std::max(maximum, row.sink) : maximum;
  double sum = 0;
  for (size_t j = 0; j < total; ++j) {
    if (visible[j]) sum += std::exp(result.biased[j] - reference);
  }
  const double denominator = row.has_sink ? sum + std::exp(row.sink - reference) : sum;
  double own_sum = 0;
  for (size_t j = 0; j < total; ++j) {
    if (visible[j]) own_sum += std::exp(result.biased[j] - maximum);
  }
  result.log_sum_exp = maximum + std::log(own_sum);

  double squares = 0;
  for (size_t j = 0; j < total; ++j) {
    if (!visible[j]) continue;
    const double p = std::exp(result.biased[j] - reference) / denominator;
    const double share = std::exp(result.biased[j] - maximum) / own_sum;
    result.probabilities[j] = p;
    squares += share * share;
    const double* value = row.values + static_cast<int64_t>(j) * row.value_size;
    for (size_t d = 0; d < channels; ++d) {
      result.output[d] += p * value[d];
      result.absolute[d] += p * std::fabs(value[d]);
    }
  }
  result.effective_keys = 1 / squares;
  return result;
}

}  // namespace attn::reference
