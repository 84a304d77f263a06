// The host's side of two fault rules: positions inside the rotary table, write indices inside the
// cache.
#include "attn_c.h"
#include "core/error.h"
#include "core/lengths.h"
#include "core/rotary_problem.h"
#include "core/scatter_problem.h"

namespace attn {

void check_positions(const RotaryProblem& problem) {
  const RowTransform& transform = problem.transform;
  if (!problem.spec.transform.explicit_positions) return;
  for (int64_t b = 0; b < problem.batch; ++b) {
    const int64_t* position = transform.positions + b * transform.position_batch;
    for (int64_t i = 0; i < problem.rows; ++i) {
      const int64_t value = position[i * transform.position_row];
      if (value >= 0 && value < transform.table_rows) continue;
      fail_argument("position_ids[", b, ", ", i, "] is ", value, ": ",
                    fault_text(ATTN_FAULT_POSITION), ", which has ", transform.table_rows, " rows");
    }
  }
}

void check_write_indices(const ScatterProblem& problem) {
  if (problem.spec.circular || !problem.spec.indexed) return;
  const int64_t most = problem.cache_rows - problem.new_rows;
  for (int64_t b = 0; b < problem.batch; ++b) {
    const int64_t value = problem.indices[b * problem.index_stride];
    if (value >= 0 && value <= most) continue;
    fail_argument("write_indices[", b, "] is ", value, ": ", fault_text(ATTN_FAULT_WRITE_INDEX),
                  "; the ", problem.new_rows, " new rows fit a cache of ", problem.cache_rows,
                  " rows at 0 to ", most);
  }
}

}  // namespace attn
