// What the host's side of "chunked" and its kernels share.
//
// Tokens are taken in chunks of C, a chunk as products of matrices. With S the state before the
// chunk, G_i the sum of a head's decays over the chunk's tokens up to i, and W_ij = exp(G_i - G_j):
//
//   d_i   = beta_i (v_i - exp(G_i) S^T k_i) - sum over j < i of beta_i W_ij (k_i . k_j) d_j
//   out_i = scale (exp(G_i) S^T q_i + sum over j <= i of W_ij (q_i . k_j) d_j)
//   S     = exp(G_C) S + sum over j of exp(G_C - G_j) k_j d_j^T
//
// (d_i = v_i without the delta rule.) The first line is solved by substitution, tile of rows after
// tile: no inverse of the triangle is formed, and what is summed are the changes themselves, as the
// recurrence sums them. It is solved in double, products of keys included: where keys are equal and
// beta is 2, all tokens would have the same rounding of k . k, and their errors would add up.
// Decays come in as exponentials of differences of sums in double, never as quotients, so that a
// strong decay takes no digits from the tokens behind it.
//
// As in "recurrent" a state is held as S = c U, and a decay changes c alone, whose logarithm is a
// sum in double; U takes c in when that sum has left [-kLargestChunkSum, kLargestChunkSum].
//
// U lies in panels of a few columns (simd_tile-inl.h). All that a chunk does to a panel is done
// while it is in the first-level cache. States that read the same keys and queries are carried
// together, so that products of keys with keys and queries are formed once for all of them.
#pragma once

#include <cstddef>
#include <cstdint>

#include "core/linear_attention.h"
#include "cpu/item_lanes.h"
#include "cpu/simd_level.h"

namespace attn::cpu {

inline constexpr int kMaxChunk = 96;        // tokens
inline constexpr int kMaxSharedStates = 4;  // that are carried together
inline constexpr double kLargestChunkSum = 1;

// Sizes of one spec at one level.
struct ChunkedGeometry {
  int tile_rows = 0;         // of the level
  int panel = 0;             // columns, of the level
  int chunk = 0;             // tokens, a multiple of tile_rows
  int outputs = 1;           // of a state
  int shared = 1;            // states with the same keys and queries that may be carried together
  int panels = 0;            // of all columns of a state
  int64_t panel_floats = 0;  // of one panel of a state
  int64_t key_stride = 0;    // floats between key and query rows
  int64_t pair_stride = 0;   // floats between rows of token pairs
};

struct ChunkedScratch {
  float* state;            // (shared, panels, dk and room for a tile, panel)
  float* key;              // (chunk, key_stride)
  float* query;            // (outputs, chunk, key_stride)
  float* packed_key;       // (panels of the chunk's tokens, dk, panel)
  double* key_pairs;       // (chunk, pair_stride): k_i . k_j, j < i
  float* query_pairs;      // (outputs, chunk, pair_stride): q_i . k_j, j <= i
  double* change_weights;  // (chunk, pair_stride): -beta_i W_ij (k_i . k_j)
  float* output_weights;   // (outputs, chunk, pair_stride): scale W_ij (q_i . k_j)
  float* change;           // (panels, chunk, panel): v, then d
  double* exact;           // (chunk, panel): d of a panel
  float* held;             // (chunk, panel): U^T k
  float* seen;             // (outputs, panels, chunk, panel): outputs
  double* sums;            // (chunk): G
  float* beta;             // (chunk)
  float* read;             // (chunk): exp(G_i) c
  float* change_read;      // (chunk): -beta read
  float* output_read;      // (chunk): scale read
  float* write;            // (chunk): exp(G_C - G_i) / c
  float* decays;           // (pair_stride): W of one row
};

// Lays scratch out from `base`; with a null base only the size is right. Returns the bytes.
size_t lay_out(const ChunkedGeometry& geometry, int64_t head_size, std::byte* base,
               ChunkedScratch* scratch);

// One run, shared by its workers.
struct ChunkedJob {
  const LinearAttentionProblem* problem;
  ChunkedGeometry geometry;
  int shared;           // states of an item, a divisor of geometry.shared
  int64_t spans;        // items of the same states
  int64_t span_panels;  // panels of each
  ItemLanes items;
  std::byte* scratch;  // of slot 0
  size_t scratch_stride;
};

using ChunkedWorker = void (*)(ChunkedJob& job, int slot);

struct ChunkedKernels {
  int tile_rows;
  int panel;
  ChunkedWorker float32, float16, bfloat16;
};

// Null for a level without SIMD or that is not of this architecture.
const ChunkedKernels* chunked_kernels(SimdLevel level);

}  // namespace attn::cpu
