#include "core/length_rules.h"

#include "core/dtype.h"
#include "core/error.h"
#include "core/lengths.h"

namespace attn {
namespace {

constexpr double kShownFrom = -1000;  // an additive cell that is less hides its key

bool shows(const LengthMask& mask, int64_t index) {
  if (mask.data == nullptr) return true;
  if (mask.type == kBool) return static_cast<const uint8_t*>(mask.data)[index] != 0;
  return load_double(mask.data, index, mask.type) >= kShownFrom;
}

// One past the last key in [0, width) that the mask's last query row shows, of any head.
int64_t mask_end(const LengthMask& mask, int64_t batch_index, int64_t width) {
  int64_t end = 0;
  const int64_t columns = mask.columns < width ? mask.columns : width;
  for (int64_t head = 0; head < mask.heads; ++head) {
    const int64_t row = batch_index * mask.batch + head * mask.head + mask.last_row * mask.row;
    int64_t last = columns;
    while (last > end && !shows(mask, row + (last - 1) * mask.column)) --last;
    end = last > end ? last : end;
    if (mask.head == 0) break;
  }
  return end;
}

// The bounds of one sequence, and whether they ascend within the tokens.
struct Span {
  int64_t begin, end;
};

Span span_of(const int32_t* values, int64_t stride, int64_t sequence) {
  return {values[sequence * stride], values[(sequence + 1) * stride]};
}

bool lies_within(const Span& span, int64_t tokens) {
  return span.begin >= 0 && span.begin <= span.end && span.end <= tokens;
}

Span queries_of(const Lengths& lengths, int64_t b) {
  return span_of(lengths.values, lengths.value_stride, b);
}

Span keys_of(const Lengths& lengths, int64_t b) {
  return span_of(lengths.key_values, lengths.key_value_stride, b);
}

[[noreturn]] void fail_span(const char* name, int64_t b, const Span& span, int64_t tokens) {
  fail_argument(name, "[", b, "] and [", b + 1, "] are ", span.begin, " and ", span.end, ": ",
                fault_text(ATTN_FAULT_CUMULATIVE), ", of which there are ", tokens);
}

}  // namespace

uint32_t resolve_valid_row(const Lengths& lengths, int64_t batch_index, RowLengths& row) {
  const int64_t total = lengths.valid[batch_index * lengths.valid_stride];
  if (total < 0 || total > lengths.most_keys) return ATTN_FAULT_VALID_LENGTH;
  row.past = 0;
  row.appended = lengths.new_rows;
  row.total = total;
  row.query_start = total - lengths.query_rows;
  row.live = true;
  return 0;
}

void fail_valid_row(const Lengths& lengths, int64_t batch_index) {
  fail_argument("nonpad_kv_seqlen[", batch_index, "] is ",
                lengths.valid[batch_index * lengths.valid_stride], ": ",
                fault_text(ATTN_FAULT_VALID_LENGTH), "; L is ", lengths.most_keys);
}

uint32_t resolve_mask_row(const Lengths& lengths, int64_t batch_index, RowLengths& row) {
  const int64_t total = mask_end(lengths.mask, batch_index, lengths.most_keys);
  if (total < lengths.new_rows) return ATTN_FAULT_PAST_NEGATIVE;
  row.past = total - lengths.new_rows;
  row.appended = lengths.new_rows;
  row.total = total;
  row.query_start = total - lengths.query_rows;
  row.live = true;
  return 0;
}

void fail_mask_row(const Lengths& lengths, int64_t batch_index) {
  fail_argument("attn_mask ends the keys of batch row ", batch_index, " at ",
                mask_end(lengths.mask, batch_index, lengths.most_keys), ": ",
                fault_text(ATTN_FAULT_PAST_NEGATIVE), "; there are ", lengths.new_rows,
                " new keys a batch row");
}

uint32_t resolve_cumulative_row(const Lengths& lengths, int64_t batch_index, RowLengths& row) {
  const Span queries = queries_of(lengths, batch_index);
  const Span keys = keys_of(lengths, batch_index);
  if (!lies_within(queries, lengths.query_tokens) || !lies_within(keys, lengths.key_tokens) ||
      queries.end - queries.begin > lengths.query_rows ||
      keys.end - keys.begin > lengths.most_keys) {
    return ATTN_FAULT_CUMULATIVE;
  }
  row.past = 0;
  row.appended = 0;
  row.total = keys.end - keys.begin;
  row.query_offset = queries.begin;
  row.key_offset = keys.begin;
  row.query_rows = queries.end - queries.begin;
  row.query_start = row.total - row.query_rows;
  row.live = true;
  return 0;
}

void fail_cumulative_row(const Lengths& lengths, int64_t batch_index) {
  const Span queries = queries_of(lengths, batch_index);
  const Span keys = keys_of(lengths, batch_index);
  if (!lies_within(queries, lengths.query_tokens)) {
    fail_span("cu_seqlens_q", batch_index, queries, lengths.query_tokens);
  }
  if (!lies_within(keys, lengths.key_tokens)) {
    fail_span("cu_seqlens_k", batch_index, keys, lengths.key_tokens);
  }
  const bool few_queries = queries.end - queries.begin > lengths.query_rows;
  const Span& span = few_queries ? queries : keys;
  fail_argument(few_queries ? "cu_seqlens_q" : "cu_seqlens_k", "[", batch_index + 1, "] is ",
                span.end, ": sequence ", batch_index, " has ", span.end - span.begin,
                few_queries ? " queries" : " keys", ", more than the ",
                few_queries ? lengths.query_rows : lengths.most_keys,
                few_queries ? " of max_seqlen_q" : " of max_seqlen_k",
                " or of the range that the plan was prepared for");
}

}  // namespace attn
