// Rotary embedding of a tensor by itself: what the operator RotaryEmbedding becomes.
#pragma once

#include <cstdint>

#include "core/dtype.h"
#include "core/row_transform_spec.h"
#include "core/view.h"

namespace attn {

struct RotarySpec {
  DType type{};  // of input, output and tables
  int32_t heads = 0;
  int32_t head_size = 0;
  bool in_place = false;       // output is input
  bool unit_channel = true;    // channel strides of input and output are 1
  RowTransformSpec transform;  // rotary alone
  bool operator==(const RotarySpec&) const = default;
};

// output[b, h, i] = transform(input[b, h, i]). With explicit positions the tables are
// (table_rows, width / 2) and row i of batch row b stands at positions[b, i]; otherwise each batch
// row has tables of its own, table_batch elements apart, and row i stands at i.
struct RotaryProblem {
  RotarySpec spec;
  int64_t batch = 0;
  int64_t rows = 0;  // S
  View4 input;       // (B, H, S, D)
  View4 output;
  RowTransform transform;
  int64_t cos_batch = 0, sin_batch = 0;
};

// The tables of batch row `batch`, whichever form they have.
inline RowTransform transform_of(const RotaryProblem& problem, int64_t batch) {
  RowTransform transform = problem.transform;
  const int64_t size = size_of(problem.spec.transform.table);
  transform.cos = static_cast<const char*>(transform.cos) + batch * problem.cos_batch * size;
  transform.sin = static_cast<const char*>(transform.sin) + batch * problem.sin_batch * size;
  return transform;
}

// Reads explicit positions from host memory: throws INVALID_ARGUMENT with index, value and limit
// for the first one outside the table.
void check_positions(const RotaryProblem& problem);

}  // namespace attn
