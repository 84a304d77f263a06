// Few query rows, many keys, float32: attention split over the keys, on the ordinary float units;
// the stream of keys takes longer than the arithmetic.
//
// Blocks, splits and rings are those of attention_decode.cu, with ROWS rows a tile. For a group of
// 16 keys, lane l takes the scores of key l % 16 over every other piece of 16 bytes (l / 16 says
// which) for all rows, and both halves are added; weights go through shared memory, a key's ROWS
// side by side; then the lanes take channels, kSharers keys at a time where a row of V has few
// pieces.
#include "common/device.h"
#include "common/faults.h"
#include "common/mma.h"
#include "common/row_transform.h"
#include "common/visibility.h"
#include "softmax/early_keys.h"
#include "softmax/packed.h"
#include "softmax/split_merge.h"
#include "softmax/variant.h"

namespace attnk {

constexpr int kRows = ROWS, kKeys = 16, kWarps = WARPS, kStages = STAGES, kThreads = 32 * kWarps;
constexpr int kPiecesK = kD / 4, kPiecesV = kDv / 4;  // of 16 bytes
// Eight keys' pieces of the same number lie in different banks.
constexpr int kLdK = (kD + 31) / 32 * 32 + 4, kLdV = kDv;
constexpr int kStageFloats = kKeys * (kLdK + kLdV);
constexpr int kLanesV = kPiecesV <= 8 ? 8 : kPiecesV <= 16 ? 16 : 32;  // that share a row of V
constexpr int kSharers = 32 / kLanesV, kTurns = (kPiecesV + kLanesV - 1) / kLanesV;
constexpr int kHeldRows = kRows;  // whose top and sum a lane holds
constexpr float kLog2e = 1.4426950408889634f;

template <int pieces, int ld>
ATTN_DEVICE void fetch_keys(u32 target, const float* base, i64 stride, int first, int low,
                            int high) {
  for (int i = threadIdx.x & 31; i < kKeys * pieces; i += 32) {
    const int row = i / pieces, c = i % pieces, key = first + row;
    const bool valid = key >= low && key < high;
    const float* source = base + (valid ? (i64)key * stride + c * 4 : 0);
    copy_async_16(target + (row * ld + c * 4) * 4, source, valid);
  }
}

ATTN_DEVICE void add_scaled(float4& sum, float weight, const float4& v) {
  sum.x = fmaf(weight, v.x, sum.x);
  sum.y = fmaf(weight, v.y, sum.y);
  sum.z = fmaf(weight, v.z, sum.z);
  sum.w = fmaf(weight, v.w, sum.w);
}
ATTN_DEVICE float4 times(const float4& v, float factor) {
  return {v.x * factor, v.y * factor, v.z * factor, v.w * factor};
}

extern "C" __global__ void __launch_bounds__(kThreads, 1)
    attn_attention_decode_float32(const __grid_constant__ AttentionParams p) {
  extern __shared__ __align__(128) float shared[];
  __shared__ float top_of[kWarps][kRows], sum_of[kWarps][kRows];
  __shared__ int low_of[kRows], high_of[kRows];
  __shared__ i64 mask_of[kRows];
  const int lane = threadIdx.x & 31, warp = threadIdx.x >> 5;
  const int group = (int)(p.q_heads / p.kv_heads);
  const int all_rows = group * (int)p.query_rows;
  const int row_tiles = (all_rows + kRows - 1) / kRows;
  const int split = blockIdx.x % (int)p.splits;
  const i64 unit = blockIdx.x / (int)p.splits;
  const int r0 = (int)(unit % row_tiles) * kRows;
  const i64 hk = unit / row_tiles % p.kv_heads, b = unit / row_tiles / p.kv_heads;
  EarlyKeys early(p, b);
  const RowLengths lengths = early.lengths;
  const RowSpan span = span_of(p, lengths);
  const int rows = min_of(kRows, group * span.query_rows - r0);
  if (kPacked && rows <= 0) return end_without_rows(p);
  const DecodeTile tile = {unit, b, hk, split, r0, rows, group, span.query};
  const Visibility view = visibility_of(p, lengths.live ? lengths.total : 0);

  // Keys that some row sees, and this block's part of them in groups of 16.
  const Interval first_row = visible_keys(view, lengths.query_start + r0 / group);
  const Interval last_row = visible_keys(view, lengths.query_start + (r0 + rows - 1) / group);
  const int low = first_row.low, high = last_row.high;
  const int clean_low = last_row.low, clean_high = first_row.high;
  const int group0 = low / kKeys;
  const int groups = high > low ? (high + kKeys - 1) / kKeys - group0 : 0;
  const int per_split = (groups + (int)p.splits - 1) / (int)p.splits;
  const int begin = group0 + min_of(groups, split * per_split);
  const int end = group0 + min_of(groups, (split + 1) * per_split);

  float* queries = shared;
  float* weights = queries + kRows * kD + warp * kKeys * kRows;
  float* ring = shared + kRows * kD + kWarps * kKeys * kRows + warp * kStages * kStageFloats;
  const u32 ring_address = shared_address(ring);
  const float* kbase =
      (const float*)p.key.data + b * p.key.batch + hk * p.key.head + span.key * p.key.row;
  const float* vbase =
      (const float*)p.value.data + b * p.value.batch + hk * p.value.head + span.key * p.value.row;
  auto fetch = [&](int g, int stage) {
    const u32 at = ring_address + stage * kStageFloats * 4;
    if (g < end) {
      early.before_keys((g + 1) * kKeys);
      fetch_keys<kPiecesK, kLdK>(at, kbase, p.key.row, g * kKeys, low, high);
      fetch_keys<kPiecesV, kLdV>(at + kKeys * kLdK * 4, vbase, p.value.row, g * kKeys, low, high);
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

  for (int r = warp; r < kRows; r += kWarps) {
    float* target = queries + r * kD;
    const RowPlace at = place_of(tile, min_of(r, rows - 1));
    if (lane == 0) {
      const Interval seen = visible_keys(view, lengths.query_start + (int)at.index);
      low_of[r] = seen.low;
      high_of[r] = seen.high;
      mask_of[r] = mask_row_offset(p, b, at.head, at.index);
    }
    const float* q = (const float*)p.query.data + b * p.query.batch + at.head * p.query.head +
                     (span.query + at.index) * p.query.row;
    for (int c = lane; c < kD; c += 32) target[c] = r < rows ? q[c] : 0.f;
    if constexpr (kQueryTransform) {
      __syncwarp();
      if (r < rows) {
        transform_row<kTypeFloat32>(p.query_transform, target, kD, b, at.index,
                                    lengths.query_start + at.index);
      }
    }
  }
  for (; fetched < kStages - 1; fetched++) fetch(begin + warp + fetched * kWarps, fetched);
  __syncthreads();

  const int half = lane >> 4, channel = lane % kLanesV, sharer = lane / kLanesV;
  float4 o[kRows][kTurns];
  float m[kRows], l[kRows];  // l: of the lane's own keys
#pragma unroll
  for (int r = 0; r < kRows; r++) {
    m[r] = -infinity();
    l[r] = 0.f;
#pragma unroll
    for (int t = 0; t < kTurns; t++) o[r][t] = {0.f, 0.f, 0.f, 0.f};
  }
  int stage = 0;
  for (int g = begin + warp; g < end; g += kWarps) {
    const int slot = stage == 0 ? kStages - 1 : stage - 1;
    __syncwarp();  // everyone is done with the buffer that is filled next, and with the weights
    fetch(g + (kStages - 1) * kWarps, slot);
    copy_wait<kStages - 1>();
    __syncwarp();
    const float* k_tile = ring + stage * kStageFloats;
    const float* v_tile = k_tile + kKeys * kLdK;
    stage = stage + 1 == kStages ? 0 : stage + 1;

    float x[kRows] = {};
    const float* k_row = k_tile + (lane & 15) * kLdK;
#pragma unroll 2
    for (int c = half; c < kPiecesK; c += 2) {
      const float4 k = *(const float4*)(k_row + c * 4);
#pragma unroll
      for (int r = 0; r < kRows; r++) {
        const float4 q = *(const float4*)(queries + r * kD + c * 4);
        x[r] += fmaf(k.w, q.w, fmaf(k.z, q.z, fmaf(k.y, q.y, k.x * q.x)));
      }
    }
    const int j0 = g * kKeys, key = j0 + (lane & 15);
    const bool clean = kMaskKind == kMaskNone && j0 >= clean_low && j0 + kKeys <= clean_high;
#pragma unroll
    for (int r = 0; r < kRows; r++) {
      float score = (x[r] + __shfl_xor_sync(~0u, x[r], 16)) * p.scale;
      if constexpr (kSoftcap) score = p.softcap * tanhf(score / p.softcap);
      float biased = score;
      if (!clean) {
        bool visible = key >= low_of[r] && key < high_of[r];
        if (visible) visible = apply_mask<kMaskKind>(p, mask_of[r], key, biased);
        if (!visible) score = biased = -infinity();
      }
      float top = fmaxf(biased, __shfl_xor_sync(~0u, biased, 8));
      top = fmaxf(top, __shfl_xor_sync(~0u, top, 4));
      top = fmaxf(top, __shfl_xor_sync(~0u, top, 2));
      top = fmaxf(top, __shfl_xor_sync(~0u, top, 1));
      top = fmaxf(top, m[r]);
      const float origin = top == -infinity() ? 0.f : top;
      const float rescale = exp2_fast((m[r] - origin) * kLog2e);
      m[r] = top;
      // Where a bias was added, the top goes from it before the score's digits are lost in the sum.
      float distance = biased - origin;
      if (kMaskKind == kMaskAdditive && score != -infinity()) {
        distance =
            score + (load_any(p.mask, mask_of[r] + (i64)key * p.mask_column, p.mask_type) - origin);
      }
      const float weight = exp2_fast(distance * kLog2e);
      l[r] = l[r] * rescale + (half == 0 ? weight : 0.f);
      if (half == 0) weights[(lane & 15) * kRows + r] = weight;
#pragma unroll
      for (int t = 0; t < kTurns; t++) o[r][t] = times(o[r][t], rescale);
    }
    __syncwarp();
#pragma unroll 2
    for (int k = sharer; k < kKeys; k += kSharers) {
      float4 v[kTurns];
#pragma unroll
      for (int t = 0; t < kTurns; t++) {
        const int c = min_of(channel + t * kLanesV, kPiecesV - 1);
        v[t] = *(const float4*)(v_tile + k * kLdV + c * 4);
      }
#pragma unroll
      for (int r = 0; r < kRows; r++) {
#pragma unroll
        for (int t = 0; t < kTurns; t++) add_scaled(o[r][t], weights[k * kRows + r], v[t]);
      }
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

  // The warps' sums lie over everything else.
  __syncthreads();
  float* sums = shared;
#pragma unroll
  for (int r = 0; r < kRows; r++) {
#pragma unroll
    for (int h = 8; h; h >>= 1) l[r] += __shfl_xor_sync(~0u, l[r], h);
    if (lane == 0) {
      top_of[warp][r] = m[r];
      sum_of[warp][r] = l[r];
    }
#pragma unroll
    for (int t = 0; t < kTurns; t++) {
      float4 sum = o[r][t];
#pragma unroll
      for (int h = 16; h >= kLanesV; h >>= 1) {
        sum.x += __shfl_xor_sync(~0u, sum.x, h);
        sum.y += __shfl_xor_sync(~0u, sum.y, h);
        sum.z += __shfl_xor_sync(~0u, sum.z, h);
        sum.w += __shfl_xor_sync(~0u, sum.w, h);
      }
      const int c = channel + t * kLanesV;
      if (sharer == 0 && c < kPiecesV) {
        *(float4*)(sums + (warp * kRows + r) * kDv + c * 4) = sum;
      }
    }
  }
  __syncthreads();
  merge_and_finish<kRows, kWarps>(p, tile, top_of, sum_of, sums, shared);
}

}  // namespace attnk
