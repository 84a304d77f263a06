// The length that a mask tells: one past the last key that its last query row shows, of any head.
#pragma once

#include "common/device.h"

namespace attnk {

// As core/length_rules.cc has it: an additive cell that is less hides its key.
constexpr float kShownFrom = -1000.f;

ATTN_DEVICE bool mask_shows(const LengthMaskParams& mask, i64 at) {
  if (mask.data == nullptr) return true;
  if (mask.type == kTypeBool) return ((const u8*)mask.data)[at] != 0;
  return load_any(mask.data, at, mask.type) >= kShownFrom;
}

// By all threads of a block together, which all get the result. Walks from the end, a column a
// thread, so that a mask without padding costs one step.
ATTN_DEVICE i64 mask_end(const LengthMaskParams& mask, i64 b, i64 width) {
  __shared__ i32 end;
  if (threadIdx.x == 0) end = 0;
  __syncthreads();
  const i64 heads = mask.head == 0 ? min_of(mask.heads, (i64)1) : mask.heads;
  for (i64 high = min_of(mask.columns, width); high > 0; high -= blockDim.x) {
    const i64 j = high - 1 - threadIdx.x;
    bool shown = false;
    for (i64 h = 0; h < heads && j >= 0 && !shown; h++) {
      shown = mask_shows(mask, b * mask.batch + h * mask.head + j * mask.column);
    }
    if (shown) atomicMax(&end, (i32)j + 1);
    if (__syncthreads_or(shown)) break;
  }
  return end;
}

}  // namespace attnk
