// Lengths on the device: the rules of core/lengths.h, read where the caller left them.
#pragma once

#include "common/device.h"

namespace attnk {

// Query rows that are no padding: a first prompt may be shorter than its rows; elsewhere a total
// below the query rows is a fault of its own.
ATTN_DEVICE i64 live_query_rows(const LengthParams& p, i64 total) {
  return min_of(p.query_rows, total);
}

// What batch row b has in place of a length; 0 where lengths follow from shapes.
ATTN_DEVICE i64 length_value(const LengthParams& p, i64 b) {
  if (p.rule == kLengthValid && p.valid) return p.valid[b * p.value_stride];
  return p.values ? p.values[b * p.value_stride] : 0;
}

// Resolves batch row b without its explicit positions (a block scans those together).
// `end_of_mask`: mask_end() of the row, with kLengthMaskEnd.
ATTN_DEVICE RowLengths resolve_row(const LengthParams& p, i64 b, i64 end_of_mask = 0) {
  RowLengths r{};
  i64 total, past, start;
  if (p.rule == kLengthUniform) {
    past = p.uniform_past;
    total = past + p.new_rows;
    start = past;
  } else if (p.rule == kLengthValid) {
    past = 0;
    total = length_value(p, b);
    start = total - p.query_rows;
    if (total < 0 || total > p.most_keys) {
      r.fault |= kFaultValidLength;
      return r;
    }
  } else if (p.rule == kLengthMaskEnd) {
    total = end_of_mask;
    past = total - p.new_rows;
    start = total - p.query_rows;
    if (past < 0) {
      r.fault |= kFaultPastNegative;
      return r;
    }
  } else {
    i64 value = p.values[b * p.value_stride];
    i64 bound = p.bound ? (i64)*p.bound : p.bound_value;
    if (value == -1 && p.empty_slots) return r;
    total = value + 1;
    if (total > 0x7fffffffll) {
      r.fault |= kFaultTotalOverflow;
      return r;
    }
    bool first_prompt = bound == p.query_rows && p.new_rows == p.query_rows;
    past = first_prompt ? 0 : total - p.new_rows;
    start = first_prompt ? 0 : total - p.query_rows;
    if (total <= 0 || past < 0) r.fault |= kFaultPastNegative;
    if (start < 0) r.fault |= kFaultQueryStart;
    if (past > p.past_capacity) r.fault |= kFaultPastBeyond;
    if (p.present_capacity >= 0 && total > p.present_capacity) r.fault |= kFaultTotalBeyond;
    if (total > bound) r.fault |= kFaultTotalBound;
    if (!r.fault && p.table_rows >= 0 && !p.positions && p.query_rows > 0 &&
        start + live_query_rows(p, total) > p.table_rows) {
      r.fault |= kFaultPosition;
    }
  }
  r.past = (i32)past;
  r.appended = (i32)p.new_rows;
  r.total = (i32)total;
  r.query_start = (i32)start;
  r.live = r.fault == 0;
  return r;
}

}  // namespace attnk
