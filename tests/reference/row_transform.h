// What happens to a query or key row before its use: RMS norm over the head, then rotary embedding.
#pragma once

#include <cstdint>
#include <span>

#include "support/view.h"

namespace attn::reference {

struct RowTransform {
  test::View norm_weight;    // (D), unbound: no norm
  double epsilon = 1e-6;     // x * rsqrt(mean(x^2) + epsilon) * weight
  test::View cos, sin;       // (positions, width / 2), unbound: no rotation
  bool interleaved = false;  // pairs (2i, 2i + 1) instead of (i, i + width / 2)

  bool any() const { return norm_weight.bound || cos.bound; }
};

// Transforms one row at `position` in place and rounds it once to `type`. The norm's mean is taken
// in float64; from there on every product and every sum is rounded to float32 by itself, as the
// contract says for float32 rows, and 16-bit rows are rounded to their type after both steps.
void transform_row(const RowTransform& transform, int64_t position, test::Type type,
                   std::span<double> row);

}  // namespace attn::reference
