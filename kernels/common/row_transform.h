// RMS norm and rotary embedding of rows by one warp. The order of operations is fixed to the bit
// (docs/numerics.md): lane l owns channels l, l + 32, ..., every operation is rounded by itself.
#pragma once

#include "common/device.h"

namespace attnk {

// The pair (a, b) by the angle of cosine c and sine s.
ATTN_DEVICE void turn(float& a, float& b, float c, float s) {
  const float x = a, y = b;
  a = __fsub_rn(__fmul_rn(x, c), __fmul_rn(y, s));
  b = __fadd_rn(__fmul_rn(y, c), __fmul_rn(x, s));
}

// The row of the tables for row `index` of batch row b; -1 (the row is not rotated) where its
// position lies outside: then it is a row of padding, since lengths were checked before.
ATTN_DEVICE i64 table_row(const TransformParams& t, i64 b, i64 index, i64 implied_position) {
  const i64 p = t.explicit_positions ? t.positions[b * t.position_batch + index * t.position_row]
                                     : implied_position;
  return p >= 0 && p < t.table_rows ? p : -1;
}

// `rows` are the warp's buffers of `channels` floats in shared memory, `stride` floats apart, of
// which the first `count` (at most `most`) hold the widened rows index, index + 1, ... on entry and
// the transformed rows, rounded to `type`, on return. All 32 lanes call.
template <int type, int most>
ATTN_DEVICE void transform_rows(const TransformParams& t, float* rows, int stride, int count,
                                int channels, i64 b, i64 index, i64 implied_position) {
  const int lane = threadIdx.x & 31;
  if (t.norm) {
    float sum[most] = {}, factor[most];
    for (int c = lane; c < channels; c += 32) {
#pragma unroll
      for (int k = 0; k < most; k++) {
        if (k >= count) break;
        const float x = rows[k * stride + c];
        sum[k] = __fadd_rn(sum[k], __fmul_rn(x, x));
      }
    }
    for (int h = 16; h; h >>= 1) {
#pragma unroll
      for (int k = 0; k < most; k++) sum[k] = __fadd_rn(sum[k], __shfl_xor_sync(~0u, sum[k], h));
    }
#pragma unroll
    for (int k = 0; k < most; k++) {
      const float mean = __fdiv_rn(sum[k], (float)channels);
      factor[k] = __fdiv_rn(1.f, __fsqrt_rn(__fadd_rn(mean, t.epsilon)));
    }
    for (int c = lane; c < channels; c += 32) {
      const float weight = load_element<type>(t.weight, c * t.weight_stride);
#pragma unroll
      for (int k = 0; k < most; k++) {
        if (k >= count) break;
        float& x = rows[k * stride + c];
        x = __fmul_rn(__fmul_rn(x, factor[k]), weight);
      }
    }
    __syncwarp();
  }
  if (t.rotary) {
    i64 at[most];
#pragma unroll
    for (int k = 0; k < most; k++) {
      at[k] = k < count ? table_row(t, b, index + k, implied_position + k) : -1;
    }
    const int half = t.width / 2;
    for (int i = lane; i < half; i += 32) {
      float c[most] = {}, s[most] = {};
#pragma unroll
      for (int k = 0; k < most; k++) {
        if (at[k] < 0) continue;
        c[k] = load_any(t.cos, at[k] * t.cos_row + i * t.cos_col, t.table_type);
        s[k] = load_any(t.sin, at[k] * t.sin_row + i * t.sin_col, t.table_type);
      }
      const int ia = t.interleaved ? 2 * i : i, ib = t.interleaved ? 2 * i + 1 : i + half;
#pragma unroll
      for (int k = 0; k < most; k++) {
        if (at[k] >= 0) turn(rows[k * stride + ia], rows[k * stride + ib], c[k], s[k]);
      }
    }
    __syncwarp();
  }
  if constexpr (type != kTypeFloat32) {
    for (int c = lane; c < channels; c += 32) {
#pragma unroll
      for (int k = 0; k < most; k++) {
        if (k < count) rows[k * stride + c] = round_element<type>(rows[k * stride + c]);
      }
    }
    __syncwarp();
  }
}

// One row.
template <int type>
ATTN_DEVICE void transform_row(const TransformParams& t, float* row, int channels, i64 b, i64 index,
                               i64 implied_position) {
  transform_rows<type, 1>(t, row, 0, 1, channels, b, index, implied_position);
}

}  // namespace attnk
