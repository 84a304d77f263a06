// One launch: lengths and faults of the call, then split, norm, rotary embedding and append of the
// new rows of all heads, and the copy of past rows where present is a buffer of its own.
//
// Calls without a cache use it for the lengths alone.
//
// Grid: batch x chunks blocks of 256 threads. A block resolves its batch row by itself (all blocks
// of a row come to the same answer); the row's first block also writes the metadata that the
// attention kernels read, and raises faults. Then each warp treats one (tensor, head, row) at a
// time: in place the N new rows, otherwise every row of the present buffer.
#include "common/device.h"
#include "common/faults.h"
#include "common/lengths.h"
#include "common/row_transform.h"

namespace attnk {

constexpr int kType = ATTN_TYPE;
constexpr int kWarps = 8;

// Copies bits of one row, 16 bytes a lane where both sides allow it.
ATTN_DEVICE void copy_row(const void* src, i64 src_stride, void* dst, i64 dst_stride,
                          int channels) {
  constexpr int bytes = ElementBytes<kType>::value;
  int lane = threadIdx.x & 31;
  bool wide = src_stride == 1 && dst_stride == 1 && (channels * bytes) % 16 == 0 &&
              (((u64)src | (u64)dst) & 15) == 0;
  if (wide) {
    for (int c = lane; c < channels * bytes / 16; c += 32)
      ((uint4*)dst)[c] = ((const uint4*)src)[c];
    return;
  }
  for (int c = lane; c < channels; c += 32) {
    if constexpr (bytes == 4)
      ((u32*)dst)[c * dst_stride] = ((const u32*)src)[c * src_stride];
    else
      ((u16*)dst)[c * dst_stride] = ((const u16*)src)[c * src_stride];
  }
}

ATTN_DEVICE void zero_row(void* dst, i64 dst_stride, int channels) {
  for (int c = threadIdx.x & 31; c < channels; c += 32)
    store_element<kType>(dst, c * dst_stride, 0.f);
}

ATTN_DEVICE void* row_address(const View& v, i64 b, i64 h, i64 row) {
  return (u8*)v.data + (b * v.batch + h * v.head + row * v.row) * ElementBytes<kType>::value;
}

ATTN_DEVICE void update_row(const CacheParams& c, const RowLengths& r, i64 b, i64 h, i64 row,
                            float* buffer) {
  i64 fresh = row - r.past;
  void* dst = row_address(c.present, b, h, row);
  if (r.live && fresh >= 0 && fresh < r.appended) {
    const void* src = row_address(c.source, b, h, fresh);
    if (!c.transform.norm && !c.transform.rotary) {
      copy_row(src, c.source.channel, dst, c.present.channel, c.channels);
      return;
    }
    int lane = threadIdx.x & 31;
    for (int i = lane; i < c.channels; i += 32) {
      buffer[i] = load_element<kType>(src, i * c.source.channel);
    }
    __syncwarp();
    transform_row<kType>(c.transform, buffer, c.channels, b, fresh, row);
    for (int i = lane; i < c.channels; i += 32) {
      store_element<kType>(dst, i * c.present.channel, buffer[i]);
    }
    __syncwarp();
  } else if (!c.in_place) {
    if (r.live && c.has_past && row < r.past) {
      copy_row(row_address(c.past, b, h, row), c.past.channel, dst, c.present.channel, c.channels);
    } else {
      zero_row(dst, c.present.channel, c.channels);
    }
  }
}

// Rows that a cache needs visited: new ones in place, else the whole buffer.
ATTN_DEVICE i64 rows_to_visit(const CacheParams& c, const RowLengths& r) {
  if (!c.active) return 0;
  return c.in_place ? (r.live ? r.appended : 0) : c.present.rows;
}

extern "C" __global__ void __launch_bounds__(256)
    attn_kv_update(const __grid_constant__ KvUpdateParams p) {
  extern __shared__ float buffers[];  // kWarps rows of the larger head size
  allow_dependents();
  i64 b = blockIdx.x / p.chunks, chunk = blockIdx.x % p.chunks;
  int warp = threadIdx.x >> 5;
  u32 poisoned = p.faults->latch;
  RowLengths r = resolve_row(p.lengths, b);
  bool bad_position = false;
  if (p.lengths.table_rows >= 0 && p.lengths.positions && r.live) {
    const i64 rows = live_query_rows(p.lengths, r.total);
    for (i64 i = threadIdx.x; i < rows; i += blockDim.x) {
      i64 v = p.lengths.positions[b * p.lengths.position_batch + i * p.lengths.position_row];
      bad_position |= v < 0 || v >= p.lengths.table_rows;
    }
  }
  if (__syncthreads_or(bad_position)) {
    r.fault |= kFaultPosition;
    r.live = 0;
  }
  if (poisoned) r.live = 0;
  if (chunk == 0 && threadIdx.x == 0) {
    p.rows[b] = r;
    if (b == 0) p.faults->call_poisoned = poisoned;
    if (r.fault && !poisoned) {
      i64 value = p.lengths.values ? p.lengths.values[b * p.lengths.value_stride] : 0;
      raise_fault(p.faults, p.record, r.fault, (u32)p.label, b, value);
    }
  }
  // A poisoned call leaves every cache alone, separate ones included.
  if (poisoned) return;
  i64 key_rows = rows_to_visit(p.key, r), value_rows = rows_to_visit(p.value, r);
  const i64 all = max_of(key_rows, value_rows) * 2 * p.kv_heads;
  const i64 low = chunk * p.items_per_chunk, high = min_of(low + p.items_per_chunk, all);
  int stride = max_of(p.key.channels, p.value.channels);
  float* buffer = buffers + warp * stride;
  for (i64 item = low + warp; item < high; item += kWarps) {
    i64 row = item / (2 * p.kv_heads);
    i64 h = (item >> 1) % p.kv_heads;
    const CacheParams& c = item & 1 ? p.value : p.key;
    i64 visit = item & 1 ? value_rows : key_rows;
    if (row >= visit) continue;
    i64 target = c.in_place ? r.past + row : row;
    if (target < c.present.rows) update_row(c, r, b, h, target, buffer);
  }
}

}  // namespace attnk
