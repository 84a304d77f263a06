// Prefill on Hopper: warp-specialised flash attention on warpgroup matrix instructions (sm_90a),
// float16 and bfloat16.
//
// One block treats BLOCK_M = 64 x CONSUMERS query rows of one head: each consumer warpgroup owns 64
// rows; one producer warpgroup brings K and V in tiles of BLOCK_N keys, STAGES buffers each, with
// cp.async (any strides of 16 bytes, no descriptors of memory that a graph would bake).
//
// Barriers in shared memory, for K and V each and for each buffer: full (128 arrivals: every
// producer thread, after its copies have landed and a proxy fence) and free (one arrival a consumer
// warp, after the matrix instructions that read it have ended). Both sides walk tiles from the last
// visible one down and count uses: use u of a buffer waits for parity u % 2 of full; the producer
// waits for parity (u - 1) % 2 of free from the second use on.
//
// A consumer keeps the next tile's Q K in flight while it adds P V of the tile before, and does the
// softmax of the next tile under that P V. P stays in registers.
#include "common/device.h"
#include "common/faults.h"
#include "common/row_transform.h"
#include "common/visibility.h"
#include "common/wgmma.h"
#include "softmax/variant.h"

namespace attnk {

constexpr int kN = BLOCK_N, kStages = STAGES, kConsumers = CONSUMERS;
constexpr int kM = 64 * kConsumers, kThreads = 128 * (kConsumers + 1);
constexpr int kDp = (kD + 63) / 64 * 64, kDvp = (kDv + 63) / 64 * 64;  // whole 128-byte rows
constexpr int kTilesN = kN / 8, kSlices = kDvp % 128 == 0 ? kDvp / 128 : kDvp / 64;
constexpr int kSliceWidth = kDvp % 128 == 0 ? 128 : 64;
constexpr int kQueryBytes = kM * kDp * 2, kKeyBytes = kN * kDp * 2, kValueBytes = kN * kDvp * 2;
// Registers move between warpgroups inside what the block got at its launch: asking for more would
// wait forever.
static_assert(PRODUCER_REGISTERS + kConsumers * CONSUMER_REGISTERS <=
              (kConsumers + 1) * (65536 / kThreads / 8 * 8));
constexpr float kLog2e = 1.4426950408889634f, kLn2 = 0.6931471805599453f;

struct Barriers {
  u64 key_full[kStages], key_free[kStages], value_full[kStages], value_free[kStages];
};

// A consumer's state between tiles.
struct Rows {
  float o[kSlices][kSliceWidth / 2];
  float m[2], l[2];
};

template <int d, int dp>
ATTN_DEVICE void fetch_tile(u32 tile, const u16* base, i64 stride, int first, int total) {
  constexpr int pieces = dp / 8;
  const int thread = threadIdx.x & 127;
#pragma unroll 1  // the producer has few registers
  for (int i = thread; i < kN * pieces; i += 128) {
    const int row = i / pieces, c = i % pieces;
    const bool valid = first + row < total && c * 8 < d;
    const u16* source = base + (valid ? (i64)(first + row) * stride + c * 8 : 0);
    copy_async_16(tile + swizzled(row, c, kN), source, valid);
  }
  copy_commit();
}

struct Block {
  i64 b, h, hk;
  int m0, rows, position0, n_first, n_last, clean_low, clean_high, group;
  Visibility view;
};

ATTN_DEVICE void produce(const AttentionParams& p, const Block& block, Barriers* barriers, u32 keys,
                         u32 values) {
  const u16* kbase = (const u16*)p.key.data + block.b * p.key.batch + block.hk * p.key.head;
  const u16* vbase = (const u16*)p.value.data + block.b * p.value.batch + block.hk * p.value.head;
  const int total = block.view.total;
  // Copies are announced one tile late, so that the next tile is under way meanwhile.
  u32 announce = 0;
  int use = 0;
  auto landed = [&](u32 next) {
    if (announce) {
      copy_wait<1>();
      fence_async_proxy();
      barrier_arrive(announce);
    }
    announce = next;
  };
  for (int n = block.n_last; n >= block.n_first; n--, use++) {
    const int stage = use % kStages, round = use / kStages;
    if (round) barrier_wait(shared_address(&barriers->key_free[stage]), (round - 1) & 1);
    fetch_tile<kD, kDp>(keys + stage * kKeyBytes, kbase, p.key.row, n * kN, total);
    landed(shared_address(&barriers->key_full[stage]));
    if (round) barrier_wait(shared_address(&barriers->value_free[stage]), (round - 1) & 1);
    fetch_tile<kDv, kDvp>(values + stage * kValueBytes, vbase, p.value.row, n * kN, total);
    landed(shared_address(&barriers->value_full[stage]));
  }
  if (announce) {
    copy_wait<0>();
    fence_async_proxy();
    barrier_arrive(announce);
  }
}

// Query rows of one warpgroup to shared memory, transformed, a warp a row.
ATTN_DEVICE void load_query(const AttentionParams& p, const Block& block, u32 queries,
                            float* buffer, int warpgroup) {
  const int lane = threadIdx.x & 31, warp = (threadIdx.x & 127) >> 5;
  const u16* base = (const u16*)p.query.data + block.b * p.query.batch + block.h * p.query.head;
  if constexpr (kQueryTransform) {
    float* row = buffer + (warpgroup * 4 + warp) * kDp;
    for (int r = warpgroup * 64 + warp; r < warpgroup * 64 + 64; r += 4) {
      for (int c = lane; c < kDp; c += 32) {
        row[c] = r < block.rows && c < kD
                     ? load_element<kType>(base, (i64)(block.m0 + r) * p.query.row + c)
                     : 0.f;
      }
      __syncwarp();
      if (r < block.rows) {
        transform_row<kType>(p.query_transform, row, kD, block.b, block.m0 + r,
                             block.position0 + r);
      }
      for (int c = lane; c < kDp / 8; c += 32) {
        const float* x = row + c * 8;
        const u32 at = queries + swizzled(r, c, kM);
        asm volatile("st.shared.v4.b32 [%0], {%1,%2,%3,%4};" ::"r"(at),
                     "r"(pack2<kType>(x[0], x[1])), "r"(pack2<kType>(x[2], x[3])),
                     "r"(pack2<kType>(x[4], x[5])), "r"(pack2<kType>(x[6], x[7]))
                     : "memory");
      }
      __syncwarp();
    }
  } else {
    constexpr int pieces = kDp / 8;
    for (int i = threadIdx.x & 127; i < 64 * pieces; i += 128) {
      const int r = warpgroup * 64 + i / pieces, c = i % pieces;
      const bool valid = r < block.rows && c * 8 < kD;
      const u16* source = base + (valid ? (i64)(block.m0 + r) * p.query.row + c * 8 : 0);
      copy_async_16(queries + swizzled(r, c, kM), source, valid);
    }
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

ATTN_DEVICE void multiply_values(Rows& rows, const u32 (&weights)[kN / 16][4], u32 values) {
#pragma unroll
  for (int k = 0; k < kN / 16; k++) {
#pragma unroll
    for (int slice = 0; slice < kSlices; slice++) {
      const u32 at = values + slice * (kSliceWidth / 64) * kN * 128 + k * 2048;
      wgmma_registers<kType>(rows.o[slice], weights[k], descriptor_n_major(at, kN * 128));
    }
  }
}

// Scores of one tile to unnormalised weights; gives the factors for what was summed before.
ATTN_DEVICE void softmax(const AttentionParams& p, const Block& block, float (&s)[kN / 2], int n,
                         int row0, Rows& rows, float (&rescale)[2]) {
  constexpr bool plain = kMaskKind == kMaskNone && !kSoftcap && kPlainScale;
  const float to_log2 = plain ? p.scale * kLog2e : kLog2e;
  const int lane = threadIdx.x & 31, j0 = n * kN;
  if (!(plain && j0 >= block.clean_low && j0 + kN <= block.clean_high)) {
#pragma unroll
    for (int r = 0; r < 2; r++) {
      const int row = row0 + r * 8;
      const Interval seen = visible_keys(block.view, block.position0 + row);
      const i64 base =
          mask_row_offset(p, block.b, block.h, min_of((i64)block.m0 + row, p.query_rows - 1));
#pragma unroll
      for (int j = 0; j < kTilesN; j++) {
#pragma unroll
        for (int e = 0; e < 2; e++) {
          const int key = j0 + j * 8 + (lane & 3) * 2 + e;
          bool visible = key >= seen.low && key < seen.high;
          float x = s[j * 4 + 2 * r + e];
          if constexpr (!plain) {
            x *= p.scale;
            if constexpr (kSoftcap) x = p.softcap * tanhf(x / p.softcap);
            if (visible) visible = apply_mask<kMaskKind>(p, base, key, x);
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
ATTN_DEVICE void finish(const AttentionParams& p, const Block& block, Rows& rows, int row0,
                        u32 queries, int warpgroup) {
  const int lane = threadIdx.x & 31, warp = (threadIdx.x & 127) >> 5;
  const float sink = kSinkKind == kSinkPerHead
                         ? load_element<kType>(p.sink, block.h * p.sink_stride) * kLog2e
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
    if (kHasLse && (lane & 3) == 0 && row < block.rows) {
      ((float*)p.lse.data)[block.b * p.lse.batch + block.h * p.lse.head +
                           (i64)(block.m0 + row) * p.lse.row] =
          empty ? -infinity() : rows.m[r] * kLn2 + logf(sum);
    }
    float factor = 1.f;
    if (kSinkKind != kSinkNone && !empty) {
      const float top = fmaxf(rows.m[r], sink);
      factor = exp2_fast(rows.m[r] - top);
      sum = sum * factor + exp2_fast(sink - top);
    }
    const float inverse = empty ? 0.f : factor / sum;
    u16* out = (u16*)p.output.data + block.b * p.output.batch + block.h * p.output.head +
               (i64)(block.m0 + row) * p.output.row;
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
        } else if (row < block.rows && piece * 8 < kDv) {
          *(u32*)(out + piece * 8 + (lane & 3) * 2) = pack2<kType>(x, y);
        }
      }
    }
  }
  if constexpr (staged) {
    __syncwarp();
    constexpr int pieces = kDv / 8;
    u16* base = (u16*)p.output.data + block.b * p.output.batch + block.h * p.output.head;
    for (int i = lane; i < 16 * pieces; i += 32) {
      const int local = i / pieces, piece = i % pieces, row = first + local;
      if (row < block.rows) {
        uint4 x;
        asm volatile("ld.shared.v4.b32 {%0,%1,%2,%3}, [%4];"
                     : "=r"(x.x), "=r"(x.y), "=r"(x.z), "=r"(x.w)
                     : "r"(queries + swizzled(row, piece, kM)));
        *(uint4*)(base + (i64)(block.m0 + row) * p.output.row + piece * 8) = x;
      }
    }
  }
}

ATTN_DEVICE void consume(const AttentionParams& p, const Block& block, Barriers* barriers,
                         u32 queries, u32 keys, u32 values, float* buffer, int warpgroup) {
  const int lane = threadIdx.x & 31, warp = (threadIdx.x & 127) >> 5;
  const int row0 = warpgroup * 64 + warp * 16 + lane / 4;
  Rows rows;
#pragma unroll
  for (int slice = 0; slice < kSlices; slice++) {
#pragma unroll
    for (int i = 0; i < kSliceWidth / 2; i++) rows.o[slice][i] = 0.f;
  }
  rows.m[0] = rows.m[1] = -infinity();
  rows.l[0] = rows.l[1] = 0.f;
  load_query(p, block, queries, buffer, warpgroup);
  const u32 own = queries + warpgroup * 64 * 128;
  auto release = [&](u64* barrier) {
    if (lane == 0) barrier_arrive(shared_address(barrier));
  };

  if (block.n_first <= block.n_last) {
    float s[kN / 2];
    u32 weights[kN / 16][4];
    float rescale[2];
    barrier_wait(shared_address(&barriers->key_full[0]), 0);
    wgmma_fence();
    multiply_keys(s, own, keys);
    wgmma_commit();
    wgmma_wait<0>();
    pin(s);
    release(&barriers->key_free[0]);
    softmax(p, block, s, block.n_last, row0, rows, rescale);
    pack_weights(s, weights);
    int use = 0;
    for (int n = block.n_last - 1; n >= block.n_first; n--, use++) {
      const int stage = use % kStages, next = (use + 1) % kStages;
      barrier_wait(shared_address(&barriers->key_full[next]), ((use + 1) / kStages) & 1);
      pin(s);
      pin_output(rows);
      wgmma_fence();
      multiply_keys(s, own, keys + next * kKeyBytes);
      wgmma_commit();
      barrier_wait(shared_address(&barriers->value_full[stage]), (use / kStages) & 1);
      multiply_values(rows, weights, values + stage * kValueBytes);
      wgmma_commit();
      wgmma_wait<1>();
      pin(s);
      release(&barriers->key_free[next]);
      softmax(p, block, s, n, row0, rows, rescale);
      wgmma_wait<0>();
      pin_output(rows);
      release(&barriers->value_free[stage]);
      pack_weights(s, weights);
      rescale_output(rows, rescale);
    }
    const int stage = use % kStages;
    barrier_wait(shared_address(&barriers->value_full[stage]), (use / kStages) & 1);
    pin_output(rows);
    wgmma_fence();
    multiply_values(rows, weights, values + stage * kValueBytes);
    wgmma_commit();
    wgmma_wait<0>();
    pin_output(rows);
  }
  finish(p, block, rows, row0, queries, warpgroup);
}

extern "C" __global__ void __launch_bounds__(kThreads, 1)
    attn_attention_wgmma(const __grid_constant__ AttentionParams p) {
  extern __shared__ __align__(1024) u8 shared[];
  __shared__ Barriers barriers;
  const int warpgroup = threadIdx.x >> 7;
  const u32 queries = (shared_address(shared) + 1023) & ~1023u;
  const u32 keys = queries + kQueryBytes, values = keys + kStages * kKeyBytes;
  if (threadIdx.x == 0) {
    for (int s = 0; s < kStages; s++) {
      barrier_init(shared_address(&barriers.key_full[s]), 128);
      barrier_init(shared_address(&barriers.value_full[s]), 128);
      barrier_init(shared_address(&barriers.key_free[s]), 4 * kConsumers);
      barrier_init(shared_address(&barriers.value_free[s]), 4 * kConsumers);
    }
    asm volatile("fence.mbarrier_init.release.cluster;" ::: "memory");
  }
  const int tiles = (int)((p.query_rows + kM - 1) / kM);
  const int tile = tiles - 1 - (int)(blockIdx.x % tiles);
  const i64 bh = blockIdx.x / tiles;
  Block block;
  block.b = bh / p.q_heads;
  block.h = bh % p.q_heads;
  block.hk = block.h / (p.q_heads / p.kv_heads);
  block.m0 = tile * kM;
  wait_for_previous();
  const RowLengths lengths = p.rows[block.b];
  const bool live = lengths.live && !p.faults->call_poisoned;
  if (p.last && blockIdx.x == 0 && threadIdx.x == 0) end_call(p.faults, p.record);
  block.rows = (int)min_of((i64)kM, p.query_rows - block.m0);
  block.position0 = lengths.query_start + block.m0;
  block.view = visibility_of(p, live ? lengths.total : 0);
  const Interval first = visible_keys(block.view, block.position0);
  const Interval last = visible_keys(block.view, block.position0 + block.rows - 1);
  block.clean_low = last.low;
  block.clean_high = first.high;
  block.n_first = first.low / kN;
  block.n_last = (last.high + kN - 1) / kN - 1;
  __syncthreads();
  if (warpgroup == 0) {
    registers_down<PRODUCER_REGISTERS>();
    produce(p, block, &barriers, keys, values);
  } else {
    registers_up<CONSUMER_REGISTERS>();
    // The transform's row buffers lie behind everything else.
    float* buffer = (float*)(shared + (queries - shared_address(shared)) + kQueryBytes +
                             kStages * (kKeyBytes + kValueBytes));
    consume(p, block, &barriers, queries, keys, values, buffer, warpgroup - 1);
  }
}

}  // namespace attnk
