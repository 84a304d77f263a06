// RMS norm and rotary embedding of one row by one warp. The order of operations is fixed to the bit
// (docs/numerics.md): lane l owns channels l, l + 32, ..., every operation is rounded by itself.
#pragma once

#include "common/device.h"

namespace attnk {

// `row` is the warp's buffer of `channels` floats in shared memory; it holds the widened row on
// entry and the transformed row, rounded to `type`, on return. All 32 lanes call.
template <int type>
ATTN_DEVICE void transform_row(const TransformParams& t, float* row, int channels, i64 b, i64 index,
                               i64 implied_position) {
  int lane = threadIdx.x & 31;
  if (t.norm) {
    float sum = 0.f;
    for (int c = lane; c < channels; c += 32) sum = __fadd_rn(sum, __fmul_rn(row[c], row[c]));
    for (int h = 16; h; h >>= 1) sum = __fadd_rn(sum, __shfl_xor_sync(~0u, sum, h));
    float r = __fdiv_rn(1.f, __fsqrt_rn(__fadd_rn(__fdiv_rn(sum, (float)channels), t.epsilon)));
    for (int c = lane; c < channels; c += 32) {
      row[c] = __fmul_rn(__fmul_rn(row[c], r), load_element<type>(t.weight, c * t.weight_stride));
    }
    __syncwarp();
  }
  if (t.rotary) {
    i64 p = t.explicit_positions ? t.positions[b * t.position_batch + index * t.position_row]
                                 : implied_position;
    if (p >= 0 && p < t.table_rows) {
      int half = t.width / 2;
      for (int i = lane; i < half; i += 32) {
        float c = load_any(t.cos, p * t.cos_row + i * t.cos_col, t.table_type);
        float s = load_any(t.sin, p * t.sin_row + i * t.sin_col, t.table_type);
        int ia = t.interleaved ? 2 * i : i;
        int ib = t.interleaved ? 2 * i + 1 : i + half;
        float a = row[ia], x = row[ib];
        row[ia] = __fsub_rn(__fmul_rn(a, c), __fmul_rn(x, s));
        row[ib] = __fadd_rn(__fmul_rn(x, c), __fmul_rn(a, s));
      }
      __syncwarp();
    }
  }
  if constexpr (type != kTypeFloat32) {
    for (int c = lane; c < channels; c += 32) row[c] = round_element<type>(row[c]);
    __syncwarp();
  }
}

}  // namespace attnk
