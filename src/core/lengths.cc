#include "core/lengths.h"

#include <algorithm>
#include <limits>

#include "core/error.h"
#include "core/length_rules.h"

namespace attn {
namespace {

struct FaultWords {
  uint32_t bit;
  const char* text;
};

constexpr FaultWords kFaultWords[] = {
    {ATTN_FAULT_TOTAL_OVERFLOW, "total overflows int32"},
    {ATTN_FAULT_PAST_NEGATIVE, "past is negative (total is shorter than the new keys)"},
    {ATTN_FAULT_QUERY_START, "query start is negative (total is shorter than the new queries)"},
    {ATTN_FAULT_PAST_BEYOND, "past reaches beyond the past buffer"},
    {ATTN_FAULT_TOTAL_BEYOND, "total reaches beyond the present capacity"},
    {ATTN_FAULT_POSITION, "a position lies outside the rotary table"},
    {ATTN_FAULT_TOTAL_BOUND, "total exceeds total_sequence_length"},
    {ATTN_FAULT_VALID_LENGTH, "a valid length lies outside [0, L]"},
    {ATTN_FAULT_CUMULATIVE, "cumulative lengths do not ascend or reach beyond the tokens"},
    {ATTN_FAULT_BLOCK, "a block id lies outside the pool"},
    {ATTN_FAULT_WRITE_INDEX, "a write index lies outside the cache"},
};

bool first_prompt(const Lengths& lengths) {
  return *lengths.bound == lengths.query_rows && lengths.new_rows == lengths.query_rows;
}

// The first query row of the batch row whose position is outside the table, -1 if there is none.
// `live_rows`: query rows that are no padding.
int64_t bad_position(const Lengths& lengths, int64_t batch_index, int64_t query_start,
                     int64_t live_rows) {
  if (lengths.table_rows < 0) return -1;
  if (lengths.positions == nullptr) {
    const int64_t inside = lengths.table_rows - query_start;  // rows whose position is in the table
    if (inside >= live_rows) return -1;
    return inside > 0 ? inside : 0;
  }
  const int64_t* position = lengths.positions + batch_index * lengths.position_batch;
  for (int64_t i = 0; i < live_rows; ++i) {
    const int64_t value = position[i * lengths.position_row];
    if (value < 0 || value >= lengths.table_rows) return i;
  }
  return -1;
}

uint32_t resolve_group_query_row(const Lengths& lengths, int64_t batch_index, RowLengths& row) {
  const int64_t value = lengths.values[batch_index * lengths.value_stride];
  if (value == -1 && may_be_empty(lengths)) return 0;
  const int64_t total = value + 1;
  if (total > std::numeric_limits<int32_t>::max()) return ATTN_FAULT_TOTAL_OVERFLOW;

  const bool first = first_prompt(lengths);
  const int64_t past = first ? 0 : total - lengths.new_rows;
  const int64_t query_start = first ? 0 : total - lengths.query_rows;
  uint32_t faults = 0;
  if (value < 0 || past < 0) faults |= ATTN_FAULT_PAST_NEGATIVE;
  if (query_start < 0) faults |= ATTN_FAULT_QUERY_START;
  if (past > lengths.past_capacity) faults |= ATTN_FAULT_PAST_BEYOND;
  if (lengths.present_capacity >= 0 && total > lengths.present_capacity) {
    faults |= ATTN_FAULT_TOTAL_BEYOND;
  }
  if (total > *lengths.bound) faults |= ATTN_FAULT_TOTAL_BOUND;
  if (faults != 0) return faults;

  const int64_t live_rows = first && total < lengths.query_rows ? total : lengths.query_rows;
  if (bad_position(lengths, batch_index, query_start, live_rows) >= 0) return ATTN_FAULT_POSITION;
  row.past = past;
  row.appended = lengths.new_rows;
  row.total = total;
  row.query_start = query_start;
  row.live = true;
  return 0;
}

// Says what is wrong with one batch row of seqlens_k, `faults` being its bits: the first in the
// order of the bits, since the later ones often only follow from it.
[[noreturn]] void fail_group_query_row(const Lengths& lengths, int64_t batch_index,
                                       uint32_t faults) {
  const int64_t value = lengths.values[batch_index * lengths.value_stride];
  const int64_t total = value + 1;
  const int64_t bound = *lengths.bound;
  const std::string head = cat("seqlens_k[", batch_index, "] is ", value, ", a total of ", total,
                               " keys (seqlens_k holds totals minus 1): ");
  const uint32_t bit = faults & (~faults + 1);
  const std::string rule = fault_text(bit);
  switch (bit) {
    case ATTN_FAULT_TOTAL_OVERFLOW:
      fail_argument(head, rule, "; the limit is ", std::numeric_limits<int32_t>::max());
    case ATTN_FAULT_PAST_NEGATIVE:
      if (value < 0) {
        fail_argument(
            head, rule, "; the least value is 0",
            value == -1 ? " (-1 is an empty slot only with the attribute empty_slots)" : "");
      }
      fail_argument(head, rule, "; there are ", lengths.new_rows, " new keys a batch row");
    case ATTN_FAULT_QUERY_START:
      fail_argument(head, rule, "; there are ", lengths.query_rows, " new queries a batch row");
    case ATTN_FAULT_PAST_BEYOND:
      fail_argument(head, rule, "; ", total - lengths.new_rows,
                    " of them are past keys, the past buffer holds ", lengths.past_capacity);
    case ATTN_FAULT_TOTAL_BEYOND:
      fail_argument(head, rule, "; the present buffer holds ", lengths.present_capacity);
    case ATTN_FAULT_TOTAL_BOUND:
      fail_argument(head, rule, ", which is ", bound);
    default:
      break;
  }
  const int64_t start = first_prompt(lengths) ? 0 : total - lengths.query_rows;
  const int64_t live_rows = std::min(lengths.query_rows, total);
  const int64_t i = bad_position(lengths, batch_index, start, live_rows);
  if (lengths.positions != nullptr) {
    fail_argument(
        "position_ids[", batch_index, ", ", i, "] is ",
        lengths.positions[batch_index * lengths.position_batch + i * lengths.position_row], ": ",
        rule, ", which has ", lengths.table_rows, " rows");
  }
  fail_argument(head, rule, "; query row ", i, " stands at position ", start + i,
                ", the table has ", lengths.table_rows, " rows");
}

[[noreturn]] void fail_row(const Lengths& lengths, int64_t batch_index, uint32_t faults) {
  switch (lengths.spec.rule) {
    case LengthRule::kValid:
      fail_valid_row(lengths, batch_index);
    case LengthRule::kMaskEnd:
      fail_mask_row(lengths, batch_index);
    case LengthRule::kCumulative:
      fail_cumulative_row(lengths, batch_index);
    default:
      fail_group_query_row(lengths, batch_index, faults);
  }
}

}  // namespace

std::string fault_text(uint32_t bits) {
  std::string text;
  const auto join = [&text](std::string_view words) {
    if (!text.empty()) text += "; ";
    text += words;
  };
  for (const FaultWords& words : kFaultWords) {
    if ((bits & words.bit) == 0) continue;
    join(words.text);
    bits &= ~words.bit;
  }
  if (bits != 0) join(cat("a length rule that this version has no words for (bits ", bits, ")"));
  return text;
}

uint32_t resolve_row(const Lengths& lengths, int64_t batch_index, RowLengths& row) {
  row = RowLengths{};
  switch (lengths.spec.rule) {
    case LengthRule::kGroupQuery:
      return resolve_group_query_row(lengths, batch_index, row);
    case LengthRule::kValid:
      return resolve_valid_row(lengths, batch_index, row);
    case LengthRule::kMaskEnd:
      return resolve_mask_row(lengths, batch_index, row);
    case LengthRule::kCumulative:
      return resolve_cumulative_row(lengths, batch_index, row);
    case LengthRule::kUniform:
      break;
  }
  // Uniform lengths come from shapes, which the operator has checked.
  row.past = lengths.uniform_past;
  row.appended = lengths.new_rows;
  row.total = lengths.uniform_past + lengths.new_rows;
  row.query_start = lengths.uniform_past;
  row.live = true;
  return 0;
}

void resolve_lengths(const Lengths& lengths, std::span<RowLengths> rows) {
  if (lengths.spec.rule == LengthRule::kGroupQuery && *lengths.bound < 0) {
    fail_argument("total_sequence_length is ", *lengths.bound, ": it must be at least 0");
  }
  for (size_t b = 0; b < rows.size(); ++b) {
    const int64_t batch_index = static_cast<int64_t>(b);
    const uint32_t faults = resolve_row(lengths, batch_index, rows[b]);
    if (faults != 0) fail_row(lengths, batch_index, faults);
  }
}

void check_without_bound(const Lengths& lengths) {
  constexpr int32_t kNoBound = std::numeric_limits<int32_t>::max();
  Lengths known = lengths;
  known.bound = &kNoBound;
  known.table_rows = -1;  // where queries stand may depend on it
  uint32_t checked = ATTN_FAULT_TOTAL_OVERFLOW | ATTN_FAULT_TOTAL_BEYOND;
  // A first prompt may be shorter than its rows; whether it is one, the bound tells.
  const bool may_be_first = lengths.new_rows == lengths.query_rows;
  if (!may_be_first) {
    checked |= ATTN_FAULT_PAST_NEGATIVE | ATTN_FAULT_QUERY_START | ATTN_FAULT_PAST_BEYOND;
  }
  RowLengths row;
  for (int64_t b = 0; b < lengths.batch; ++b) {
    uint32_t faults = resolve_row(known, b, row);
    const bool negative = lengths.values[b * lengths.value_stride] < 0;
    faults &= negative ? checked | ATTN_FAULT_PAST_NEGATIVE : checked;
    if (faults != 0) fail_row(known, b, faults);
  }
}

}  // namespace attn
