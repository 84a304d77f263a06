// Which keys a query row sees: causality, window and length as one interval.
#pragma once

#include "common/device.h"
#include "common/params.h"

namespace attnk {

struct Interval {
  i32 low, high;  // keys [low, high)
};

// For the row at `position` (query_start + index; may be negative). A bound that is off stands at
// kUnbounded, far from every position, so that 32 bits are enough.
constexpr i32 kUnbounded = 1 << 30;

struct Visibility {
  i32 total;
  i32 behind;  // sees keys from position - behind
  i32 ahead;   // to position + ahead, itself included
};

ATTN_DEVICE Visibility visibility_of(const AttentionParams& p, i32 total) {
  i64 ahead = p.causal ? 0 : kUnbounded;
  if (p.right_window >= 0) ahead = min_of(ahead, p.right_window);
  i64 behind = p.left_window >= 0 ? min_of(p.left_window, (i64)kUnbounded) : kUnbounded;
  return {total, (i32)behind, (i32)ahead};
}

ATTN_DEVICE Interval visible_keys(const Visibility& v, i32 position) {
  i32 low = v.behind == kUnbounded ? 0 : max_of(0, position - v.behind);
  i32 high = v.ahead == kUnbounded ? v.total : min_of(v.total, position + v.ahead + 1);
  high = max_of(high, 0);
  return {min_of(low, high), high};
}

// Whether the mask shows column j of this row at all, and what it adds. `base` is the row's offset.
template <int mask_kind>
ATTN_DEVICE bool apply_mask(const AttentionParams& p, i64 base, i32 j, float& x) {
  if (mask_kind == kMaskNone) return true;
  if (j >= p.mask_columns) return false;
  i64 at = base + j * p.mask_column;
  if (mask_kind == kMaskBoolean) return ((const u8*)p.mask)[at] != 0;
  float m = load_any(p.mask, at, p.mask_type);
  if (m == -infinity()) return false;
  x += m;
  return true;
}

ATTN_DEVICE i64 mask_row_offset(const AttentionParams& p, i64 b, i64 h, i64 i) {
  return b * p.mask_batch + h * p.mask_head + i * p.mask_row;
}

}  // namespace attnk
