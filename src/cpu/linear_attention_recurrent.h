// What the host's side of "recurrent" and its kernels share.
//
// An item carries a span of columns of one state through all tokens. The state lies in scratch in
// column blocks of at most four vectors, each with its rows one after the other, so that a block
// stays in the first-level cache for a tile of tokens.
//
// The kept part of the state is not multiplied out at every token. With U and c so that
// S = diag(c) U, a decay only changes c, which is kept as the sum of decays in double; U is
// multiplied by exp of that sum when it has left [-kLargestSum, kLargestSum], and the sum begins
// anew. So a decay that is the same at every token leaves no error that grows with their number.
//
// With the change d of token t - 1 still to be added, one pass over U does all that token t needs:
//   U += k_{t-1} d_{t-1}^T / c_{t-1},   held = c_t U^T k_t,   seen = c_t U^T q_t
//   d_t = beta (v - held),              output = scale (seen + (q_t . k_t) d_t)
//
// One token alone needs no copy of the state: its rows are read where they are stored, in blocks
// of rows, and a second pass, which finds them in the cache, writes the new ones. All sums and
// roundings are those of the passes over blocks, so that a step and a longer call agree.
#pragma once

#include <cstddef>
#include <cstdint>

#include "core/linear_attention.h"
#include "cpu/item_lanes.h"
#include "cpu/simd_level.h"

namespace attn::cpu {

inline constexpr int kTokenTile = 8;
inline constexpr int kMaxBlockVectors = 4;
inline constexpr double kLargestSum = 8;

struct RecurrentScratch {
  float* state;      // column blocks, each (depth, block columns)
  float* change;     // (columns) of the last token, in the units of U
  float* read_key;   // (kTokenTile, depth): k c, or k where c is a number
  float* write_key;  // (kTokenTile + 1, depth): k / c, or k; row 0 is the token before the tile
  float* query;      // (kTokenTile, outputs, depth): q c, or q
  float* decay;      // (depth)
  float* keep;       // (depth): c of each row
  float* rescale;    // (kTokenTile, depth): what rows of U are multiplied by before the token
  double* sums;      // (depth): sums of decays since U was rescaled
  float* dots;       // (kTokenTile, outputs): scale (q . k)
};

// Sizes that scratch is laid out for.
struct RecurrentGeometry {
  int depth = 0;    // dk, rounded up to whole vectors
  int columns = 0;  // dv, likewise
  int outputs = 1;  // of a state
  int block_vectors = kMaxBlockVectors;
};

RecurrentGeometry geometry_of(const LinearAttentionSpec& spec);

// Lays scratch out from `base`; with a null base only the size is right. Returns the bytes.
size_t lay_out(const RecurrentGeometry& geometry, std::byte* base, RecurrentScratch* scratch);

// One run, shared by its workers.
struct RecurrentJob {
  const LinearAttentionProblem* problem;
  RecurrentGeometry geometry;
  int64_t spans;      // items of one state
  int64_t span_size;  // columns of each, a multiple of 64
  ItemLanes items;
  std::byte* scratch;  // of slot 0
  size_t scratch_stride;
};

using RecurrentWorker = void (*)(RecurrentJob& job, int slot);

struct RecurrentKernels {
  RecurrentWorker float32, float16, bfloat16;
};

// Null for a level without SIMD or that is not of this architecture.
const RecurrentKernels* recurrent_kernels(SimdLevel level);

}  // namespace attn::cpu
