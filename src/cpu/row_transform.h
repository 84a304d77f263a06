// RMS norm and rotary embedding of one query or key row, in an order of operations that is fixed to
// the bit, so that every engine on every device can give equal results.
//
// In float32, each operation rounded by itself (round to nearest even, no fused multiply-add), with
// x the row widened to float32, D its channels:
//
//   norm    lane[l] = ((x[l]^2 + x[l+32]^2) + x[l+64]^2) + ...   for l in 0..31, starting from +0
//           for h = 16, 8, 4, 2, 1:  lane[l] = lane[l] + lane[l+h]   for l in 0..h-1
//           r = 1 / sqrt(lane[0] / D + epsilon)                  (division and root: IEEE, correct)
//           y[i] = (x[i] * r) * weight[i]
//   rotary  for each pair (a, b) of y with table entries c, s of its position:
//           a' = a*c - b*s,  b' = b*c + a*s
//   end     each channel is rounded to the row's type (float32: unchanged)
//
// On a GPU the norm is one warp with lane l owning the channels l, l+32, ..., then five butterfly
// shuffles. The lanes make the sum of a 16-bit row and of a float32 row the same computation.
#pragma once

#include <cstdint>

#include "core/dtype.h"
#include "core/problem.h"

namespace attn::cpu {

// The position at which row `row` of batch row `batch` is rotated: the explicit one if the spec has
// such, otherwise `implied`.
inline int64_t row_position(const RowTransformSpec& spec, const RowTransform& transform,
                            int64_t batch, int64_t row, int64_t implied) {
  if (!spec.explicit_positions) return implied;
  return transform.positions[batch * transform.position_batch + row * transform.position_row];
}

struct RowKernels;  // of one SIMD level (row_transform_simd.h)

// Loads `channels` elements of `type` (float32, float16, bfloat16) from `src`, `src_stride`
// elements apart, applies norm and rotary as `spec` says and writes floats that `type` can hold to
// `dst` (contiguous). `position` is the implied position; `batch` and `row` index explicit ones. A
// position outside the table leaves the row unrotated and reads nothing: lengths were checked
// before, so this is only a row of padding. With an empty spec this is a widening load. `kernels`
// are those of the plan's level and are used when strides are one; without them (null), or with
// other strides, plain loops run. Both give the same bits. Any thread; no allocation.
void transform_row(const RowKernels* kernels, const RowTransformSpec& spec,
                   const RowTransform& transform, DType type, const void* src, int64_t src_stride,
                   int32_t channels, int64_t batch, int64_t row, int64_t position, float* dst);

// Rounds `count` floats to `type` at `dst`, `dst_stride` elements apart; `kernels` as above.
void store_row(const RowKernels* kernels, DType type, const float* src, int32_t count, void* dst,
               int64_t dst_stride);

// Copies `count` elements of `type` bit by bit; any type of 1, 2, 4 or 8 bytes.
void copy_row(DType type, const void* src, int64_t src_stride, int32_t count, void* dst,
              int64_t dst_stride);

}  // namespace attn::cpu
