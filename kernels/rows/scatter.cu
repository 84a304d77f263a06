// Rows written into a cache at an index of their own for each batch row. Elements are moved as they
// are, in pieces of 16 bytes where all three tensors allow it.
//
// Grid: batch x chunks blocks of 256 threads, a unit (an element or a piece) a thread.
#include "common/faults.h"
#include "common/row_params.h"

namespace attnk {

ATTN_DEVICE void move(const void* src, void* dst, int bytes) {
  switch (bytes) {
    case 1:
      *(u8*)dst = *(const u8*)src;
      break;
    case 2:
      *(u16*)dst = *(const u16*)src;
      break;
    case 4:
      *(u32*)dst = *(const u32*)src;
      break;
    case 8:
      *(u64*)dst = *(const u64*)src;
      break;
    default:
      *(uint4*)dst = *(const uint4*)src;
  }
}

ATTN_DEVICE void clear(void* dst, int bytes) {
  const uint4 zero = {0, 0, 0, 0};
  move(&zero, dst, bytes);
}

// The address of unit `u` of a row; `outer` numbers the indices of all axes but the innermost.
ATTN_DEVICE u8* place(const ScatterParams& p, const ScatterView& v, i64 b, i64 outer, i64 row,
                      i64 u) {
  i64 offset = b * v.batch + row * v.row;
  if (p.pieces) {
    offset += u * (16 / p.bytes);
  } else {
    offset += u * v.axes[p.axes - 1];
  }
  for (int i = p.axes - 2; i >= 0; --i) {
    offset += outer % p.sizes[i] * v.axes[i];
    outer /= p.sizes[i];
  }
  return (u8*)v.data + offset * p.bytes;
}

extern "C" __global__ void __launch_bounds__(256)
    attn_scatter(const __grid_constant__ ScatterParams p) {
  const i64 b = blockIdx.x / p.grid.chunks, chunk = blockIdx.x % p.grid.chunks;
  // A poisoned call leaves every cache alone, separate ones included.
  if (p.faults->latch) return;
  const i64 index = p.indices ? p.indices[b * p.index_stride] : 0;
  i64 start = index;
  bool bad = false;
  if (p.circular) {
    start = p.cache_rows ? index % p.cache_rows : 0;
    if (start < 0) start += p.cache_rows;
  } else {
    bad = index < 0 || index > p.cache_rows - p.new_rows;
  }
  if (bad) {
    if (chunk == 0 && threadIdx.x == 0) {
      raise_fault(p.faults, p.record, kFaultWriteIndex, (u32)p.label, b, index);
    }
    if (p.in_place) return;
  }
  const i64 begin = chunk * p.grid.span;
  const u32 count = (u32)min_of(p.grid.span, p.grid.total - begin);
  const u32 units = (u32)p.grid.units;
  const i64 first_run = begin / units;
  const u32 first_unit = (u32)(begin % units);
  const int bytes = p.pieces ? 16 : p.bytes;
  for (u32 k = threadIdx.x; k < count; k += blockDim.x) {
    const i64 run = first_run + (first_unit + k) / units;
    const i64 u = (first_unit + k) % units;
    const i64 row = run % p.rows, outer = run / p.rows;
    if (p.in_place) {
      i64 target = start + row;
      if (target >= p.cache_rows) target -= p.cache_rows;
      move(place(p, p.update, b, outer, row, u), place(p, p.present, b, outer, target, u), bytes);
      continue;
    }
    u8* dst = place(p, p.present, b, outer, row, u);
    // The number that this row would have among the new ones.
    const i64 number = row >= start ? row - start : row - start + p.cache_rows;
    if (bad) {
      clear(dst, bytes);
    } else if (number < p.new_rows) {
      move(place(p, p.update, b, outer, number, u), dst, bytes);
    } else {
      move(place(p, p.past, b, outer, row, u), dst, bytes);
    }
  }
}

}  // namespace attnk
