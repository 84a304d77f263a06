// Blocked attention ("simd-prefill"): how a problem is cut, and the kernels of one SIMD level.
//
// A work item is (batch row, kv head, block of query rows), the rows of all heads of the group
// together. For each block of keys it packs K and V once as float panels, and takes the query rows
// in bands that fit the first-level cache: scores of the band, cap and masks, online softmax,
// product with V added to the item's output rows. Nothing grows with the number of keys or rows.
// A band is a few tiles of the level's row count; a tile computes no further than its rows can see.
//
// What a row computes depends on the key blocks alone, whose boundaries are multiples of the block
// size, and on which rows share its tile, whose boundaries are multiples of the tile size: neither
// the number of threads nor the cut into items nor the rest of the batch changes a bit of it.
#pragma once

#include <cstddef>
#include <cstdint>
#include <span>

#include "core/problem.h"
#include "cpu/engine.h"
#include "cpu/item_lanes.h"
#include "cpu/row_transform_simd.h"
#include "cpu/simd_rows.h"

namespace attn::cpu {

// Floats between the score rows of a band; also the most keys in a block.
inline constexpr int kScoreStride = 128;
inline constexpr int kMaxBandRows = 24;

// Sizes of one spec at one level.
struct PrefillGeometry {
  int tile_rows = 0;         // of the level
  int panel = 0;             // of the level
  int key_block = 0;         // keys a block, a multiple of `panel`
  int band_rows = 0;         // a multiple of tile_rows
  int item_rows = 0;         // most rows of an item, a multiple of band_rows
  int v_channels = 0;        // v_head_size rounded up to panels
  int64_t value_stride = 0;  // floats between value panels: a cache line more than they hold, so
                             // that the panels' like rows fall into different cache sets
  int64_t row_stride = 0;    // floats of one row before it is packed
};

// Some rows of an item, as many as the level takes at once, and the columns of the current key
// block that they see.
struct PrefillTile {
  int rows = 0;
  int first = 0;         // a multiple of the panel
  int begin = 0;         // exact; the columns before it hide their keys from all rows
  int end = 0;           // exact; at most `first`: none
  bool started = false;  // its output rows hold sums
  bool masked = false;   // the mask changes some score of the columns
};

// Scratch of one worker.
struct PrefillScratch {
  float* query;        // (item_rows / tile_rows, D, tile_rows), scaled; room for an overrun
  float* output;       // (item_rows, v_channels)
  float* keys;         // (key_block / panel, D, panel)
  float* values;       // (v_channels / panel, key_block, panel), panels value_stride apart
  float* scores;       // (band_rows, kScoreStride) and room for an overrun
  float* factors;      // (band_rows)
  float* row_max;      // (item_rows) online softmax
  float* row_sum;      // (item_rows)
  KeyRange* ranges;    // (item_rows) what each row may see
  float* rows;         // (tile_rows, row_stride) rows before they are packed
  PrefillTile* tiles;  // (item_rows / tile_rows)
};

// Lays the scratch out from `base`; with a null base only the size is right. Returns the bytes.
size_t lay_out(const AttentionSpec& spec, const PrefillGeometry& geometry, std::byte* base,
               PrefillScratch* scratch);

// One run, shared by its workers.
struct PrefillJob {
  const AttentionProblem* problem;
  std::span<const RowLengths> rows;
  const RowKernels* row_kernels;  // of the level
  PrefillGeometry geometry;
  int64_t item_rows;  // of this run: bands of geometry, at most geometry.item_rows
  int64_t blocks;     // query blocks a (batch row, kv head)
  ItemLanes items;
  std::byte* scratch;
  size_t scratch_stride;
};

// Works on items until none is left; `slot` picks the scratch.
using PrefillWorker = void (*)(PrefillJob& job, int slot);

struct PrefillKernels {
  int tile_rows;
  int panel;
  PrefillWorker float32, float16, bfloat16;
};

// Null for a level without SIMD or that is not of this architecture.
const PrefillKernels* prefill_kernels(SimdLevel level);

}  // namespace attn::cpu
