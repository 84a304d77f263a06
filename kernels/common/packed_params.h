// The parameter block of packed/packed_lengths.cu.
#pragma once

#include "common/params.h"

namespace attnk {

enum { kFaultCumulative = 256 };

struct PackedParams {
  const i32* query_ends;  // batch + 1: sequence b has rows [b, b + 1) of them
  const i32* key_ends;
  i64 query_ends_stride, key_ends_stride;
  i64 batch, query_tokens, key_tokens;
  i64 most_queries, most_keys;  // that a sequence may have
  i64 tile_rows;                // query rows of the attention kernel's tiles
  RowLengths* rows;             // out
  FaultState* faults;
  FaultRecord* record;
  View output, lse;
  i64 heads, channels, label;
  i32 has_lse, pad;
};

}  // namespace attnk
