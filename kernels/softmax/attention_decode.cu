// Few query rows, many keys: flash attention split over the keys, float16 and bfloat16, one launch.
//
// The query rows of one key head (group heads x S positions) are packed into one tile of 16 rows:
// row r is head r % group, position r / group. A block treats one (batch, key head, row tile) and
// one of `splits` parts of its keys; WARPS warps take turns at groups of 16 keys, each with a ring
// of STAGES buffers of its own, so that the stream of keys needs no block barrier. Then the warps'
// results are merged in shared memory in fixed order, and, where there are several splits, written
// to scratch; the block that arrives last (a counter that wraps to zero by itself) merges them in
// the order of the splits. No result depends on which block that is.
#include "common/device.h"
#include "common/faults.h"
#include "common/mma.h"
#include "common/row_transform.h"
#include "common/visibility.h"
#include "softmax/variant.h"

namespace attnk {

constexpr int kRows = 16, kKeys = 16, kWarps = WARPS, kStages = STAGES, kThreads = 32 * kWarps;
constexpr int kDp = (kD + 15) / 16 * 16, kDvp = (kDv + 15) / 16 * 16;
constexpr int kLdK = kDp + 8, kLdV = kDvp + 8, kStepsD = kDp / 16, kTilesDv = kDvp / 8;
constexpr bool kHoldsQuery = kStepsD <= 12;  // in registers, beside the output
constexpr int kHeldSteps = kHoldsQuery ? kStepsD : 1;
constexpr int kStageElements = kKeys * (kLdK + kLdV);
constexpr int kPartial = kRows * 2 + kRows * kDv;  // floats a split: m, l, sums
constexpr float kLog2e = 1.4426950408889634f, kLn2 = 0.6931471805599453f;

struct RowPlace {
  i64 head, index;
};

template <int d, int dp, int ld>
ATTN_DEVICE void fetch_keys(u32 target, const u16* base, i64 stride, int first, int low, int high) {
  constexpr int chunks = dp / 8;
  const int lane = threadIdx.x & 31;
#pragma unroll
  for (int i = lane; i < kKeys * chunks; i += 32) {
    const int row = i / chunks, c = i % chunks, key = first + row;
    const bool valid = key >= low && key < high && c * 8 < d;
    const u16* source = base + (valid ? (i64)key * stride + c * 8 : 0);
    copy_async_16(target + (row * ld + c * 8) * 2, source, valid);
  }
}

extern "C" __global__ void __launch_bounds__(kThreads, 1)
    attn_attention_decode(const __grid_constant__ AttentionParams p) {
  extern __shared__ __align__(128) u16 shared[];
  __shared__ float top_of[kWarps][kRows], sum_of[kWarps][kRows];
  __shared__ int is_last;
  const int lane = threadIdx.x & 31, warp = threadIdx.x >> 5;
  const int group = (int)(p.q_heads / p.kv_heads);
  const int all_rows = group * (int)p.query_rows;
  const int row_tiles = (all_rows + kRows - 1) / kRows;
  const int split = blockIdx.x % (int)p.splits;
  const i64 unit = blockIdx.x / (int)p.splits;  // (batch, key head, row tile)
  const int r0 = (int)(unit % row_tiles) * kRows;
  const i64 hk = unit / row_tiles % p.kv_heads, b = unit / row_tiles / p.kv_heads;
  const int rows = min_of(kRows, all_rows - r0);
  wait_for_previous();
  const RowLengths lengths = p.rows[b];
  const bool live = lengths.live && !p.faults->call_poisoned;
  const int total = live ? lengths.total : 0;
  const Visibility view = visibility_of(p, total);
  auto place = [&](int r) { return RowPlace{hk * group + (r0 + r) % group, (r0 + r) / group}; };

  // Keys that some row sees, and this block's part of them in groups of 16.
  const int first_index = r0 / group, last_index = (r0 + rows - 1) / group;
  const int low = visible_keys(view, lengths.query_start + first_index).low;
  const int high = visible_keys(view, lengths.query_start + last_index).high;
  const int clean_low = visible_keys(view, lengths.query_start + last_index).low;
  const int clean_high = visible_keys(view, lengths.query_start + first_index).high;
  const int group0 = low / kKeys;
  const int groups = high > low ? (high + kKeys - 1) / kKeys - group0 : 0;
  const int per_split = (groups + (int)p.splits - 1) / (int)p.splits;
  const int begin = group0 + min_of(groups, split * per_split);
  const int end = group0 + min_of(groups, (split + 1) * per_split);

  const u16* kbase = (const u16*)p.key.data + b * p.key.batch + hk * p.key.head;
  const u16* vbase = (const u16*)p.value.data + b * p.value.batch + hk * p.value.head;
  u16* ring = shared + kRows * kLdK + warp * kStages * kStageElements;
  const u32 ring_address = shared_address(ring);
  auto fetch = [&](int g, int stage) {
    const u32 at = ring_address + stage * kStageElements * 2;
    if (g < end) {
      fetch_keys<kD, kDp, kLdK>(at, kbase, p.key.row, g * kKeys, low, high);
      fetch_keys<kDv, kDvp, kLdV>(at + kKeys * kLdK * 2, vbase, p.value.row, g * kKeys, low, high);
    }
    copy_commit();
  };
#pragma unroll
  for (int s = 0; s < kStages - 1; s++) fetch(begin + warp + s * kWarps, s);

  // Query rows, transformed, to shared memory; a warp's row buffer lies in the last ring stage,
  // which is not filled yet.
  {
    float* buffer = (float*)(ring + (kStages - 1) * kStageElements);
    for (int r = warp; r < kRows; r += kWarps) {
      u16* target = shared + r * kLdK;
      if (r < rows) {
        const RowPlace at = place(r);
        const u16* q = (const u16*)p.query.data + b * p.query.batch + at.head * p.query.head +
                       at.index * p.query.row;
        if constexpr (kQueryTransform) {
          for (int c = lane; c < kDp; c += 32) buffer[c] = c < kD ? load_element<kType>(q, c) : 0.f;
          __syncwarp();
          transform_row<kType>(p.query_transform, buffer, kD, b, at.index,
                               lengths.query_start + at.index);
          for (int c = lane; c < kDp; c += 32) store_element<kType>(target, c, buffer[c]);
          __syncwarp();
        } else {
          for (int c = lane; c < kDp; c += 32) target[c] = c < kD ? q[c] : (u16)0;
        }
      } else {
        for (int c = lane; c < kDp; c += 32) target[c] = 0;
      }
    }
  }
  __syncthreads();
  u32 q[kHeldSteps][4];
  const u32 query_address = shared_address(shared + (lane & 15) * kLdK + (lane >> 4) * 8);
  if constexpr (kHoldsQuery) {
#pragma unroll
    for (int d = 0; d < kStepsD; d++) ldmatrix_x4(q[d], query_address + d * 32);
  }

  float o[kTilesDv][4] = {};
  float m[2] = {-infinity(), -infinity()}, l[2] = {0.f, 0.f};
  int stage = 0;
  for (int g = begin + warp; g < end; g += kWarps) {
    {
      const int ahead = g + (kStages - 1) * kWarps;
      const int slot = stage == 0 ? kStages - 1 : stage - 1;
      __syncwarp();
      fetch(ahead, slot);
    }
    copy_wait<kStages - 1>();
    __syncwarp();
    const u32 at = ring_address + stage * kStageElements * 2;
    stage = stage + 1 == kStages ? 0 : stage + 1;
    float s[2][4] = {};
#pragma unroll
    for (int d = 0; d < kStepsD; d++) {
      u32 k[4];
      ldmatrix_x4(
          k, at + (((lane & 7) + (lane >> 4) * 8) * kLdK + ((lane >> 3) & 1) * 8 + d * 16) * 2);
      if constexpr (!kHoldsQuery) ldmatrix_x4(q[0], query_address + d * 32);
      const u32(&a)[4] = q[kHoldsQuery ? d : 0];
      mma_16x8x16<kType>(s[0], a, k[0], k[1]);
      mma_16x8x16<kType>(s[1], a, k[2], k[3]);
    }
    const int j0 = g * kKeys;
    const bool clean = kMaskKind == kMaskNone && j0 >= clean_low && j0 + kKeys <= clean_high;
    float rescale[2];
#pragma unroll
    for (int r = 0; r < 2; r++) {
      const int row = lane / 4 + r * 8;
      const RowPlace where = place(min_of(row, rows - 1));
      const Interval seen = visible_keys(view, lengths.query_start + (int)where.index);
      const i64 base = mask_row_offset(p, b, where.head, where.index);
      float top = m[r];
#pragma unroll
      for (int j = 0; j < 2; j++) {
#pragma unroll
        for (int e = 0; e < 2; e++) {
          float x = s[j][2 * r + e] * p.scale;
          if constexpr (kSoftcap) x = p.softcap * tanhf(x / p.softcap);
          if (!clean) {
            const int key = j0 + j * 8 + (lane & 3) * 2 + e;
            bool visible = key >= seen.low && key < seen.high;
            if (visible) visible = apply_mask<kMaskKind>(p, base, key, x);
            if (!visible) x = -infinity();
          }
          x *= kLog2e;
          s[j][2 * r + e] = x;
          top = fmaxf(top, x);
        }
      }
      top = fmaxf(top, __shfl_xor_sync(~0u, top, 1));
      top = fmaxf(top, __shfl_xor_sync(~0u, top, 2));
      const float origin = top == -infinity() ? 0.f : top;
      rescale[r] = exp2_fast(m[r] - origin);
      m[r] = top;
      float sum = 0.f;
#pragma unroll
      for (int j = 0; j < 2; j++) {
#pragma unroll
        for (int e = 0; e < 2; e++) {
          const float x = exp2_fast(s[j][2 * r + e] - origin);
          s[j][2 * r + e] = x;
          sum += x;
        }
      }
      l[r] = l[r] * rescale[r] + sum;
    }
#pragma unroll
    for (int j = 0; j < kTilesDv; j++) {
      o[j][0] *= rescale[0];
      o[j][1] *= rescale[0];
      o[j][2] *= rescale[1];
      o[j][3] *= rescale[1];
    }
    // Weights in two pieces: the stream of keys takes longer than twice the products, and few rows
    // do not average the rounding of one piece out.
    const u32 a[4] = {pack2<kType>(s[0][0], s[0][1]), pack2<kType>(s[0][2], s[0][3]),
                      pack2<kType>(s[1][0], s[1][1]), pack2<kType>(s[1][2], s[1][3])};
    const u32 rest[4] = {
        pack2_rest<kType>(a[0], s[0][0], s[0][1]), pack2_rest<kType>(a[1], s[0][2], s[0][3]),
        pack2_rest<kType>(a[2], s[1][0], s[1][1]), pack2_rest<kType>(a[3], s[1][2], s[1][3])};
#pragma unroll
    for (int j = 0; j < kTilesDv / 2; j++) {
      u32 v[4];
      ldmatrix_x4_trans(v, at + (kKeys * kLdK + (lane & 15) * kLdV + (lane >> 4) * 8 + j * 16) * 2);
      mma_16x8x16<kType>(o[2 * j], a, v[0], v[1]);
      mma_16x8x16<kType>(o[2 * j + 1], a, v[2], v[3]);
      mma_16x8x16<kType>(o[2 * j], rest, v[0], v[1]);
      mma_16x8x16<kType>(o[2 * j + 1], rest, v[2], v[3]);
    }
  }
  copy_wait<0>();

  // Merge of the warps, in their order: sums[warp][row][channel] over the ring, which is done with.
#pragma unroll
  for (int r = 0; r < 2; r++) {
    l[r] += __shfl_xor_sync(~0u, l[r], 1);
    l[r] += __shfl_xor_sync(~0u, l[r], 2);
    if ((lane & 3) == 0) {
      top_of[warp][lane / 4 + r * 8] = m[r];
      sum_of[warp][lane / 4 + r * 8] = l[r];
    }
  }
  __syncthreads();
  float* sums = (float*)shared;
#pragma unroll
  for (int j = 0; j < kTilesDv; j++) {
#pragma unroll
    for (int r = 0; r < 2; r++) {
      const int column = j * 8 + (lane & 3) * 2;
      if (column < kDv) {
        float* at = sums + (warp * kRows + lane / 4 + r * 8) * kDv + column;
        at[0] = o[j][2 * r];
        at[1] = o[j][2 * r + 1];
      }
    }
  }
  __syncthreads();

  // Finishes one element of the output from a row's merged top, denominator and sum.
  auto finish = [&](int row, int c, float top, float sum, float value) {
    const RowPlace where = place(row);
    const bool empty = sum == 0.f;
    if (kHasLse && c == 0) {
      ((float*)p.lse.data)[b * p.lse.batch + where.head * p.lse.head + where.index * p.lse.row] =
          empty ? -infinity() : top * kLn2 + logf(sum);
    }
    float factor = 1.f;
    if (kSinkKind != kSinkNone && !empty) {
      const float sink = kSinkKind == kSinkPerHead
                             ? load_element<kType>(p.sink, where.head * p.sink_stride) * kLog2e
                             : 0.f;
      const float joint = fmaxf(top, sink);
      factor = exp2_fast(top - joint);
      sum = sum * factor + exp2_fast(sink - joint);
    }
    store_element<kType>(
        p.output.data,
        b * p.output.batch + where.head * p.output.head + where.index * p.output.row + c,
        empty ? 0.f : value * factor / sum);
  };

  // An empty part (sum 0) weighs nothing, and its sums are not read.
  const bool split_up = p.splits > 1;
  float* partials = p.partials + (unit * p.splits + split) * kPartial;
  for (int i = threadIdx.x; i < rows * kDv; i += kThreads) {
    const int row = i / kDv, c = i % kDv;
    float top = -infinity();
    for (int w = 0; w < kWarps; w++) top = fmaxf(top, top_of[w][row]);
    const float origin = top == -infinity() ? 0.f : top;
    float sum = 0.f, value = 0.f;
    for (int w = 0; w < kWarps; w++) {
      const float weight = exp2_fast(top_of[w][row] - origin);
      if (sum_of[w][row] == 0.f) continue;
      sum += sum_of[w][row] * weight;
      value += sums[(w * kRows + row) * kDv + c] * weight;
    }
    if (split_up) {
      if (c == 0) {
        __stcg(partials + row, top);
        __stcg(partials + kRows + row, sum);
      }
      __stcg(partials + 2 * kRows + row * kDv + c, value);
    } else {
      finish(row, c, top, sum, value);
    }
  }
  if (!split_up) {
    if (p.last && blockIdx.x == 0 && threadIdx.x == 0) end_call(p.faults, p.record);
    return;
  }
  __threadfence();
  __syncthreads();
  if (threadIdx.x == 0) {
    u32 arrived;
    asm volatile("atom.acq_rel.gpu.global.inc.u32 %0, [%1], %2;"
                 : "=r"(arrived)
                 : "l"(p.counters + unit), "r"((u32)p.splits - 1)
                 : "memory");
    is_last = arrived == (u32)p.splits - 1;
  }
  __syncthreads();
  if (!is_last) return;
  if (p.last && unit == 0 && threadIdx.x == 0) end_call(p.faults, p.record);

  // A thread takes four channels of a row; where threads are left over, several share a row's
  // splits (part i of n takes splits i, i + n, ...) and are merged in order. All loads of a batch
  // of splits are under way at once: tops, denominators and sums do not wait for each other.
  constexpr int kBatch = kDv > 128 ? 4 : 8;  // as registers allow
  const int splits = (int)p.splits;
  const float* part = p.partials + unit * p.splits * kPartial;
  const int quads = rows * kDv / 4;
  const int sharers = quads < kThreads ? kThreads / quads : 1;
  const int per_pass = kThreads / sharers;
  struct Share {
    float top, sum;
    float4 value;
  };
  Share* shares = (Share*)shared;
  for (int first = 0; first < quads; first += per_pass) {
    const int quad = first + (int)threadIdx.x % per_pass, sharer = (int)threadIdx.x / per_pass;
    const bool active = quad < quads && sharer < sharers;
    const int row = min_of(quad * 4 / kDv, kRows - 1);
    Share mine = {-infinity(), 0.f, {0.f, 0.f, 0.f, 0.f}};
    if (active) {
      for (int s0 = sharer; s0 < splits; s0 += kBatch * sharers) {
        float top[kBatch], sum[kBatch];
        float4 value[kBatch];
#pragma unroll
        for (int i = 0; i < kBatch; i++) {
          const int s = s0 + i * sharers;
          const float* one = part + (i64)min_of(s, splits - 1) * kPartial;
          top[i] = s < splits ? __ldcg(one + row) : -infinity();
          sum[i] = s < splits ? __ldcg(one + kRows + row) : 0.f;
          value[i] = __ldcg((const float4*)(one + 2 * kRows) + quad);
        }
        float joint = mine.top;
#pragma unroll
        for (int i = 0; i < kBatch; i++) joint = fmaxf(joint, top[i]);
        const float origin = joint == -infinity() ? 0.f : joint;
        const float old = exp2_fast(mine.top - origin);
        mine.top = joint;
        mine.sum *= old;
        mine.value.x *= old;
        mine.value.y *= old;
        mine.value.z *= old;
        mine.value.w *= old;
#pragma unroll
        for (int i = 0; i < kBatch; i++) {
          if (sum[i] == 0.f) continue;  // an empty part: its sums are not felt
          const float weight = exp2_fast(top[i] - origin);
          mine.sum = fmaf(sum[i], weight, mine.sum);
          mine.value.x = fmaf(value[i].x, weight, mine.value.x);
          mine.value.y = fmaf(value[i].y, weight, mine.value.y);
          mine.value.z = fmaf(value[i].z, weight, mine.value.z);
          mine.value.w = fmaf(value[i].w, weight, mine.value.w);
        }
      }
    }
    if (sharers > 1) {
      if (active) shares[sharer * quads + quad] = mine;
      __syncthreads();
      if (active && sharer == 0) {
        for (int other = 1; other < sharers; other++) {
          const Share x = shares[other * quads + quad];
          if (x.sum == 0.f) continue;
          const float joint = fmaxf(mine.top, x.top);
          const float origin = joint == -infinity() ? 0.f : joint;
          const float a = exp2_fast(mine.top - origin), c = exp2_fast(x.top - origin);
          mine.top = joint;
          mine.sum = mine.sum * a + x.sum * c;
          mine.value.x = mine.value.x * a + x.value.x * c;
          mine.value.y = mine.value.y * a + x.value.y * c;
          mine.value.z = mine.value.z * a + x.value.z * c;
          mine.value.w = mine.value.w * a + x.value.w * c;
        }
      }
      __syncthreads();
    }
    if (active && sharer == 0) {
      const int c = quad * 4 % kDv;
      finish(row, c, mine.top, mine.sum, mine.value.x);
      finish(row, c + 1, mine.top, mine.sum, mine.value.y);
      finish(row, c + 2, mine.top, mine.sum, mine.value.z);
      finish(row, c + 3, mine.top, mine.sum, mine.value.w);
    }
  }
}

}  // namespace attnk
