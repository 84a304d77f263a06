// Packed sequences: reads the cumulative lengths where the caller left them, checks them, writes
// what the attention kernels need of each sequence, and clears the tokens that no sequence holds.
//
// Grid: a block a sequence, one without any; 256 threads. Each block checks all sequences, since a
// bad one makes the whole call bad, and sums up the tiles of those before its own. Then all blocks
// share the rows to clear: those before the first and behind the last sequence, or all of them in a
// bad or poisoned call, whose sequences then have no rows.
#include "common/device.h"
#include "common/faults.h"
#include "common/packed_params.h"

namespace attnk {

constexpr int kType = ATTN_TYPE, kThreads = 256, kWarps = kThreads / 32;

struct Sequence {
  i64 query, key, query_end, key_end;
};

ATTN_DEVICE Sequence sequence_of(const PackedParams& p, i64 b) {
  const i32* q = p.query_ends + b * p.query_ends_stride;
  const i32* k = p.key_ends + b * p.key_ends_stride;
  return {q[0], k[0], q[p.query_ends_stride], k[p.key_ends_stride]};
}

ATTN_DEVICE bool is_good(const PackedParams& p, const Sequence& s) {
  return s.query >= 0 && s.query <= s.query_end && s.query_end <= p.query_tokens && s.key >= 0 &&
         s.key <= s.key_end && s.key_end <= p.key_tokens &&
         s.query_end - s.query <= p.most_queries && s.key_end - s.key <= p.most_keys;
}

ATTN_DEVICE void clear_row(const PackedParams& p, i64 row) {
  for (i64 i = threadIdx.x; i < p.heads * p.channels; i += kThreads) {
    const i64 h = i / p.channels, c = i % p.channels;
    store_element<kType>(p.output.data,
                         h * p.output.head + row * p.output.row + c * p.output.channel, 0.f);
  }
  if (!p.has_lse) return;
  for (i64 h = threadIdx.x; h < p.heads; h += kThreads) {
    ((float*)p.lse.data)[h * p.lse.head + row * p.lse.row] = -infinity();
  }
}

extern "C" __global__ void __launch_bounds__(kThreads)
    attn_packed_lengths(const __grid_constant__ PackedParams p) {
  __shared__ i32 tiles_before, first_bad;
  allow_dependents();
  const i64 b = blockIdx.x;
  if (threadIdx.x == 0) {
    tiles_before = 0;
    first_bad = 0x7fffffff;
  }
  __syncthreads();
  i32 tiles = 0;
  for (i64 i = threadIdx.x; i < p.batch; i += kThreads) {
    const Sequence s = sequence_of(p, i);
    if (!is_good(p, s)) {
      atomicMin(&first_bad, (i32)i);
    } else if (i < b) {
      tiles += (i32)((s.query_end - s.query + p.tile_rows - 1) / p.tile_rows);
    }
  }
  atomicAdd(&tiles_before, tiles);
  __syncthreads();
  const u32 poisoned = p.faults->latch;
  const bool bad = first_bad < p.batch, live = !bad && !poisoned;
  if (b == 0 && threadIdx.x == 0) {
    p.faults->call_poisoned = poisoned;
    if (bad && !poisoned) {
      const Sequence s = sequence_of(p, first_bad);
      const bool of_query = s.query < 0 || s.query > s.query_end || s.query_end > p.query_tokens ||
                            s.query_end - s.query > p.most_queries;
      raise_fault(p.faults, p.record, kFaultCumulative, (u32)p.label, first_bad,
                  of_query ? s.query_end : s.key_end);
    }
  }
  if (b < p.batch && threadIdx.x == 0) {
    RowLengths r{};
    if (live) {
      const Sequence s = sequence_of(p, b);
      r.total = (i32)(s.key_end - s.key);
      r.query_rows = (i32)(s.query_end - s.query);
      r.query_start = r.total - r.query_rows;
      r.query_offset = s.query;
      r.key_offset = s.key;
      r.tile_begin = tiles_before;
      r.live = 1;
    }
    p.rows[b] = r;
  }
  i64 first = p.query_tokens, last = p.query_tokens;  // rows [first, last) belong to sequences
  if (live && p.batch > 0) {
    first = sequence_of(p, 0).query;
    last = sequence_of(p, p.batch - 1).query_end;
  }
  const i64 loose = first + p.query_tokens - last;
  for (i64 i = b; i < loose; i += gridDim.x) clear_row(p, i < first ? i : i - first + last);
}

}  // namespace attnk
