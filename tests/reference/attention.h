// Softmax attention of one query row in float64: scores, cap, mask, softmax with sink, log-sum-exp.
//
// The core that the operator references share. It is written for clarity: every stage of every cell
// is kept, nothing is blocked or rescaled.
#pragma once

#include <cstdint>
#include <span>
#include <vector>

namespace attn::reference {

// One row's question. Keys and values are row-major (total, head_size) and (total, value_size).
struct AttentionRow {
  std::span<const double> query;
  const double* keys = nullptr;
  const double* values = nullptr;
  int64_t total = 0;
  int64_t value_size = 0;
  double scale = 1;
  double softcap = 0;  // c * tanh(x / c); 0 off
  int64_t first = 0;   // keys outside [first, last) are hidden by causality, window or length
  int64_t last = 0;
  std::span<const double> bias;  // empty, or one value a key; -infinity masks, NaN counts if seen
  bool unmasked = false;         // raw and capped scores of the keys outside [first, last) too
  bool has_sink = false;
  double sink = 0;  // a further term exp(sink) of the denominator, neither scaled nor capped
};

// Its answer. The stage vectors have `total` cells. What causality, window or length hide is 0 in
// each, but in `raw` and `capped` where the row asks for unmasked scores.
struct AttentionRowResult {
  std::vector<double> output;
  std::vector<double> raw;  // scale * q . k
  std::vector<double> capped;
  std::vector<double> biased;         // -infinity where the bias says so
  std::vector<double> probabilities;  // 0 where masked; divided by the sink's term too
  double log_sum_exp = 0;             // over the visible keys, without the sink; -infinity if none
  bool visible = false;               // some key is visible
  bool poisoned = false;              // a visible score is NaN or +infinity: the row is NaN
  // How far terms cancel, for error bounds: |sum p v| against its expected size.
  double effective_keys = 0;       // 1 / sum p^2
  std::vector<double> absolute;    // sum p |v|, a channel each
  std::vector<double> score_size;  // scale * |q| * |k| / sqrt(D): the expected size of a score
  std::vector<double> raw_size;    // the same for every key that has a raw score
};

AttentionRowResult attend(const AttentionRow& row);

}  // namespace attn::reference
