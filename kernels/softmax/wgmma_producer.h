// The producer warpgroup of softmax/attention_wgmma.cu: draws tiles, reads the mask, brings
// queries, keys and values.
#pragma once

#include "softmax/mask_tiles.h"
#include "softmax/wgmma_tiles.h"

namespace attnk {

// Named barriers: 1 to 3 are the consumers'.
ATTN_DEVICE bool any_of_producer(bool holds) { return named_barrier_or(8, 128, holds); }

// Finds the next keys from n down that the mask does not hide, by all threads of the producer, and
// writes their bits where the mask is boolean. Gives the entry.
template <int kind>
ATTN_DEVICE Entry list_keys(const AttentionParams& p, const Tile& tile, int n, u64* bits) {
  const int thread = threadIdx.x & 127;
  const i64 base = mask_row_offset(p, tile.b, tile.h, tile.m0);
  for (; n >= tile.n_first; n--) {
    MaskCells cells;
    u64 row = 0;
    if constexpr (kind == kMaskBoolean) {
      const int of = p.mask_row == 0 ? 0 : thread;
      if (thread < tile.rows) {
        row = mask_bits(p, base + of * p.mask_row, n * kN);
        cells.any = row != 0;
        cells.all = row == ~0ull;
      }
    } else {
      cells = cells_of<kind, 128, kM, kN>(p, base, tile.rows, n * kN, thread);
    }
    if (!any_of_producer(cells.any)) continue;
    const bool shown = !any_of_producer(!cells.all);
    if (kind == kMaskBoolean) bits[thread] = row;
    return {n, shown};
  }
  return {-1, 0};
}

template <int kind>
ATTN_DEVICE void produce(const AttentionParams& p, Barriers* barriers, Tile* slots, u32 queries,
                         u32 keys, u32 values, u64* bits) {
  const bool leads = (threadIdx.x & 127) == 0;
  u32 index = blockIdx.x, use = 0;
  for (u32 turn = 0;; turn++) {
    const u32 slot = turn & 1, round = turn >> 1;
    Tile* at = &slots[slot];
    if (leads) {
      if (round) barrier_wait(shared_address(&barriers->tile_free[slot]), (round - 1) & 1);
      *at = tile_of(p, index);
      barrier_arrive(shared_address(&barriers->tile_full[slot]));
      index = gridDim.x + atomicAdd(&p.counters[0], 1);
    }
    barrier_wait(shared_address(&barriers->tile_full[slot]), round & 1);
    if (!at->live) break;
    if constexpr (kQueries == 2) {
      const u16* base = (const u16*)p.query.data + at->b * p.query.batch + at->h * p.query.head +
                        first_query(*at) * p.query.row;
      fetch_rows<kM, kM, kD, kDp>(queries + slot * kQueryBytes, base, p.query.row, at->m0,
                                  at->m0 + at->rows);
      copy_arrive(shared_address(&barriers->query_full[slot]));
    }
    const u16* kbase = (const u16*)p.key.data + at->b * p.key.batch + at->hk * p.key.head +
                       first_key(*at) * p.key.row;
    const u16* vbase = (const u16*)p.value.data + at->b * p.value.batch + at->hk * p.value.head +
                       first_key(*at) * p.value.row;
    const int total = at->view.total, n_first = at->n_first;
    for (int n = at->n_last; kListed || n >= n_first; n--, use++) {
      const u32 stage = use % kStages, turns = use / kStages;
      if (turns) barrier_wait(shared_address(&barriers->key_free[stage]), (turns - 1) & 1);
      if constexpr (kind != kMaskNone) {
        const u32 number = use % kEntries;
        const Entry entry = list_keys<kind>(p, *at, n, bits + number * kM);
        if (leads) barriers->entries[number] = entry;
        barrier_arrive(shared_address(&barriers->entry_full[number]));
        n = entry.n;
        if (n < 0) {  // the end takes buffers too, without anything in them
          copy_arrive(shared_address(&barriers->key_full[stage]));
          if (turns) barrier_wait(shared_address(&barriers->value_free[stage]), (turns - 1) & 1);
          copy_arrive(shared_address(&barriers->value_full[stage]));
          use++;
          break;
        }
      }
      fetch_rows<kN, kN, kD, kDp>(keys + stage * kKeyBytes, kbase, p.key.row, n * kN, total);
      copy_arrive(shared_address(&barriers->key_full[stage]));
      if (turns) barrier_wait(shared_address(&barriers->value_free[stage]), (turns - 1) & 1);
      fetch_rows<kN, kN, kDv, kDvp>(values + stage * kValueBytes, vbase, p.value.row, n * kN,
                                    total);
      copy_arrive(shared_address(&barriers->value_full[stage]));
    }
    barrier_arrive(shared_address(&barriers->tile_free[slot]));
  }
  // Every block has drawn its last tile before it counts itself as ended: the fence keeps the two
  // counters in that order.
  if (leads) __threadfence();
  if (leads && atomicInc(&p.counters[1], gridDim.x - 1) == gridDim.x - 1) {
    atomicExch(&p.counters[0], 0);
  }
  copy_wait<0>();
}

}  // namespace attnk
