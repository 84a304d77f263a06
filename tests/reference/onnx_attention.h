// ai.onnx Attention in float64, written from the operator's contract.
//
// Every tensor comes as a (B, heads, rows, channels) view, whatever its layout: a view of three
// dimensions is one with other strides. Letters: B batch, S query rows, N new key rows, P past
// rows, R rows of a present buffer, T keys that scores show, Hq/Hkv heads, D and Dv head sizes. It
// rounds where the contract stores: outputs and scores once.
#pragma once

#include <cstdint>
#include <vector>

#include "reference/group_query_attention.h"
#include "support/view.h"

namespace attn::reference {

struct OnnxAttention {
  bool causal = false;
  double scale = 1;  // as it is
  double softcap = 0;
  int64_t left_window = -1, right_window = -1;
  int64_t score_mode = 0;
  bool length_from_mask = false;

  test::View query, key, value;
  test::View mask;                  // as it is bound, any rank
  test::View past_key, past_value;  // the rows where they lie, in place too
  test::View nonpad;                // (B)
  PresentCache present_key, present_value;
  bool scores = false;
};

struct OnnxAttentionResult {
  uint32_t faults = 0;  // the rest is empty unless 0
  std::vector<BatchRow> batch;
  int64_t score_columns = 0;  // T

  std::vector<double> output;         // (B, Hq, S, Dv)
  std::vector<double> log_sum_exp;    // (B, Hq, S)
  std::vector<double> scores;         // (B, Hq, S, T), empty unless asked for
  std::vector<bool> poisoned;         // (B, Hq, S): the row is NaN
  std::vector<double> output_size;    // (B, Hq, S): least norm to measure an output row's error by
  std::vector<double> score_size;     // (B, Hq, S): likewise for a row of scores before softmax
  std::vector<double> weighing_size;  // (B, Hq, S): expected size of the scores that weigh

  // (B, Hkv, R, D | Dv), meaningful where the row kind (B, R) is not kUntouched.
  std::vector<double> present_key, present_value;
  std::vector<CacheRow> key_rows, value_rows;
};

// One past the last key in [0, width) that the last query row of batch row b shows, of any head.
int64_t mask_end(const test::View& mask, int64_t b, int64_t heads, int64_t width);

// The mask's cell for (b, h, i, j): whether it shows the key, and what it adds.
struct MaskCell {
  bool shown = true;
  double bias = 0;
};
MaskCell mask_cell(const test::View& mask, int64_t b, int64_t h, int64_t i, int64_t j);

// The keys [first, last) that causality, windows and length leave to query row i.
void visible_range(const OnnxAttention& problem, const BatchRow& row, int64_t i, int64_t* first,
                   int64_t* last);

// Lengths are checked first; past buffers are read before anything is written, so call it before
// the engine runs.
OnnxAttentionResult run(const OnnxAttention& problem);

}  // namespace attn::reference
