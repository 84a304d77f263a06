// A decode step's head start: its old keys stand in the cache before the launch that appends the
// new ones, and a block knows its lengths as soon as that launch does. So with `early` a block
// resolves them by itself and streams old keys at once; each warp waits for the other launch before
// it fetches new keys, and before its results count: a call that turns out to be poisoned, or a row
// whose positions are bad, is treated as empty then. Nothing outside the buffers is read meanwhile,
// since resolve_row found the lengths good.
#pragma once

#include "common/device.h"
#include "common/lengths.h"

namespace attnk {

struct EarlyKeys {
  RowLengths lengths;
  bool waiting;  // the other launch may still run
  int safe;      // keys [0, safe) are not written by it

  __device__ __forceinline__ EarlyKeys(const AttentionParams& p, i64 b) {
    waiting = p.early;
    if (waiting) {
      lengths = resolve_row(p.lengths, b);
      safe = p.key_is_fresh ? lengths.total : lengths.past;
    } else {
      wait_for_previous();
      lengths = p.rows[b];
      safe = lengths.total;
    }
  }

  __device__ __forceinline__ bool must_wait(int end) const { return waiting && end > safe; }

  // Before keys below `end` are fetched. All lanes of a warp call with the same `end`.
  __device__ __forceinline__ void before_keys(int end) {
    if (must_wait(end)) wait();
  }

  // Whether the row's results count. Every warp calls it before it ends.
  __device__ __forceinline__ bool is_live(const AttentionParams& p, i64 b) {
    if (waiting) wait();
    return __ldcg(&p.rows[b].live) && !__ldcg(&p.faults->call_poisoned);
  }

  __device__ __forceinline__ void wait() {
    wait_for_previous();
    waiting = false;
  }
};

}  // namespace attnk
