// One launch: lengths and faults of the call, then split, norm, rotary embedding and append of the
// new rows of all heads, and the copy of past rows where present is a buffer of its own.
//
// Calls without a cache use it for the lengths alone.
//
// Grid: batch x chunks blocks of 256 threads. A block resolves its batch row by itself (all blocks
// of a row come to the same answer); the row's first block also writes the metadata that the
// attention kernels read, and raises faults. Then each warp treats one item at a time:
// rows_per_item neighbouring rows of one head of the key or the value, of the N new rows where
// present is past, else of the whole present buffer. The key's heads come before the value's, both
// before the next rows: warps of a block share table rows.
#include "common/faults.h"
#include "common/lengths.h"
#include "common/rotary_rows.h"
#include "kv/mask_end.h"

namespace attnk {

constexpr int kType = ATTN_TYPE, kBytes = ElementBytes<kType>::value;
constexpr int kWarps = 8;
constexpr int kFlight = 4;        // copied units a lane that are under way at once
constexpr int kRotaryFlight = 1;  // rotated pairs of pieces: registers allow no more

template <int bytes>
struct BitsOf {
  typedef u32 type;
};
template <>
struct BitsOf<2> {
  typedef u16 type;
};
typedef BitsOf<kBytes>::type Element;

// Rows of one head, `row` bytes apart, of units (elements or 16-byte pieces) `unit` bytes apart.
struct Rows {
  u8* data;
  i64 row, unit;
};

ATTN_DEVICE Rows rows_of(const View& v, i64 b, i64 h, i64 row) {
  u8* data = (u8*)v.data + (b * v.batch + h * v.head + row * v.row) * kBytes;
  return {data, v.row * kBytes, v.channel * kBytes};
}

ATTN_DEVICE uint4 load_unit(const uint4* p) { return load_once(p); }
ATTN_DEVICE Element load_unit(const Element* p) { return *p; }

// Copies `rows` rows of `units` units by one warp; without `copies`, zeroes them.
template <class Unit>
ATTN_DEVICE void write_rows(bool copies, const Rows& from, const Rows& to, int rows, int units) {
  const Share share = share_rows(threadIdx.x & 31, 32, units);
  for (int u = share.unit; u < units; u += 32) {
#pragma unroll 1
    for (int first = share.row; first < rows; first += kFlight * share.rows) {
      Unit values[kFlight] = {};
#pragma unroll
      for (int k = 0; k < kFlight; k++) {
        const int r = first + k * share.rows;
        if (copies && r < rows) {
          values[k] = load_unit((const Unit*)(from.data + r * from.row + u * from.unit));
        }
      }
#pragma unroll
      for (int k = 0; k < kFlight; k++) {
        const int r = first + k * share.rows;
        if (r < rows) *(Unit*)(to.data + r * to.row + u * to.unit) = values[k];
      }
    }
  }
}

// Norm and rotary embedding of new rows that do not come in pieces, or have a norm.
ATTN_DEVICE void transform_new_rows(const CacheParams& c, const Rows& from, const Rows& to,
                                    int rows, u32 b, int fresh, int position, float* buffer) {
  constexpr int most = rows_at_once(1);
  const int lane = threadIdx.x & 31, channels = c.channels, at_once = rows_at_once(channels);
#pragma unroll 1
  for (int r = 0; r < rows; r += at_once) {
    const int count = min_of(at_once, rows - r);
    const u8* source = from.data + r * from.row;
    u8* target = to.data + r * to.row;
#pragma unroll 1
    for (int i = lane; i < channels; i += 32) {
      float x[most] = {};
#pragma unroll
      for (int k = 0; k < most; k++) {
        if (k < count) x[k] = load_element<kType>(source + k * from.row + i * from.unit, 0);
      }
#pragma unroll
      for (int k = 0; k < most; k++) {
        if (k < count) buffer[k * channels + i] = x[k];
      }
    }
    __syncwarp();
    transform_rows<kType, most>(c.transform, buffer, channels, count, channels, b, fresh + r,
                                position + r);
#pragma unroll 1
    for (int i = lane; i < channels; i += 32) {
#pragma unroll
      for (int k = 0; k < most; k++) {
        if (k < count) {
          store_element<kType>(target + k * to.row + i * to.unit, 0, buffer[k * channels + i]);
        }
      }
    }
    __syncwarp();
  }
}

// What becomes of `rows` rows of the present buffer from row `row` on: the first `past` of them are
// past ones, those up to `total` new ones, the others zeros.
ATTN_DEVICE void update_rows(const CacheParams& c, u32 b, u32 h, i64 row, int rows, int past,
                             int total, int fresh, float* buffer) {
#pragma unroll 1
  for (int begin = 0; begin < rows;) {
    const bool is_new = begin >= past && begin < total;
    const int end = begin < past ? past : is_new ? total : rows;
    const Rows to = rows_of(c.present, b, h, row + begin);
    if (is_new && (c.transform.norm || c.transform.rotary)) {
      const Rows from = rows_of(c.source, b, h, fresh + begin);
      if (c.transform.in_pieces && c.source_in_pieces) {
        rotate_rows<kType, kRotaryFlight>(
            c.transform, from.data, c.source.row, end - begin, c.channels, b, fresh + begin,
            (int)row + begin, threadIdx.x & 31, 32, [&](int r, int piece, const uint4& value) {
              *(uint4*)(to.data + r * to.row + piece * 16) = value;
            });
      } else {
        transform_new_rows(c, from, to, end - begin, b, fresh + begin, (int)row + begin, buffer);
      }
    } else {
      const bool copies = is_new || (begin < past && c.has_past);
      bool in_pieces = c.present_in_pieces;
      Rows from = {};
      if (copies) {
        in_pieces = is_new ? c.source_in_pieces : c.past_in_pieces;
        from = is_new ? rows_of(c.source, b, h, fresh + begin) : rows_of(c.past, b, h, row + begin);
      }
      if (in_pieces) {
        write_rows<uint4>(copies, {from.data, from.row, 16}, {to.data, to.row, 16}, end - begin,
                          c.channels * kBytes / 16);
      } else {
        write_rows<Element>(copies, from, to, end - begin, c.channels);
      }
    }
    begin = end;
  }
}

// Rows that a cache needs visited: new ones in place, else the whole buffer.
ATTN_DEVICE i64 rows_to_visit(const CacheParams& c, const RowLengths& r) {
  if (!c.active) return 0;
  return c.in_place ? (r.live ? r.appended : 0) : c.present.rows;
}

// Of `rows` rows, those below row `limit`.
ATTN_DEVICE int rows_below(i64 limit, int rows) {
  return limit <= 0 ? 0 : limit < rows ? (int)limit : rows;
}

extern "C" __global__ void __launch_bounds__(256, 3)
    attn_kv_update(const __grid_constant__ KvUpdateParams p) {
  extern __shared__ float buffers[];  // of each warp: rows_at_once rows of the larger head size
  allow_dependents();
  const u32 chunks = (u32)p.chunks;
  const u32 b = blockIdx.x / chunks, chunk = blockIdx.x - b * chunks;
  const u32 warp = threadIdx.x >> 5;
  u32 poisoned = p.faults->latch;
  i64 end_of_mask = 0;
  if (p.lengths.rule == kLengthMaskEnd) {
    end_of_mask = mask_end(p.lengths.mask, b, p.lengths.most_keys);
  }
  RowLengths r = resolve_row(p.lengths, b, end_of_mask);
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
      const bool by_mask = p.lengths.rule == kLengthMaskEnd;
      const i64 value = by_mask ? end_of_mask : length_value(p.lengths, b);
      raise_fault(p.faults, p.record, r.fault, (u32)p.label, b, value);
    }
  }
  // A poisoned call leaves every cache alone, separate ones included.
  if (poisoned) return;
  const i64 most = max_of(rows_to_visit(p.caches[0], r), rows_to_visit(p.caches[1], r));
  const u32 heads = (u32)p.kv_heads;
  const i64 item_rows = 1ll << p.item_rows_log2;
  const u32 groups = (u32)((most + item_rows - 1) >> p.item_rows_log2);
  const u32 low = chunk * (u32)p.items_per_chunk;
  const u32 high = min_of(low + (u32)p.items_per_chunk, groups * 2 * heads);
  const int channels = max_of(p.caches[0].channels, p.caches[1].channels);
  float* buffer = buffers + warp * rows_at_once(channels) * channels;
  for (u32 item = low + warp; item < high; item += kWarps) {
    const u32 group = item / (2 * heads), rest = item - group * 2 * heads;
    const bool is_value = rest >= heads;
    const u32 h = is_value ? rest - heads : rest;
    const CacheParams& c = p.caches[is_value];
    // Against the present buffer's rows: in place, the visited ones lie behind the past ones.
    const i64 first = (i64)group << p.item_rows_log2, row = c.in_place ? first + r.past : first;
    const i64 count = min_of(rows_to_visit(c, r) - first, c.present.rows - row);
    if (count <= 0) continue;
    const int rows = (int)min_of(count, item_rows);
    const int past_rows = r.live ? rows_below(r.past - row, rows) : 0;
    const int total = r.live ? rows_below(r.past + r.appended - row, rows) : 0;
    update_rows(c, b, h, row, rows, past_rows, total, (int)row - r.past, buffer);
  }
}

}  // namespace attnk
