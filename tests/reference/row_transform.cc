#include "reference/row_transform.h"

#include <cmath>

namespace attn::reference {
namespace {

float narrow(double value) { return static_cast<float>(value); }

void normalize(const RowTransform& transform, std::span<double> row) {
  double squares = 0;
  for (double x : row) squares += x * x;
  const double mean = squares / static_cast<double>(row.size());
  const float factor = narrow(1.0 / std::sqrt(mean + transform.epsilon));
  for (size_t d = 0; d < row.size(); ++d) {
    const float scaled = narrow(row[d]) * factor;
    const float weight = narrow(transform.norm_weight.at({static_cast<int64_t>(d)}));
    row[d] = scaled * weight;
  }
}

void rotate(const RowTransform& transform, int64_t position, std::span<double> row) {
  const int64_t half = transform.cos.dim(1);
  for (int64_t i = 0; i < half; ++i) {
    const size_t a = static_cast<size_t>(transform.interleaved ? 2 * i : i);
    const size_t b = static_cast<size_t>(transform.interleaved ? 2 * i + 1 : i + half);
    const float c = narrow(transform.cos.at({position, i}));
    const float s = narrow(transform.sin.at({position, i}));
    const float x = narrow(row[a]);
    const float y = narrow(row[b]);
    // A product of two float32 is exact in double, so each narrowing is exactly one rounding.
    const float xc = narrow(static_cast<double>(x) * c), ys = narrow(static_cast<double>(y) * s);
    const float xs = narrow(static_cast<double>(x) * s), yc = narrow(static_cast<double>(y) * c);
    row[a] = narrow(static_cast<double>(xc) - ys);
    row[b] = narrow(static_cast<double>(xs) + yc);
  }
}

}  // namespace

void transform_row(const RowTransform& transform, int64_t position, test::Type type,
                   std::span<double> row) {
  if (transform.norm_weight.bound) normalize(transform, row);
  if (transform.cos.bound) rotate(transform, position, row);
  for (double& value : row) value = test::round_to(type, value);
}

}  // namespace attn::reference
