// Blocked attention on matrix tiles ("amx-prefill"): how a problem is cut, and its kernels.
//
// A work item is (batch row, kv head, block of query rows), the rows of all heads of the group
// together, as in attention_prefill.h. Everything that is multiplied is held as bfloat16 pieces,
// packed into tiles of 16 x 32 elements (1 KB) that the unit loads as they are: one piece for
// bfloat16, two for float16, three for float32. Both products are the same one: strips of 32 rows
// by 32 columns over steps of 32 elements of the sum.
//
// A tile of the left operand is 16 rows of 32 elements, one of the right 16 columns of them. Within
// a step, elements i and i + 16 lie beside each other in both: the sum does not feel it, and two
// vectors of floats become one by a shift and an or. Layouts, outermost first:
//
//   query    (strip, step of channels, piece, half of the strip)         left
//   keys     (group of 32 keys, step of channels, piece, half)           right
//   weights  (group of 32 keys, piece, half of the strip)                left, of one strip
//   values   (32 channels, group of 32 keys, piece, half)                right
//
// What a row computes depends on the key blocks alone, whose boundaries are multiples of the block
// size, and on the strip, whose boundaries are multiples of 32 rows: neither the number of threads
// nor the cut into items nor the rest of the batch changes a bit of it.
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

inline constexpr int kAmxStrip = 32;      // rows, columns and steps of a product
inline constexpr int kAmxTile = 16;       // rows and columns of a tile
inline constexpr int kAmxTileSize = 512;  // elements of a tile
inline constexpr int kAmxMostKeys = 256;  // keys in a block

// Pieces that an element of the type is cut into.
inline constexpr int amx_pieces(DType type) {
  return type == kBfloat16 ? 1 : type == kFloat16 ? 2 : 3;
}

// Sizes of one spec.
struct AmxGeometry {
  int pieces = 0;
  int depth = 0;           // head_size rounded up to steps
  int v_channels = 0;      // v_head_size rounded up to steps
  int key_block = 0;       // keys a block, a multiple of kAmxStrip
  int item_rows = 0;       // most rows of an item, a multiple of kAmxStrip
  int64_t row_stride = 0;  // floats of one row before it is packed
  int64_t score_stride = 0;

  // Elements of one step of a product: two tiles for each piece.
  int64_t step() const { return int64_t{2} * pieces * kAmxTileSize; }
  int64_t depth_steps() const { return depth / kAmxStrip; }
  int64_t groups() const { return key_block / kAmxStrip; }
};

// Some rows of an item and the keys of the current block that they see.
struct AmxStrip {
  int rows = 0;
  int begin = 0;         // exact; the keys before it are hidden from all rows
  int end = 0;           // exact; at most `begin`: none
  bool started = false;  // its output rows hold sums
  bool masked = false;   // the mask changes some score
};

// Scratch of one worker.
struct AmxScratch {
  uint16_t* query;
  uint16_t* keys;
  uint16_t* values;
  uint16_t* weights;
  float* output;     // (item_rows, v_channels)
  float* scores;     // (kAmxStrip, score_stride)
  float* row_max;    // (item_rows) online softmax
  float* row_sum;    // (item_rows)
  KeyRange* ranges;  // (item_rows) what each row may see
  float* rows;       // (kAmxTile, row_stride) rows before they are packed
  float* transpose;  // (kAmxStrip, kAmxTile) channels of keys
  AmxStrip* strips;  // (item_rows / kAmxStrip)
};

// Lays the scratch out from `base`; with a null base only the size is right. Returns the bytes.
size_t lay_out(const AmxGeometry& geometry, std::byte* base, AmxScratch* scratch);

// One run, shared by its workers.
struct AmxJob {
  const AttentionProblem* problem;
  std::span<const RowLengths> rows;
  const RowKernels* row_kernels;  // of the level
  AmxGeometry geometry;
  int64_t item_rows;  // of this run: strips, at most geometry.item_rows
  int64_t blocks;     // query blocks a (batch row, kv head)
  ItemLanes items;
  std::byte* scratch;
  size_t scratch_stride;
};

// Works on items until none is left; `slot` picks the scratch.
using AmxWorker = void (*)(AmxJob& job, int slot);

struct AmxKernels {
  AmxWorker float32, float16, bfloat16;
};

// Kernels on the processor's tiles; null for levels that processors with AMX are above. May only
// run where amx_state() is usable.
const AmxKernels* amx_kernels(SimdLevel level);

// Kernels on tiles that the level's vectors stand in for (amx_tiles_emulated-inl.h); null for a
// level without SIMD or that is not of this architecture.
const AmxKernels* amx_emulated_kernels(SimdLevel level);

}  // namespace attn::cpu
