// com.microsoft GroupQueryAttention in float64, written from the operator's contract.
//
// Letters: B batch, S query rows, N new key rows, T a batch row's keys, L cache rows, Hq and Hkv
// heads, D head size. It rounds where the contract stores: keys and values to the cache's type,
// queries after norm and rotary embedding to theirs, outputs once.
#pragma once

#include <cstdint>
#include <string>
#include <vector>

#include "support/view.h"

namespace attn::reference {

// A present output as the caller binds it.
struct PresentCache {
  bool bound = false;
  int64_t rows = 0;       // L
  bool in_place = false;  // it is the past buffer
};

struct GroupQueryAttention {
  int64_t num_heads = 0;
  int64_t kv_num_heads = 0;
  double scale = 0;  // 0: 1 / sqrt(D)
  double softcap = 0;
  int64_t local_window_size = -1;
  bool causal = true;
  bool do_rotary = false;
  bool rotary_interleaved = false;
  int64_t smooth_softmax = -1;
  int64_t qk_output = 0;
  bool empty_slots = false;
  double qk_norm_epsilon = 1e-6;

  test::View query;  // (B, S, Hq D), or packed (B, S, (Hq + 2 Hkv) D) when key is unbound
  test::View key, value;
  test::View past_key, past_value;
  test::View seqlens_k;
  test::View total_sequence_length;
  test::View cos_cache, sin_cache;
  test::View position_ids;
  test::View attention_bias;
  test::View head_sink;
  test::View q_norm_weight, k_norm_weight;

  PresentCache present_key, present_value;

  bool packed() const { return !key.bound; }
  int64_t batch() const { return query.dim(0); }
  int64_t query_rows() const { return query.dim(1); }
  int64_t new_rows() const { return packed() ? query_rows() : key.dim(1); }
  int64_t head_size() const {
    return query.dim(2) / (packed() ? num_heads + 2 * kv_num_heads : num_heads);
  }
};

// What a batch row is made of once its length was read.
struct BatchRow {
  bool live = false;  // false: an empty slot
  int64_t past = 0;
  int64_t appended = 0;
  int64_t total = 0;
  int64_t query_start = 0;
};

// The public fault bits that the host must turn into an error.
enum : uint32_t {
  kTotalOverflows = 1,
  kPastNegative = 2,
  kQueryStartNegative = 4,
  kPastBeyondBuffer = 8,
  kTotalBeyondPresent = 16,
  kPositionOutsideTable = 32,
  kTotalBeyondBound = 64,
  kLengthOutside = 128,
};

enum class RowKind : uint8_t {
  kChecked,  // every value is given
  kPadded,   // a padded row of a first prompt: finite for finite inputs, otherwise free
};

enum class CacheRow : uint8_t {
  kUntouched,  // what the buffer held
  kCopied,     // a past row
  kNew,        // a new row, transformed and rounded
  kZero,
  kFree,  // padding whose position lies outside the rotary table: any value
};

struct GroupQueryResult {
  uint32_t faults = 0;  // of all batch rows; the rest is empty unless 0
  bool first_prompt = false;
  std::vector<BatchRow> batch;

  std::vector<double> output;       // (B, S, Hq, D)
  std::vector<double> log_sum_exp;  // (B, Hq, S)
  std::vector<double> scores;       // (B, Hq, S, total_sequence_length), empty without qk_output
  std::vector<RowKind> rows;        // (B, S)
  std::vector<bool> poisoned;       // (B, Hq, S): the row is NaN
  std::vector<double> output_size;  // (B, Hq, S): least norm to measure an output row's error by
  std::vector<double> score_size;   // (B, Hq, S): likewise for a row of scores before softmax

  // (B, Hq, S): expected size of the scores that weigh, sum p scale |q| |k| / sqrt(D)
  std::vector<double> weighing_size;
  std::vector<double> key_share;  // (B, Hq, S): sum p; what is missing to 1 is the sink's

  // (B, Hkv, L, D), meaningful where the row kind (B, L) is not kUntouched.
  std::vector<double> present_key, present_value;
  std::vector<CacheRow> key_rows, value_rows;
  // The transform has one right bit pattern (no norm, or no transform at all).
  bool new_keys_exact = false;
};

// Lengths and positions are checked first; past buffers are read before anything is written, so
// call it before the engine runs.
GroupQueryResult run(const GroupQueryAttention& problem);

}  // namespace attn::reference
