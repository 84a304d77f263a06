// Few query rows, many keys: flash attention split over the keys, float16 and bfloat16, one launch.
//
// The query rows of one key head (group heads x S positions) are packed into one tile of 16 rows:
// row r is head r % group, position r / group. A block treats one (batch, key head, row tile) and
// one of `splits` parts of its keys; WARPS warps take turns at groups of 16 keys, each with a ring
// of STAGES buffers of its own, so that the stream of keys needs no block barrier. split_merge.h
// does the rest.
#include "common/device.h"
#include "common/faults.h"
#include "common/mma.h"
#include "common/rotary_rows.h"
#include "common/visibility.h"
#include "softmax/early_keys.h"
#include "softmax/packed.h"
#include "softmax/split_merge.h"
#include "softmax/variant.h"

namespace attnk {

constexpr int kRows = 16, kKeys = 16, kWarps = WARPS, kStages = STAGES, kThreads = 32 * kWarps;
constexpr int kDp = (kD + 15) / 16 * 16, kDvp = (kDv + 15) / 16 * 16;
constexpr int kLdK = kDp + 8, kLdV = kDvp + 8, kStepsD = kDp / 16, kTilesDv = kDvp / 8;
constexpr bool kHoldsQuery = kStepsD <= 12;  // in registers, beside the output
constexpr int kHeldSteps = kHoldsQuery ? kStepsD : 1;
constexpr int kStageElements = kKeys * (kLdK + kLdV);
constexpr int kHeldRows = 2;  // whose top and sum a lane holds
constexpr float kLog2e = 1.4426950408889634f;

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
  const int lane = threadIdx.x & 31, warp = threadIdx.x >> 5;
  const int group = (int)(p.q_heads / p.kv_heads);
  const int all_rows = group * (int)p.query_rows;
  const int row_tiles = (all_rows + kRows - 1) / kRows;
  const int split = blockIdx.x % (int)p.splits;
  const i64 unit = blockIdx.x / (int)p.splits;  // (batch, key head, row tile)
  const int r0 = (int)(unit % row_tiles) * kRows;
  const i64 hk = unit / row_tiles % p.kv_heads, b = unit / row_tiles / p.kv_heads;
  EarlyKeys early(p, b);
  const RowLengths lengths = early.lengths;
  const RowSpan span = span_of(p, lengths);
  const int rows = min_of(kRows, group * span.query_rows - r0);
  if (kPacked && rows <= 0) return end_without_rows(p);
  const Visibility view = visibility_of(p, lengths.live ? lengths.total : 0);
  const DecodeTile tile = {unit, b, hk, split, r0, rows, group, span.query};

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

  const u16* kbase =
      (const u16*)p.key.data + b * p.key.batch + hk * p.key.head + span.key * p.key.row;
  const u16* vbase =
      (const u16*)p.value.data + b * p.value.batch + hk * p.value.head + span.key * p.value.row;
  u16* ring = shared + kRows * kLdK + warp * kStages * kStageElements;
  const u32 ring_address = shared_address(ring);
  auto fetch = [&](int g, int stage) {
    const u32 at = ring_address + stage * kStageElements * 2;
    if (g < end) {
      early.before_keys((g + 1) * kKeys);
      fetch_keys<kD, kDp, kLdK>(at, kbase, p.key.row, g * kKeys, low, high);
      fetch_keys<kDv, kDvp, kLdV>(at + kKeys * kLdK * 2, vbase, p.value.row, g * kKeys, low, high);
    }
    copy_commit();
  };
  // Old keys, then the query rows, then new keys, for which a warp may have to wait.
  int fetched = 0;
  for (; fetched < kStages - 1; fetched++) {
    const int g = begin + warp + fetched * kWarps;
    if (g < end && early.must_wait((g + 1) * kKeys)) break;
    fetch(g, fetched);
  }

  // Query rows, transformed, to shared memory.
  auto query_row = [&](const RowPlace& at) {
    return (const u16*)p.query.data + b * p.query.batch + at.head * p.query.head +
           (span.query + at.index) * p.query.row;
  };
  if (kQueryTransform && p.query_transform.in_pieces) {
    constexpr int pieces = kD / 8, units = (pieces + 1) / 2, all_pieces = kDp / 8;
    for (int i = threadIdx.x; i < kRows * all_pieces; i += kThreads) {
      const int r = i / all_pieces, c = i % all_pieces;
      if (r >= rows || c >= pieces) *(uint4*)(shared + r * kLdK + c * 8) = uint4{0, 0, 0, 0};
    }
    for (int i = threadIdx.x; i < rows * units; i += kThreads) {
      const int r = i / units, u = i % units;
      const RowPlace at = place_of(tile, r);
      const PairPlace place = pair_place<kType>(p.query_transform, u);
      const i64 position =
          place.turns ? table_row(p.query_transform, b, at.index, lengths.query_start + at.index)
                      : -1;
      PiecePair<kType> pair;
      pair.load(p.query_transform, (const uint4*)query_row(at), pieces, place, u, position);
      uint4 out[2];
      pair.finish(p.query_transform, position, out);
      *(uint4*)(shared + r * kLdK + place.first * 8) = out[0];
      if (place.second < pieces) *(uint4*)(shared + r * kLdK + place.second * 8) = out[1];
    }
  } else {
    // A warp a row; its row buffer lies in the last ring stage, which is not filled yet.
    float* buffer = (float*)(ring + (kStages - 1) * kStageElements);
    for (int r = warp; r < kRows; r += kWarps) {
      u16* target = shared + r * kLdK;
      if (r < rows) {
        const RowPlace at = place_of(tile, r);
        const u16* q = query_row(at);
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
  for (; fetched < kStages - 1; fetched++) fetch(begin + warp + fetched * kWarps, fetched);
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
      const RowPlace where = place_of(tile, min_of(row, rows - 1));
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
  if (!early.is_live(p, b)) {
#pragma unroll
    for (int r = 0; r < kHeldRows; r++) {
      m[r] = -infinity();
      l[r] = 0.f;
    }
  }

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

  merge_and_finish<kRows, kWarps>(p, tile, top_of, sum_of, sums, shared);
}

}  // namespace attnk
