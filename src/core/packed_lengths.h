// Packed sequences: what a plan's bounds mean for one call.
#pragma once

#include "core/backend.h"
#include "core/problem.h"

namespace attn {

// Whether the call's sequences are packed tokens.
inline bool is_packed(const Lowering& call) {
  return call.attention.has_value() && call.attention->spec.packed;
}

// The call with sequences no longer than the plan serves: what is longer then breaks a length rule.
inline void bound_packed(const ShapeRange& range, Lengths& lengths, AttentionProblem& problem) {
  if (problem.query_rows > range.query_rows) problem.query_rows = range.query_rows;
  if (problem.max_total > range.total) problem.max_total = range.total;
  lengths.query_rows = problem.query_rows;
  lengths.most_keys = problem.max_total;
}

}  // namespace attn
