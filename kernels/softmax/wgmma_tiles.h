// What the warpgroups of softmax/attention_wgmma.cu share: sizes, barriers, tiles, and copies to
// shared memory.
#pragma once

#include "common/device.h"
#include "common/visibility.h"
#include "common/wgmma.h"
#include "softmax/packed.h"
#include "softmax/variant.h"

namespace attnk {

constexpr int kN = BLOCK_N, kStages = STAGES, kConsumers = CONSUMERS, kQueries = QUERIES;
constexpr int kM = 64 * kConsumers, kThreads = 128 * (kConsumers + 1);
constexpr int kDp = (kD + 63) / 64 * 64, kDvp = (kDv + 63) / 64 * 64;  // whole 128-byte rows
constexpr int kTilesN = kN / 8, kSlices = kDvp % 128 == 0 ? kDvp / 128 : kDvp / 64;
constexpr int kSliceWidth = kDvp % 128 == 0 ? 128 : 64;
constexpr int kQueryBytes = kM * kDp * 2, kKeyBytes = kN * kDp * 2, kValueBytes = kN * kDvp * 2;
// Registers move between warpgroups inside what the block got at its launch: asking for more would
// wait forever.
static_assert(PRODUCER_REGISTERS + kConsumers * CONSUMER_REGISTERS <=
              (kConsumers + 1) * (65536 / kThreads / 8 * 8));
constexpr float kLog2e = 1.4426950408889634f, kLn2 = 0.6931471805599453f;

constexpr bool kListed = kMaskKind != kMaskNone;
constexpr int kEntries = kStages + 1;
constexpr int kBitsBytes = kMaskKind == kMaskBoolean ? kEntries * kM * 8 : 0;

// Keys that the mask does not hide wholly; n is -1 where a tile has no more.
struct Entry {
  int n, shown;
};

struct Barriers {
  u64 key_full[kStages], key_free[kStages], value_full[kStages], value_free[kStages];
  u64 tile_full[2], tile_free[2], query_full[2];
  u64 entry_full[kEntries];
  Entry entries[kEntries];
};

// What a block works on: query rows [m0, m0 + rows) of head h.
struct Tile {
  int live;  // 0: there are no more tiles
  int b, h, hk;
  int m0, rows, position0, n_first, n_last, clean_low, clean_high;
  Visibility view;
  i64 query0, key0;  // of packed sequences: their first rows
};
ATTN_DEVICE i64 first_query(const Tile& t) { return kPacked ? t.query0 : 0; }
ATTN_DEVICE i64 first_key(const Tile& t) { return kPacked ? t.key0 : 0; }

ATTN_DEVICE Tile tile_of(const AttentionParams& p, u32 index) {
  const u32 heads = (u32)p.q_heads;
  Tile t;
  // The tiles of a head, which share its keys, run at the same time; the longest ones begin.
  if constexpr (kPacked) {
    const u32 tiles = packed_tiles<kM>(p);
    t.live = index < tiles * heads;
    if (!t.live) return t;
    const TilePlace place = packed_place<kM>(p, index / tiles, index % tiles);
    t.b = (int)place.b;
    t.h = (int)place.h;
    t.m0 = place.m0;
  } else {
    const u32 tiles = ((u32)p.query_rows + kM - 1) / kM, bh = index / tiles;
    t.live = index < tiles * heads * (u32)p.batch;
    if (!t.live) return t;
    t.b = (int)(bh / heads);
    t.h = (int)(bh % heads);
    t.m0 = (int)(tiles - 1 - index % tiles) * kM;
  }
  t.hk = t.h / (int)(heads / (u32)p.kv_heads);
  const RowLengths lengths = p.rows[t.b];
  const RowSpan span = span_of(p, lengths);
  if constexpr (kPacked) {
    t.query0 = span.query;
    t.key0 = span.key;
  }
  t.rows = min_of(kM, span.query_rows - t.m0);
  t.position0 = lengths.query_start + t.m0;
  t.view = visibility_of(p, lengths.live && !p.faults->call_poisoned ? lengths.total : 0);
  const Interval first = visible_keys(t.view, t.position0);
  const Interval last = visible_keys(t.view, t.position0 + t.rows - 1);
  t.clean_low = last.low;
  t.clean_high = first.high;
  t.n_first = first.low / kN;
  t.n_last = (last.high + kN - 1) / kN - 1;
  return t;
}

// Issues the copies of `rows` rows, from row `first` of `base` on, to a swizzled matrix of `height`
// rows; rows from `end` on and channels from `d` on are zeroed. 128 threads: each has one 16-byte
// piece of every `step`-th row, so that a copy costs little beside its own instruction.
template <int rows, int height, int d, int dp>
ATTN_DEVICE void fetch_rows(u32 matrix, const u16* base, i64 stride, int first, int end) {
  constexpr int pieces = dp / 8, step = dp == 192 ? 4 : 128 / pieces;
  static_assert(rows % step == 0 && (step % 8 == 0 || step == 4));
  const int thread = threadIdx.x & 127, c = thread % pieces, r = thread / pieces;
  if (r >= step) return;
  const bool column = c * 8 < d;
  const u16* source = base + (i64)(first + r) * stride + c * 8;
  const u32 at = matrix + swizzled(r, c, height);
  const i64 stride_of_step = stride * step;
  const int left = end - first - r;
  if (end - first >= rows) {
#pragma unroll
    for (int i = 0; i < rows / step; i++, source += stride_of_step) {
      // Four rows further on, the swizzle differs in one bit.
      copy_async_16((step == 4 && i % 2 ? at ^ 64 : at) + i * step * 128, source, column);
    }
  } else {
#pragma unroll 1
    for (int i = 0; i < rows / step; i++, source += stride_of_step) {
      const bool valid = column && i * step < left;
      copy_async_16((step == 4 && i % 2 ? at ^ 64 : at) + i * step * 128, valid ? source : base,
                    valid);
    }
  }
}

}  // namespace attnk
