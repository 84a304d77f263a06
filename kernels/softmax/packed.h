// Packed sequences (kPacked): the tokens of all sequences lie behind each other, batch strides are
// 0, and a sequence begins at a row of its own. packed/packed_lengths.cu resolves where, before the
// attention kernel, and numbers the tiles of `height` query rows over all sequences.
#pragma once

#include "common/device.h"
#include "softmax/variant.h"

namespace attnk {

// Where a batch row's query and key rows begin, and how many query rows it has.
struct RowSpan {
  i64 query, key;
  int query_rows;
};

ATTN_DEVICE RowSpan span_of(const AttentionParams& p, const RowLengths& r) {
  if constexpr (kPacked) return {r.query_offset, r.key_offset, r.query_rows};
  return {0, 0, (int)p.query_rows};
}

// The tile that a prefill block treats: query rows from m0 on of head h.
struct TilePlace {
  int b, h;
  int m0;
  bool live;  // false: there are no more tiles
};

template <int height>
ATTN_DEVICE int tiles_of(const RowLengths& r) {
  return (r.query_rows + height - 1) / height;
}

// Tiles of one head over all sequences. Batch is not 0.
template <int height>
ATTN_DEVICE u32 packed_tiles(const AttentionParams& p) {
  const RowLengths& last = p.rows[p.batch - 1];
  return (u32)(last.tile_begin + tiles_of<height>(last));
}

// Tile t of a head, which exists. Sequences without rows share their begin with the next one.
template <int height>
ATTN_DEVICE TilePlace packed_place(const AttentionParams& p, int h, u32 t) {
  int low = 0, high = (int)p.batch;  // the last sequence that begins at t or before
  while (high - low > 1) {
    const int middle = (low + high) / 2;
    if ((u32)p.rows[middle].tile_begin <= t) {
      low = middle;
    } else {
      high = middle;
    }
  }
  const RowLengths& r = p.rows[low];
  return {low, h, (r.tile_begin + tiles_of<height>(r) - 1 - (int)t) * height, true};
}

// Of block `index`, after wait_for_previous(). The longest tiles of a sequence begin. The grid of
// packed sequences is a bound, the same for every head.
template <int height>
ATTN_DEVICE TilePlace tile_place(const AttentionParams& p, u32 index) {
  if constexpr (kPacked) {
    const u32 bound = gridDim.x / (u32)p.q_heads, t = index % bound;
    if (t >= packed_tiles<height>(p)) return {0, 0, 0, false};
    return packed_place<height>(p, (int)(index / bound), t);
  }
  const u32 tiles = (u32)((p.query_rows + height - 1) / height);
  const u32 bh = index / tiles, heads = (u32)p.q_heads;
  return {(int)(bh / heads), (int)(bh % heads), (int)(tiles - 1 - index % tiles) * height, true};
}

}  // namespace attnk
