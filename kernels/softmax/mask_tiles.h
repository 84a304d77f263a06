// Whether a mask shows or hides a tile of rows x keys wholly. What it hides wholly is neither
// fetched nor multiplied; what it shows wholly needs no look at its cells.
#pragma once

#include "common/device.h"
#include "common/visibility.h"

namespace attnk {

enum { kTileMixed = 0, kTileHidden = 1, kTileShown = 2 };

// Of the cells of one thread: whether some show their key, and whether all do and add nothing.
struct MaskCells {
  bool any = false, all = true;
};

template <int kind>
ATTN_DEVICE void add_cell(const AttentionParams& p, i64 at, MaskCells& cells) {
  if (kind == kMaskBoolean) {
    const bool shown = ((const u8*)p.mask)[at] != 0;
    cells.any |= shown;
    cells.all &= shown;
  } else {
    const float x = load_any(p.mask, at, p.mask_type);
    cells.any |= x != -infinity();
    cells.all &= x == 0.f;
  }
}

// Four bytes of a mask: boolean cells, two cells of 16 bits, or one of 32.
template <int kind>
ATTN_DEVICE void add_word(const AttentionParams& p, u32 word, MaskCells& cells) {
  if (kind == kMaskBoolean) {
    cells.any |= word != 0;
    cells.all &= ((word - 0x01010101u) & ~word & 0x80808080u) == 0;  // no byte is 0
  } else if (p.mask_type == kTypeFloat32) {
    cells.any |= word != 0xff800000u;
    cells.all &= (word & 0x7fffffffu) == 0;
  } else {
    const u32 hidden = p.mask_type == kTypeFloat16 ? 0xfc00fc00u : 0xff80ff80u;
    cells.any |= word != hidden;
    cells.all &= (word & 0x7fff7fffu) == 0;
  }
}

// `count` cells of the row whose cell 0 is at `row`, from column j on.
template <int kind, int count>
ATTN_DEVICE void add_cells(const AttentionParams& p, i64 row, int j, MaskCells& cells) {
  const int bytes = kind == kMaskBoolean ? 1 : p.mask_type == kTypeFloat32 ? 4 : 2;
  const u8* first = (const u8*)p.mask + (row + j) * bytes;
  if (p.mask_column == 1 && j + count <= p.mask_columns && (u64)first % 16 == 0) {
#pragma unroll 4
    for (int i = 0; i < count * bytes / 16; i++) {
      const uint4 x = ((const uint4*)first)[i];
      add_word<kind>(p, x.x, cells);
      add_word<kind>(p, x.y, cells);
      add_word<kind>(p, x.z, cells);
      add_word<kind>(p, x.w, cells);
    }
    return;
  }
#pragma unroll 1
  for (int i = j; i < j + count; i++) {
    if (i < p.mask_columns) {
      add_cell<kind>(p, row + i * p.mask_column, cells);
    } else {
      cells.all = false;
    }
  }
}

// Bits of 64 cells of a boolean mask's row from column j on; columns beyond the mask's are 0.
ATTN_DEVICE u64 mask_bits(const AttentionParams& p, i64 row, int j) {
  const u8* first = (const u8*)p.mask + row + j;
  u64 bits = 0;
  if (p.mask_column == 1 && j + 64 <= p.mask_columns && (u64)first % 16 == 0) {
#pragma unroll
    for (int i = 0; i < 4; i++) {
      const uint4 x = ((const uint4*)first)[i];
      const u32 words[4] = {x.x, x.y, x.z, x.w};
#pragma unroll
      for (int k = 0; k < 4; k++) {
        // The lowest bit of each byte that is not 0; then four of them side by side.
        u32 w = ((words[k] & 0x7f7f7f7fu) + 0x7f7f7f7fu | words[k]) >> 7 & 0x01010101u;
        w |= w >> 7;
        w = (w | w >> 14) & 15;
        bits |= (u64)w << (i * 16 + k * 4);
      }
    }
    return bits;
  }
#pragma unroll 1
  for (int i = 0; i < 64 && j + i < p.mask_columns; i++) {
    bits |= (u64)(((const u8*)p.mask)[row + (j + i) * p.mask_column] != 0) << i;
  }
  return bits;
}

// The cells of thread `thread` of `threads` among those of `rows` rows (of up to `most`), keys
// [j0, j0 + keys): part of one row. `base` is the offset of the first row's cell 0.
template <int kind, int threads, int most, int keys>
ATTN_DEVICE MaskCells cells_of(const AttentionParams& p, i64 base, int rows, int j0, int thread) {
  // Several threads share a row where each then has whole pieces of 16 bytes.
  constexpr int parts = keys * most / threads >= 16 ? threads / most : 1, count = keys / parts;
  static_assert(threads % most == 0 && count % 16 == 0);
  MaskCells cells;
  const int row = p.mask_row == 0 ? 0 : thread / parts;
  if (row < rows) {
    add_cells<kind, count>(p, base + row * p.mask_row, j0 + thread % parts * count, cells);
  }
  return cells;
}

// By all threads of a block together, which all get the state of the tile.
template <int kind, int threads, int most, int keys>
ATTN_DEVICE int mask_tile(const AttentionParams& p, i64 base, int rows, int j0) {
  const MaskCells cells = cells_of<kind, threads, most, keys>(p, base, rows, j0, threadIdx.x);
  if (!__syncthreads_or(cells.any)) return kTileHidden;
  return __syncthreads_and(cells.all) ? kTileShown : kTileMixed;
}

// The next tile of keys from `n` down to `first` that the mask does not hide, else first - 1, and
// whether the mask shows it wholly. All threads of a block call it together.
template <int kind, int threads, int most, int keys>
ATTN_DEVICE int next_tile(const AttentionParams& p, i64 base, int rows, int n, int first,
                          bool& shown) {
  shown = true;
  if constexpr (kind != kMaskNone) {
    for (; n >= first; n--) {
      const int state = mask_tile<kind, threads, most, keys>(p, base, rows, n * keys);
      shown = state == kTileShown;
      if (state != kTileHidden) break;
    }
  }
  return n;
}

}  // namespace attnk
