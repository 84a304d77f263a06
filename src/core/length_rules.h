// The length rules that lengths.cc hands on: valid lengths, the end of a mask, packed sequences.
#pragma once

#include <cstdint>

#include "core/problem.h"

namespace attn {

// One batch row of a rule other than kUniform and kGroupQuery: its fault bits, `row` filled when
// they are 0.
uint32_t resolve_valid_row(const Lengths& lengths, int64_t batch_index, RowLengths& row);
uint32_t resolve_mask_row(const Lengths& lengths, int64_t batch_index, RowLengths& row);
uint32_t resolve_cumulative_row(const Lengths& lengths, int64_t batch_index, RowLengths& row);

// Throws INVALID_ARGUMENT for a batch row with these faults: index, value and limit.
[[noreturn]] void fail_valid_row(const Lengths& lengths, int64_t batch_index);
[[noreturn]] void fail_mask_row(const Lengths& lengths, int64_t batch_index);
[[noreturn]] void fail_cumulative_row(const Lengths& lengths, int64_t batch_index);

}  // namespace attn
