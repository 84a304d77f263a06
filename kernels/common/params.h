// The parameter blocks that host and kernels share. Every field is 8 bytes wide or paired, so that
// host and device compilers lay them out alike. Strides count elements. See core/problem.h for what
// the views mean; letters as there.
#pragma once

#include "common/types.h"

namespace attnk {

struct View {
  void* data;
  i64 batch, head, row, channel;
  i64 rows;
};

// ---- faults -------------------------------------------------------------------------------------

enum {
  kFaultTotalOverflow = 1,
  kFaultPastNegative = 2,
  kFaultQueryStart = 4,
  kFaultPastBeyond = 8,
  kFaultTotalBeyond = 16,
  kFaultPosition = 32,
  kFaultTotalBound = 64,
  kFaultValidLength = 128
};

// Session state in device memory. The first kernel of a call reads `latch` and writes
// `call_poisoned`; only the last kernel moves `raised` into `latch`. So no kernel reads a word that
// one of its own blocks may write, and a call sees its own faults row by row only.
struct FaultState {
  u32 latch;          // poisoned before the current call
  u32 raised;         // bits raised since the last clear
  u32 call_poisoned;  // the current call must write zeros and leave caches alone
  u32 first_claim;    // 1 once the first fault was recorded
};

// Pinned host memory, written by the device on a fault only.
struct FaultRecord {
  u32 bits;
  u32 label;  // number of the op's label
  i64 batch;
  i64 value;
};

// ---- lengths ------------------------------------------------------------------------------------

// One batch row's lengths as the metadata stage leaves them in scratch.
struct RowLengths {
  i32 past;
  i32 appended;
  i32 total;
  i32 query_start;
  u32 live;  // 0: empty slot, bad row or poisoned call: outputs are zero, caches in place untouched
  u32 fault;
  // Packed sequences: their rows among the tokens, and the tiles of the sequences before.
  i32 query_rows, tile_begin;
  i64 query_offset, key_offset;
};

enum { kLengthUniform = 0, kLengthGroupQuery = 1, kLengthValid = 2, kLengthMaskEnd = 3 };

// kLengthMaskEnd: the mask's last query row; its end tells a batch row's keys.
struct LengthMaskParams {
  const void* data;
  i64 batch, head, column;  // strides
  i64 heads, columns;
  i32 type, pad;  // of its elements
};

struct LengthParams {
  const i32* values;  // kLengthGroupQuery; kLengthValid without `valid`: totals from host memory
  const i64* valid;   // kLengthValid
  i64 value_stride;   // of either
  i64 most_keys;      // kLengthValid, kLengthMaskEnd
  LengthMaskParams mask;
  const i32* bound;  // null: bound_value
  i64 bound_value;
  i64 query_rows, new_rows;
  i64 uniform_past;
  i64 past_capacity, present_capacity;  // -1: none
  i64 table_rows;                       // -1: no rotary
  const i64* positions;                 // null: implied
  i64 position_batch, position_row;
  i32 rule;
  i32 empty_slots;
};

enum { kStoredLengths = 512 };

struct StoreLengthsParams {
  i32* out;
  i64 count;  // at most kStoredLengths
  i32 values[kStoredLengths];
};

// ---- row transform ------------------------------------------------------------------------------

struct TransformParams {
  const void* weight;
  i64 weight_stride;
  const void* cos;
  const void* sin;
  i64 cos_row, cos_col, sin_row, sin_col;
  i64 table_rows;
  const i64* positions;
  i64 position_batch, position_row;
  i32 norm, rotary, interleaved, explicit_positions;
  i32 table_type;
  i32 width;
  float epsilon;
  i32 in_pieces;  // common/rotary_rows.h serves rows that begin on 16 bytes
};

// ---- KV update ----------------------------------------------------------------------------------

struct CacheParams {
  View source, past, present;
  TransformParams transform;
  i32 active, has_past, in_place, channels;
  // Rows of these views, and of present with them, are unit-stride and begin on 16 bytes.
  i32 source_in_pieces, past_in_pieces, present_in_pieces, pad;
};

// Rows that a warp transforms at once where that takes whole rows: it has a buffer for each.
constexpr int rows_at_once(int channels) { return channels <= 256 ? 4 : 1; }

struct KvUpdateParams {
  CacheParams caches[2];  // key, value
  LengthParams lengths;
  RowLengths* rows;  // out: the metadata of this call, one a batch row
  FaultState* faults;
  FaultRecord* record;
  i64 batch, kv_heads;
  // An item: 1 << item_rows_log2 neighbouring rows of one head of the key or the value.
  i64 item_rows_log2;
  i64 items_per_chunk;  // that a block treats
  i64 chunks;           // blocks a batch row
  i64 label;
};

// ---- attention ----------------------------------------------------------------------------------

enum { kMaskNone = 0, kMaskAdditive = 1, kMaskBoolean = 2 };
enum { kSinkNone = 0, kSinkZero = 1, kSinkPerHead = 2 };
enum {
  kScoresNone = 0,
  kScoresRaw = 1,
  kScoresCapped = 2,
  kScoresBiased = 3,
  kScoresProbabilities = 4
};

struct AttentionParams {
  View query, key, value, key_fresh, value_fresh, output, scores, lse;
  TransformParams query_transform, key_transform;
  const void* mask;
  i64 mask_batch, mask_head, mask_row, mask_column, mask_columns;
  const void* sink;
  i64 sink_stride;
  i64 score_columns;
  const RowLengths* rows;
  LengthParams lengths;  // of this call; with `early` alone
  FaultState* faults;
  FaultRecord* record;
  float* partials;  // split decode: per (batch, kv head, split): 16 rows of (m, l), then of Dv sums
  u32* counters;    // split decode: per (batch, kv head), zero between launches, in the session
  i64 batch, q_heads, kv_heads, query_rows;
  i64 head_size, v_head_size;
  i64 left_window, right_window;  // -1: unbounded
  i64 splits;
  float scale, softcap;
  float hidden_score;
  i32 causal;
  i32 mask_kind, mask_type, sink_kind, score_stage;
  i32 has_lse, key_is_fresh, value_is_fresh, has_query_transform;
  i32 has_key_transform, last;
  i32 early;   // the keys before the new ones stand in memory before the KV update
  i32 packed;  // softmax/packed.h
};

}  // namespace attnk
