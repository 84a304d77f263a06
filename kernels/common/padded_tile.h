// Tiles of rows in shared memory, each row `ld` elements after the last (padded against bank
// conflicts), brought by cp.async.
#pragma once

#include "common/mma.h"

namespace attnk {

// Starts the copies of `rows` rows, from row `first` of `base` on; rows from `end` on and channels
// from `d` to `dp` are zeroed. All `threads` threads of a block call. Each has one 16-byte piece of
// every `step`-th row, so that a copy costs little beside its own instruction.
template <int threads, int rows, int d, int dp, int ld, class T>
ATTN_DEVICE void fetch_padded(T* tile, const T* base, i64 stride, int first, int end) {
  constexpr int elements = 16 / sizeof(T), pieces = dp / elements, step = threads / pieces;
  constexpr int turns = (rows + step - 1) / step;
  static_assert(step >= 1 && dp % elements == 0);
  int thread = threadIdx.x;
  asm volatile("" : "+r"(thread));  // what follows is not worth registers between two calls
  const int c = thread % pieces, r = thread / pieces;
  if (r >= step) return;
  const bool column = c * elements < d;
  const T* source = base + (i64)(first + r) * stride + c * elements;
  const u32 target = shared_address(tile) + (r * ld + c * elements) * (int)sizeof(T);
  const i64 stride_of_step = stride * step;
  const bool whole = end - first >= rows;
#pragma unroll
  for (int i = 0; i < turns; i++, source += stride_of_step) {
    if ((i + 1) * step <= rows || r + i * step < rows) {
      const bool valid = column && (whole || first + r + i * step < end);
      copy_async_16(target + i * step * ld * (int)sizeof(T), valid ? source : base, valid);
    }
  }
}

}  // namespace attnk
