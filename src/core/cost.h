// Expected work of a stage at given shapes, for reports: what an engine's time is compared with.
#pragma once

#include "core/backend.h"

namespace attn {

struct Cost {
  double flops = 0;
  double bytes = 0;
};

// flops = 2 * B * Hq * pairs * (D + Dv), which is 4 * B * Hq * pairs * D for D = Dv: one product
// and one sum for each channel of each visible (query, key) pair, in Q K^T and in P V.
//   pairs = S * T; causal (queries at the end of the keys): S * T - S * (S - 1) / 2, half of S * T
//   for long prompts; a window cuts the keys of a query to left + 1 + right (right = 0 if causal).
// bytes = element size * (B * Hq * S * (D + Dv) + B * Hkv * T * (D + Dv)): each of Q, K, V, output
// once. Masks, scores and log-sum-exp are left out.
Cost attention_cost(const AttentionSpec& spec, const ShapeRange& range);

// N new rows are read and written; caches that are not in place also copy their past and zero the
// rest: 2 * past + the whole present. flops: 4 * D a normed key row and 3 * width a rotated one.
Cost kv_update_cost(const KvUpdateProblem& problem, const ShapeRange& range);

// Each row read and written once, 3 * width a row; tables are left out.
Cost rotary_cost(const RotarySpec& spec, const ShapeRange& range);

// Rows read and written: the new ones in place, otherwise the whole cache.
Cost scatter_cost(const ScatterProblem& problem, const ShapeRange& range);

// The cost of a stage, as its report has it.
inline void set_cost(const Cost& cost, StageReport& stage) {
  stage.flops = cost.flops;
  stage.bytes = cost.bytes;
}

}  // namespace attn
