// What happens to a query or key row between its input and its use, as plain data: every problem
// that rotates rows describes it in these terms, so that all of them give the same bits.
#pragma once

#include <cstdint>

#include "core/dtype.h"

namespace attn {

// RMS norm over the head, then rotary embedding. 16-bit rows: both in float32, one rounding after
// both. float32 rows: every product and sum rounded by itself (no fused multiply-add), so that all
// engines give the same bits.
struct RowTransformSpec {
  bool norm = false;
  bool rotary = false;
  bool interleaved = false;         // pairs (2i, 2i+1) instead of (i, i + width/2)
  bool explicit_positions = false;  // positions[b, i] instead of the implied start + i
  bool unit_strides = true;         // weight, table columns: innermost stride 1
  DType table{};                    // type of cos and sin: the row's type or float32
  int32_t width = 0;                // rotated channels, even, 2..D; the rest passes through
  float epsilon = 0;                // norm: x * rsqrt(mean(x^2) + epsilon) * weight
  bool operator==(const RowTransformSpec&) const = default;
  bool any() const { return norm || rotary; }
};

struct RowTransform {
  const void* weight = nullptr;  // (D), the row's type
  int64_t weight_stride = 1;
  const void* cos = nullptr;  // (table_rows, width / 2)
  const void* sin = nullptr;
  int64_t cos_row = 0, cos_col = 1, sin_row = 0, sin_col = 1;
  int64_t table_rows = 0;
  const int64_t* positions = nullptr;  // (B, rows)
  int64_t position_batch = 0, position_row = 1;
};

}  // namespace attn
