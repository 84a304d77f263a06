// Prefill on Hopper: warp-specialised flash attention on warpgroup matrix instructions (sm_90a),
// float16 and bfloat16.
//
// The grid is one block a multiprocessor. A block takes tiles, one after the other: BLOCK_M = 64 x
// CONSUMERS query rows of one head. Each consumer warpgroup owns 64 rows; one producer warpgroup
// brings K and V in pieces of BLOCK_N keys, STAGES buffers each, with cp.async (any strides of 16
// bytes, no descriptors of memory that a graph would bake), and runs ahead into the next tile. With
// QUERIES = 2 it brings the next query rows as well; else the consumers load their own.
//
// The first tile of a block is its own number; each further one is drawn from counters[0], which
// the last block to end sets back to 0 (counters[1] counts those that ended, and wraps).
//
// Barriers in shared memory:
// - key_full, value_full of each buffer: 128 arrivals, which each producer thread's copies make as
//   they land; a consumer then orders them before its matrix instructions by a proxy fence.
// - key_free, value_free: one arrival a consumer warp, after the instructions that read it ended.
// - tile_full of two slots in turn: one arrival, when the slot's tile is written; query_full: 128,
//   as the query rows land. tile_free: one arrival a thread of the block, when it needs neither the
//   slot nor its query rows any more.
// Use u of something in n buffers waits for parity (u / n) % 2 of full; whoever refills it waits
// for parity (u / n - 1) % 2 of free from the second round on. Both sides walk a tile's keys from
// the last visible ones down, and count uses over all tiles.
//
// With a mask the producer reads it, and lists the keys that it does not hide wholly: one of
// STAGES + 1 entries a use, each with a barrier that its 128 threads arrive at. An entry of n = -1
// ends a tile, and takes buffers as any other does. Entry u is written when the keys of use
// u - STAGES are free: every consumer is done with the softmax of use u - STAGES - 1 then, which
// was the last to read it. With a boolean mask an entry has the bits of its cells.
//
// A consumer keeps the next keys' Q K in flight while it adds P V of the keys before, and does the
// softmax of the next ones under that P V. P stays in registers.
#include "common/device.h"
#include "common/faults.h"
#include "common/rotary_rows.h"
#include "common/visibility.h"
#include "common/wgmma.h"
#include "softmax/variant.h"
#include "softmax/wgmma_producer.h"
#include "softmax/wgmma_tiles.h"

namespace attnk {

// A consumer's state between keys.
struct Rows {
  float o[kSlices][kSliceWidth / 2];
  float m[2], l[2];
};

ATTN_DEVICE void store_piece(u32 address, const uint4& x) {
  asm volatile("st.shared.v4.b32 [%0], {%1,%2,%3,%4};" ::"r"(address), "r"(x.x), "r"(x.y), "r"(x.z),
               "r"(x.w)
               : "memory");
}

// Query rows of one warpgroup to shared memory, transformed.
ATTN_DEVICE void load_query(const AttentionParams& p, const Tile& tile, u32 queries, float* buffer,
                            int warpgroup) {
  const int lane = threadIdx.x & 31, warp = (threadIdx.x & 127) >> 5, thread = threadIdx.x & 127;
  const int first = warpgroup * 64, rows = min_of(64, tile.rows - first);
  // Results of the tile before stand in the same rows until every warp has written its own out.
  named_barrier(1 + warpgroup, 128);
  const u16* base = (const u16*)p.query.data + tile.b * p.query.batch + tile.h * p.query.head +
                    (first_query(tile) + tile.m0 + first) * p.query.row;
  if (kQueryTransform && p.query_transform.in_pieces) {
    for (int i = thread; i < 64 * kDp / 8; i += 128) {
      const int row = i / (kDp / 8), c = i % (kDp / 8);
      if (row >= rows || c * 8 >= kD) {
        store_piece(queries + swizzled(first + row, c, kM), uint4{0, 0, 0, 0});
      }
    }
    rotate_rows<kType, 1>(p.query_transform, base, p.query.row, rows, kD, tile.b, tile.m0 + first,
                          tile.position0 + first, thread, 128,
                          [&](int row, int piece, const uint4& value) {
                            store_piece(queries + swizzled(first + row, piece, kM), value);
                          });
  } else if constexpr (kQueryTransform) {
    // A warp a row.
    float* row = buffer + (warpgroup * 4 + warp) * kDp;
    for (int r = warp; r < 64; r += 4) {
      for (int c = lane; c < kDp; c += 32) {
        row[c] = r < rows && c < kD ? load_element<kType>(base, r * p.query.row + c) : 0.f;
      }
      __syncwarp();
      if (r < rows) {
        transform_row<kType>(p.query_transform, row, kD, tile.b, tile.m0 + first + r,
                             tile.position0 + first + r);
      }
      for (int c = lane; c < kDp / 8; c += 32) {
        const float* x = row + c * 8;
        store_piece(queries + swizzled(first + r, c, kM),
                    uint4{pack2<kType>(x[0], x[1]), pack2<kType>(x[2], x[3]),
                          pack2<kType>(x[4], x[5]), pack2<kType>(x[6], x[7])});
      }
      __syncwarp();
    }
  } else {
    fetch_rows<64, kM, kD, kDp>(queries + first * 128, base, p.query.row, 0, rows);
    copy_commit();
    copy_wait<0>();
  }
  fence_async_proxy();
  named_barrier(1 + warpgroup, 128);
}

ATTN_DEVICE void multiply_keys(float (&s)[kN / 2], u32 queries, u32 keys) {
#pragma unroll
  for (int d = 0; d < kDp / 16; d++) {
    const u64 a = descriptor_k_major(queries + (d / 4) * kM * 128 + (d % 4) * 32);
    const u64 b = descriptor_k_major(keys + (d / 4) * kN * 128 + (d % 4) * 32);
    wgmma_shared<kType>(s, a, b, d > 0);
  }
}

// The first keys of a tile give the sums (`accumulate` 0), further ones add to them.
ATTN_DEVICE void multiply_values(Rows& rows, const u32 (&weights)[kN / 16][4], u32 values,
                                 int accumulate) {
#pragma unroll
  for (int k = 0; k < kN / 16; k++) {
#pragma unroll
    for (int slice = 0; slice < kSlices; slice++) {
      const u32 at = values + slice * (kSliceWidth / 64) * kN * 128 + k * 2048;
      wgmma_registers<kType>(rows.o[slice], weights[k], descriptor_n_major(at, kN * 128),
                             k > 0 || accumulate);
    }
  }
}

// Scores of one tile to unnormalised weights; gives the factors for what was summed before. Of
// `entry`, n are its keys, `shown` that no mask hides any; `bits`: rows' cells of a boolean mask.
ATTN_DEVICE void softmax(const AttentionParams& p, const Tile& tile, float (&s)[kN / 2],
                         const Entry& entry, const u64* bits, int row0, Rows& rows,
                         float (&rescale)[2]) {
  constexpr bool products = kMaskKind != kMaskAdditive && !kSoftcap && kPlainScale;
  const float to_log2 = products ? p.scale * kLog2e : kLog2e;
  const int lane = threadIdx.x & 31, j0 = entry.n * kN;
  const bool shown = kMaskKind == kMaskNone || entry.shown != 0;
  if (!(products && shown && j0 >= tile.clean_low && j0 + kN <= tile.clean_high)) {
#pragma unroll
    for (int r = 0; r < 2; r++) {
      const int row = row0 + r * 8;
      const Interval seen = visible_keys(tile.view, tile.position0 + row);
      const i64 base =
          mask_row_offset(p, tile.b, tile.h, min_of((i64)tile.m0 + row, p.query_rows - 1));
      // Bit j * 8 + e is the lane's e-th key of the j-th eight.
      u64 cells = ~0ull;
      if (kMaskKind == kMaskBoolean && !shown) cells = bits[row] >> ((lane & 3) * 2);
#pragma unroll
      for (int j = 0; j < kTilesN; j++) {
#pragma unroll
        for (int e = 0; e < 2; e++) {
          const int key = j0 + j * 8 + (lane & 3) * 2 + e;
          bool visible = key >= seen.low && key < seen.high;
          float x = s[j * 4 + 2 * r + e];
          if constexpr (!products) {
            x *= p.scale;
            if constexpr (kSoftcap) x = p.softcap * tanhf(x / p.softcap);
          }
          if constexpr (kMaskKind == kMaskBoolean) {
            visible = visible && (cells >> (j * 8 + e) & 1) != 0;
          } else if (visible && !shown) {
            visible = apply_mask<kMaskKind>(p, base, key, x);
          }
          s[j * 4 + 2 * r + e] = visible ? x : -infinity();
        }
      }
    }
  }
#pragma unroll
  for (int r = 0; r < 2; r++) {
    float top = -infinity();
#pragma unroll
    for (int j = 0; j < kTilesN; j++) {
      top = fmaxf(top, fmaxf(s[j * 4 + 2 * r], s[j * 4 + 2 * r + 1]));
    }
    top = fmaxf(top, __shfl_xor_sync(~0u, top, 1));
    top = fmaxf(top, __shfl_xor_sync(~0u, top, 2));
    top = fmaxf(rows.m[r], top * to_log2);
    const float base = top == -infinity() ? 0.f : top;
    rescale[r] = exp2_fast(rows.m[r] - base);
    rows.m[r] = top;
    float sum = 0.f;
#pragma unroll
    for (int j = 0; j < kTilesN; j++) {
#pragma unroll
      for (int e = 0; e < 2; e++) {
        const float x = exp2_fast(fmaf(s[j * 4 + 2 * r + e], to_log2, -base));
        s[j * 4 + 2 * r + e] = x;
        sum += x;
      }
    }
    rows.l[r] = rows.l[r] * rescale[r] + sum;
  }
}

ATTN_DEVICE void pack_weights(const float (&s)[kN / 2], u32 (&weights)[kN / 16][4]) {
#pragma unroll
  for (int k = 0; k < kN / 16; k++) {
#pragma unroll
    for (int i = 0; i < 4; i++)
      weights[k][i] = pack2<kType>(s[k * 8 + 2 * i], s[k * 8 + 2 * i + 1]);
  }
}

ATTN_DEVICE void rescale_output(Rows& rows, const float (&rescale)[2]) {
#pragma unroll
  for (int slice = 0; slice < kSlices; slice++) {
#pragma unroll
    for (int i = 0; i < kSliceWidth / 2; i++) rows.o[slice][i] *= rescale[i >> 1 & 1];
  }
}

ATTN_DEVICE void pin_output(Rows& rows) {
#pragma unroll
  for (int slice = 0; slice < kSlices; slice++) pin(rows.o[slice]);
}

// Normalises and writes the warp's 16 rows, through the place of the same rows in the query tile:
// other warpgroups may still multiply theirs.
ATTN_DEVICE void finish(const AttentionParams& p, const Tile& tile, Rows& rows, int row0,
                        u32 queries, int warpgroup) {
  const int lane = threadIdx.x & 31, warp = (threadIdx.x & 127) >> 5;
  const float sink = kSinkKind == kSinkPerHead
                         ? load_element<kType>(p.sink, tile.h * p.sink_stride) * kLog2e
                         : 0.f;
  const int first = warpgroup * 64 + warp * 16;
  constexpr bool staged = kDvp <= kDp;                      // the rows' place is large enough
  if constexpr (staged) named_barrier(1 + warpgroup, 128);  // an instruction reads all 64 rows
#pragma unroll
  for (int r = 0; r < 2; r++) {
    float sum = rows.l[r];
    sum += __shfl_xor_sync(~0u, sum, 1);
    sum += __shfl_xor_sync(~0u, sum, 2);
    const int row = row0 + r * 8;
    const bool empty = rows.m[r] == -infinity() && sum == 0.f;
    if (kHasLse && (lane & 3) == 0 && row < tile.rows) {
      ((float*)p.lse.data)[tile.b * p.lse.batch + tile.h * p.lse.head +
                           (first_query(tile) + tile.m0 + row) * p.lse.row] =
          empty ? -infinity() : rows.m[r] * kLn2 + logf(sum);
    }
    float factor = 1.f;
    if (kSinkKind != kSinkNone && !empty) {
      const float top = fmaxf(rows.m[r], sink);
      factor = exp2_fast(rows.m[r] - top);
      sum = sum * factor + exp2_fast(sink - top);
    }
    const float inverse = empty ? 0.f : factor / sum;
    u16* out = (u16*)p.output.data + tile.b * p.output.batch + tile.h * p.output.head +
               (first_query(tile) + tile.m0 + row) * p.output.row;
#pragma unroll
    for (int slice = 0; slice < kSlices; slice++) {
#pragma unroll
      for (int j = 0; j < kSliceWidth / 8; j++) {
        const float x = empty ? 0.f : rows.o[slice][j * 4 + 2 * r] * inverse;
        const float y = empty ? 0.f : rows.o[slice][j * 4 + 2 * r + 1] * inverse;
        const int piece = slice * (kSliceWidth / 8) + j, local = lane / 4 + r * 8;
        if constexpr (staged) {
          const u32 at = queries + swizzled(first + local, piece, kM) + (lane & 3) * 4;
          asm volatile("st.shared.b32 [%0], %1;" ::"r"(at), "r"(pack2<kType>(x, y)) : "memory");
        } else if (row < tile.rows && piece * 8 < kDv) {
          *(u32*)(out + piece * 8 + (lane & 3) * 2) = pack2<kType>(x, y);
        }
      }
    }
  }
  if constexpr (staged) {
    __syncwarp();
    constexpr int pieces = kDv / 8;
    u16* base = (u16*)p.output.data + tile.b * p.output.batch + tile.h * p.output.head +
                first_query(tile) * p.output.row;
    for (int i = lane; i < 16 * pieces; i += 32) {
      const int local = i / pieces, piece = i % pieces, row = first + local;
      if (row < tile.rows) {
        uint4 x;
        asm volatile("ld.shared.v4.b32 {%0,%1,%2,%3}, [%4];"
                     : "=r"(x.x), "=r"(x.y), "=r"(x.z), "=r"(x.w)
                     : "r"(queries + swizzled(row, piece, kM)));
        *(uint4*)(base + (i64)(tile.m0 + row) * p.output.row + piece * 8) = x;
      }
    }
  }
}

// Waits until copies have landed, and lets matrix instructions see them.
ATTN_DEVICE void wait_for_copies(u64& barrier, u32 parity) {
  barrier_wait(shared_address(&barrier), parity);
  fence_async_proxy();
}

// One arrival a warp, after all of its lanes are done.
ATTN_DEVICE void release(u64& barrier) {
  __syncwarp();
  if ((threadIdx.x & 31) == 0) barrier_arrive(shared_address(&barrier));
}

// The keys of use `use`: what the producer listed, or the next ones below `n`; n is -1 (below the
// tile's first ones) where there are no more.
ATTN_DEVICE Entry entry_of(Barriers* barriers, const Tile& tile, u32 use, int n) {
  if constexpr (!kListed) return {n > tile.n_first ? n - 1 : -1, 1};
  const u32 number = use % kEntries;
  barrier_wait(shared_address(&barriers->entry_full[number]), (use / kEntries) & 1);
  return barriers->entries[number];
}

// The keys of a tile, of which there are some; `use` counts buffers over all tiles.
ATTN_DEVICE void attend(const AttentionParams& p, const Tile& tile, Barriers* barriers, u32 own,
                        u32 keys, u32 values, const u64* bits, int row0, Entry entry, Rows& rows,
                        u32& use) {
  float s[kN / 2];
  u32 weights[kN / 16][4];
  float rescale[2];
  int live = tile.live;
  u32 stage = use % kStages;
  wait_for_copies(barriers->key_full[stage], (use / kStages) & 1);
  wgmma_fence();
  multiply_keys(s, own, keys + stage * kKeyBytes);
  wgmma_commit();
  wgmma_wait<0>();
  pin(s);
  release(barriers->key_free[stage]);
  softmax(p, tile, s, entry, bits + use % kEntries * kM, row0, rows, rescale);
  pack_weights(s, weights);
  int adds = 0;
  for (;; use++, adds = 1) {
    entry = entry_of(barriers, tile, use + 1, entry.n);
    if (entry.n < 0) break;
    const u32 next = (use + 1) % kStages;
    stage = use % kStages;
    wait_for_copies(barriers->key_full[next], ((use + 1) / kStages) & 1);
    pin(s);
    wgmma_fence();
    multiply_keys(s, own, keys + next * kKeyBytes);
    wgmma_commit();
    rescale_output(rows, rescale);
    wait_for_copies(barriers->value_full[stage], (use / kStages) & 1);
    pin_output(rows);
    wgmma_fence();
    multiply_values(rows, weights, values + stage * kValueBytes, adds);
    wgmma_commit();
    wgmma_wait<1>();
    pin(s);
    release(barriers->key_free[next]);
    // Within one block of code the compiler would move the softmax behind the wait, and P V would
    // have nothing beside it. `live` is always true, which it does not know.
    asm volatile("" : "+r"(live));
    if (live) {
      softmax(p, tile, s, entry, bits + (use + 1) % kEntries * kM, row0, rows, rescale);
      pin(s);
    }
    wgmma_wait<0>();
    pin_output(rows);
    release(barriers->value_free[stage]);
    pack_weights(s, weights);
  }
  stage = use % kStages;
  rescale_output(rows, rescale);
  wait_for_copies(barriers->value_full[stage], (use / kStages) & 1);
  pin_output(rows);
  wgmma_fence();
  multiply_values(rows, weights, values + stage * kValueBytes, adds);
  wgmma_commit();
  wgmma_wait<0>();
  pin_output(rows);
  release(barriers->value_free[stage]);
  use++;
}

ATTN_DEVICE void consume(const AttentionParams& p, Barriers* barriers, const Tile* slots,
                         u32 queries, u32 keys, u32 values, const u64* bits, float* buffer,
                         int warpgroup) {
  const int lane = threadIdx.x & 31, warp = (threadIdx.x & 127) >> 5;
  const int row0 = warpgroup * 64 + warp * 16 + lane / 4;

  u32 use = 0;
  for (u32 turn = 0;; turn++) {
    const u32 slot = turn & 1, parity = (turn >> 1) & 1;
    barrier_wait(shared_address(&barriers->tile_full[slot]), parity);
    if (!slots[slot].live) return;
    const Tile& tile = slots[slot];
    const u32 own = queries + (kQueries == 2 ? slot * kQueryBytes : 0);
    if constexpr (kQueries == 2) {
      wait_for_copies(barriers->query_full[slot], parity);
    } else {
      load_query(p, tile, own, buffer, warpgroup);
    }
    Rows rows;
    rows.m[0] = rows.m[1] = -infinity();
    rows.l[0] = rows.l[1] = 0.f;
    Entry entry = {tile.n_last, 1};
    if constexpr (kListed) entry = entry_of(barriers, tile, use, 0);
    if (kListed ? entry.n >= 0 : tile.n_first <= tile.n_last) {
      attend(p, tile, barriers, own + warpgroup * 64 * 128, keys, values, bits, row0, entry, rows,
             use);
    }
    if constexpr (kListed) {  // the end of the list
      release(barriers->key_free[use % kStages]);
      release(barriers->value_free[use % kStages]);
      use++;
    }
    finish(p, tile, rows, row0, own, warpgroup);
    barrier_arrive(shared_address(&barriers->tile_free[slot]));
  }
}

extern "C" __global__ void __launch_bounds__(kThreads, 1)
    attn_attention_wgmma(const __grid_constant__ AttentionParams p) {
  extern __shared__ __align__(1024) u8 shared[];
  __shared__ Barriers barriers;
  __shared__ Tile slots[2];
  const int warpgroup = threadIdx.x >> 7;
  const u32 queries = (shared_address(shared) + 1023) & ~1023u;
  const u32 keys = queries + kQueries * kQueryBytes, values = keys + kStages * kKeyBytes;
  // Bits of the mask and the transform's row buffers lie behind everything else.
  u8* rest = shared + (values - shared_address(shared)) + kStages * kValueBytes;
  u64* bits = (u64*)rest;
  if (threadIdx.x == 0) {
    for (int s = 0; s < kStages; s++) {
      barrier_init(shared_address(&barriers.key_full[s]), 128);
      barrier_init(shared_address(&barriers.value_full[s]), 128);
      barrier_init(shared_address(&barriers.key_free[s]), 4 * kConsumers);
      barrier_init(shared_address(&barriers.value_free[s]), 4 * kConsumers);
    }
    for (int s = 0; s < 2; s++) {
      barrier_init(shared_address(&barriers.tile_full[s]), 1);
      barrier_init(shared_address(&barriers.query_full[s]), 128);
      barrier_init(shared_address(&barriers.tile_free[s]), kThreads);
    }
    for (int e = 0; e < kEntries; e++) barrier_init(shared_address(&barriers.entry_full[e]), 128);
    asm volatile("fence.mbarrier_init.release.cluster;" ::: "memory");
  }
  wait_for_previous();
  if (p.last && blockIdx.x == 0 && threadIdx.x == 0) end_call(p.faults, p.record);
  __syncthreads();
  if (warpgroup == 0) {
    registers_down<PRODUCER_REGISTERS>();
    produce<kMaskKind>(p, &barriers, slots, queries, keys, values, bits);
  } else {
    registers_up<CONSUMER_REGISTERS>();
    float* buffer = (float*)(rest + kBitsBytes);
    consume(p, &barriers, slots, queries, keys, values, bits, buffer, warpgroup - 1);
  }
}

}  // namespace attnk
