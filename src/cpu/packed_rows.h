// Packed sequences: what tokens without a sequence, and the lengths found, mean for one call.
#pragma once

#include <algorithm>
#include <span>

#include "core/problem.h"

namespace attn::cpu {

// The problem with as many query rows as its longest sequence has: engines cut work by them, and no
// result depends on how.
inline AttentionProblem as_long_as_needed(const AttentionProblem& problem,
                                          std::span<const RowLengths> rows) {
  AttentionProblem out = problem;
  out.query_rows = 0;
  for (const RowLengths& row : rows) out.query_rows = std::max(out.query_rows, row.query_rows);
  return out;
}

// Zeros (log-sum-exp -infinity) for the tokens before the first and behind the last sequence.
void clear_loose_rows(const AttentionProblem& problem, std::span<const RowLengths> rows);

}  // namespace attn::cpu
