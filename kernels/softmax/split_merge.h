// What the decode kernels do once a block's warps have walked their keys: merge the warps in shared
// memory in fixed order and, where there are several splits, write the result to scratch; the block
// that arrives last (a counter that wraps to zero by itself) merges them in the splits' order.
// No result depends on which block that is.
#pragma once

#include "common/device.h"
#include "common/faults.h"
#include "softmax/variant.h"

namespace attnk {

// Row r of a tile is head r % group of the key head's group at position r / group.
struct RowPlace {
  i64 head, index;
};

// A block's tile: rows r0 .. r0 + rows - 1 of (batch b, key head hk), part `split` of the keys.
struct DecodeTile {
  i64 unit;  // (batch, key head, row tile)
  i64 b, hk;
  int split, r0, rows, group;
  i64 query0;  // the sequence's first query row, where sequences are packed
};
ATTN_DEVICE RowPlace place_of(const DecodeTile& tile, int r) {
  return {tile.hk * tile.group + (tile.r0 + r) % tile.group, (tile.r0 + r) / tile.group};
}

// What a block does instead, whose unit has no rows: all blocks of the unit do. All threads call.
ATTN_DEVICE void end_without_rows(const AttentionParams& p) {
  if (p.last && blockIdx.x == 0 && threadIdx.x == 0) end_call(p.faults, p.record);
}

// The unit of the rows' tops: 2 to the power of top * kUnit is what their sums are relative to.
constexpr float kUnit = kType == kTypeFloat32 ? 1.4426950408889634f : 1.f;
constexpr float kNatural = kType == kTypeFloat32 ? 1.f : 0.6931471805599453f;  // a top's, in e
ATTN_DEVICE float power(float top) { return exp2_fast(top * kUnit); }

// `tops` and `denominators` hold a number a warp and row, `sums` (warp, row, kDv channels), all in
// shared memory and complete; `shared` is all of it, free for the merge of splits once `sums` has
// been read. All threads of the block call; every sum of an empty part is ignored.
template <int rows_in_tile, int warps>
ATTN_DEVICE void merge_and_finish(const AttentionParams& p, const DecodeTile& tile,
                                  const float (&tops)[warps][rows_in_tile],
                                  const float (&denominators)[warps][rows_in_tile],
                                  const float* sums, void* shared) {
  constexpr int kRows = rows_in_tile, kThreads = 32 * warps;
  constexpr int kPartial = kRows * 2 + kRows * kDv;  // floats a split: tops, denominators, sums
  __shared__ int is_last;
  const int rows = tile.rows;
  const i64 unit = tile.unit, b = tile.b;
  // Finishes one element of the output from a row's merged top, denominator and sum.
  auto finish = [&](int row, int c, float top, float sum, float value) {
    const RowPlace where = place_of(tile, row);
    const bool empty = sum == 0.f;
    if (kHasLse && c == 0) {
      ((float*)p.lse.data)[b * p.lse.batch + where.head * p.lse.head +
                           (tile.query0 + where.index) * p.lse.row] =
          empty ? -infinity() : top * kNatural + logf(sum);
    }
    float factor = 1.f;
    if (kSinkKind != kSinkNone && !empty) {
      const float sink = kSinkKind == kSinkPerHead
                             ? load_element<kType>(p.sink, where.head * p.sink_stride) / kNatural
                             : 0.f;
      const float joint = fmaxf(top, sink);
      factor = power(top - joint);
      sum = sum * factor + power(sink - joint);
    }
    store_element<kType>(p.output.data,
                         b * p.output.batch + where.head * p.output.head +
                             (tile.query0 + where.index) * p.output.row + c,
                         empty ? 0.f : value * factor / sum);
  };

  // An empty part (sum 0) weighs nothing, and its sums are not read.
  const bool split_up = p.splits > 1;
  float* partials = p.partials + (unit * p.splits + tile.split) * kPartial;
  for (int i = threadIdx.x; i < rows * kDv; i += kThreads) {
    const int row = i / kDv, c = i % kDv;
    float top = -infinity();
    for (int w = 0; w < warps; w++) top = fmaxf(top, tops[w][row]);
    const float origin = top == -infinity() ? 0.f : top;
    float sum = 0.f, value = 0.f;
    for (int w = 0; w < warps; w++) {
      const float weight = power(tops[w][row] - origin);
      if (denominators[w][row] == 0.f) continue;
      sum += denominators[w][row] * weight;
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
        const float old = power(mine.top - origin);
        mine.top = joint;
        mine.sum *= old;
        mine.value.x *= old;
        mine.value.y *= old;
        mine.value.z *= old;
        mine.value.w *= old;
#pragma unroll
        for (int i = 0; i < kBatch; i++) {
          if (sum[i] == 0.f) continue;  // an empty part: its sums are not felt
          const float weight = power(top[i] - origin);
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
          const float a = power(mine.top - origin), c = power(x.top - origin);
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
