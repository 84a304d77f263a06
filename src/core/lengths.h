// Reads lengths from host memory and checks them: the host's side of the fault rules.
#pragma once

#include <span>
#include <string>

#include "core/problem.h"

namespace attn {

// Public fault bits (behaviour, "Device faults"): see attn_c.h for their wording.
std::string fault_text(uint32_t bits);  // joined with "; ", empty for zero

// Checks and resolves the batch rows into `rows` (size batch). On the first bad row throws
// INVALID_ARGUMENT with index, value and limit; nothing else was touched by then.
void resolve_lengths(const Lengths& lengths, std::span<RowLengths> rows);

// kGroupQuery with a bound that the host cannot read: checks of the values what needs no bound, as
// resolve_lengths() does.
void check_without_bound(const Lengths& lengths);

// One batch row, without throwing: the fault bits of its values, `row` filled when they are 0.
uint32_t resolve_row(const Lengths& lengths, int64_t batch_index, RowLengths& row);

// kGroupQuery: whether -1, a total of 0 keys, is legal: as an empty slot, and in a call without
// query rows and new keys, which finds an empty sequence as well as any other.
inline bool may_be_empty(const Lengths& lengths) {
  return lengths.spec.empty_slots || (lengths.query_rows == 0 && lengths.new_rows == 0);
}

}  // namespace attn
