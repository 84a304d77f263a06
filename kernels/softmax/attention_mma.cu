// Prefill: flash attention on the tensor cores (mma.sync m16n8k16), float16 and bfloat16.
//
// One block treats BLOCK_M query rows of one head. WARPS warps own BLOCK_M / WARPS rows each (one
// or two tiles of 16), so that a warp's softmax needs no other warp. K and V come in tiles of
// BLOCK_N keys by cp.async, one buffer each: K(n+1) is fetched while P(n)V(n) runs and V(n) while Q
// K(n) runs. Tiles are walked from the last visible one down, so the masked ones come first.
//
// Shared memory rows are padded by 16 bytes: (row bytes / 16) is odd, so the eight rows of an
// ldmatrix tile fall into different banks. Fragments, per 16x8 tile of scores: lane l holds rows
// l / 4 and l / 4 + 8, columns 2 (l % 4) and + 1; two neighbouring score tiles are the A fragment
// of one 16-key step of P V.
#include "common/device.h"
#include "common/faults.h"
#include "common/mma.h"
#include "common/padded_tile.h"
#include "common/rotary_rows.h"
#include "common/visibility.h"
#include "softmax/mask_tiles.h"
#include "softmax/packed.h"
#include "softmax/variant.h"

namespace attnk {

constexpr int kDp = (kD + 15) / 16 * 16, kDvp = (kDv + 15) / 16 * 16;  // padded to a step
constexpr int kM = BLOCK_M, kN = BLOCK_N, kWarps = WARPS, kThreads = 32 * kWarps;
constexpr int kRowsPerWarp = kM / kWarps, kTilesM = kRowsPerWarp / 16;
constexpr int kTilesN = kN / 8, kStepsD = kDp / 16, kTilesDv = kDvp / 8;
constexpr int kLdK = kDp + 8, kLdV = kDvp + 8, kLdQ = (kDp > kDvp ? kDp : kDvp) + 8;
// The rounding of the weights averages out over an output of this many rows; fewer get a second
// product with what the rounding left out.
constexpr int kAveragingRows = 32;
constexpr float kLog2e = 1.4426950408889634f, kLn2 = 0.6931471805599453f;

extern "C" __global__ void __launch_bounds__(kThreads)
    attn_attention_mma(const __grid_constant__ AttentionParams p) {
  extern __shared__ __align__(128) u16 shared[];
  u16* sq = shared;
  u16* sk = sq + kM * kLdQ;
  u16* sv = sk + kN * kLdK;
  const int lane = threadIdx.x & 31, warp = threadIdx.x >> 5;
  wait_for_previous();
  const TilePlace place = tile_place<kM>(p, blockIdx.x);
  const int b = place.b, h = place.h, hk = h / (int)(p.q_heads / p.kv_heads);
  const int m0 = place.m0;
  if (p.last && blockIdx.x == 0 && threadIdx.x == 0) end_call(p.faults, p.record);
  if (!place.live) return;
  const RowLengths lengths = p.rows[b];
  const RowSpan span = span_of(p, lengths);
  const bool live = lengths.live && !p.faults->call_poisoned;

  const int rows = min_of(kM, span.query_rows - m0);
  const int total = live ? lengths.total : 0;
  const int position0 = lengths.query_start + m0;
  const Visibility view = visibility_of(p, total);
  // Keys that any row of the block sees: intervals move right with the row.
  const int high = visible_keys(view, position0 + rows - 1).high;
  const int low = visible_keys(view, position0).low;
  // Tiles inside what the last and the first row see are clean: every key visible to every row.
  const int clean_low = visible_keys(view, position0 + rows - 1).low;
  const int clean_high = visible_keys(view, position0).high;
  const int n_first = low / kN, n_last = (high + kN - 1) / kN - 1;

  const u16* kbase =
      (const u16*)p.key.data + b * p.key.batch + hk * p.key.head + span.key * p.key.row;
  const u16* vbase =
      (const u16*)p.value.data + b * p.value.batch + hk * p.value.head + span.key * p.value.row;
  const u16* qbase =
      (const u16*)p.query.data + b * p.query.batch + h * p.query.head + span.query * p.query.row;

  constexpr int query_pieces = kDp / 8;
  if (kQueryTransform && p.query_transform.in_pieces) {
    for (int i = threadIdx.x; i < kM * query_pieces; i += kThreads) {
      const int row = i / query_pieces, c = i % query_pieces;
      if (row >= rows || c * 8 >= kD) *(uint4*)(sq + row * kLdQ + c * 8) = uint4{0, 0, 0, 0};
    }
    rotate_rows<kType, 2>(p.query_transform, qbase + m0 * p.query.row, p.query.row, rows, kD, b, m0,
                          position0, threadIdx.x, kThreads,
                          [&](int row, int piece, const uint4& value) {
                            *(uint4*)(sq + row * kLdQ + piece * 8) = value;
                          });
  } else if constexpr (kQueryTransform) {
    // One warp a row, through a float buffer that lies over the K tile.
    float* buffer = (float*)sk + warp * kDp;
    for (int r = warp * kRowsPerWarp; r < (warp + 1) * kRowsPerWarp; r++) {
      for (int c = lane; c < kDp; c += 32) {
        buffer[c] =
            r < rows && c < kD ? load_element<kType>(qbase, (i64)(m0 + r) * p.query.row + c) : 0.f;
      }
      __syncwarp();
      if (r < rows) {
        transform_row<kType>(p.query_transform, buffer, kD, b, m0 + r, position0 + r);
      }
      for (int c = lane; c < kDp; c += 32) store_element<kType>(sq, r * kLdQ + c, buffer[c]);
      __syncwarp();
    }
    __syncthreads();
  } else {
    fetch_padded<kThreads, kM, kD, kDp, kLdQ>(sq, qbase, p.query.row, m0, m0 + rows);
  }
  // Tiles that the mask hides wholly are passed over.
  const i64 mask_base = mask_row_offset(p, b, h, m0);
  const auto next = [&](int from, bool& shown) {
    return next_tile<kMaskKind, kThreads, kM, kN>(p, mask_base, rows, from, n_first, shown);
  };
  bool shown;
  int n = next(n_last, shown);
  const bool no_tile = n < n_first;
  if (!no_tile) fetch_padded<kThreads, kN, kD, kDp, kLdK>(sk, kbase, p.key.row, n * kN, total);
  copy_commit();

  float o[kTilesM][kTilesDv][4] = {};
  float m[kTilesM][2], l[kTilesM][2];
#pragma unroll
  for (int t = 0; t < kTilesM; t++) {
    m[t][0] = m[t][1] = -infinity();
    l[t][0] = l[t][1] = 0.f;
  }
  const int row0 = warp * kRowsPerWarp + lane / 4;  // the lane's first row in the block
  // Scores are kept as products while nothing but the scale applies (kPlainScale: it is positive);
  // to_log2 brings them to base 2 inside the exponential's own multiply-add.
  constexpr bool products = kMaskKind != kMaskAdditive && !kSoftcap && kPlainScale;
  const float to_log2 = products ? p.scale * kLog2e : kLog2e;
  // ldmatrix addresses: A tiles (rows 0-15 x 16), B tiles of K (16 keys x 16 channels).
  const u32 a_address =
      shared_address(sq + (warp * kRowsPerWarp + (lane & 15)) * kLdQ + (lane >> 4) * 8);
  const u32 k_address =
      shared_address(sk + ((lane & 7) + (lane >> 4) * 8) * kLdK + ((lane >> 3) & 1) * 8);
  const u32 v_address = shared_address(sv + (lane & 15) * kLdV + (lane >> 4) * 8);

  while (n >= n_first) {
    const int j0 = n * kN;
    copy_wait<0>();
    __syncthreads();  // K(n) is there; everyone is done with V(n + 1)
    fetch_padded<kThreads, kN, kDv, kDvp, kLdV>(sv, vbase, p.value.row, j0, total);
    copy_commit();

    float s[kTilesM][kTilesN][4] = {};
#pragma unroll
    for (int d = 0; d < kStepsD; d++) {
      u32 a[kTilesM][4];
#pragma unroll
      for (int t = 0; t < kTilesM; t++) ldmatrix_x4(a[t], a_address + (t * 16 * kLdQ + d * 16) * 2);
#pragma unroll
      for (int j = 0; j < kTilesN / 2; j++) {
        u32 k[4];
        ldmatrix_x4(k, k_address + (j * 16 * kLdK + d * 16) * 2);
#pragma unroll
        for (int t = 0; t < kTilesM; t++) {
          mma_16x8x16<kType>(s[t][2 * j], a[t], k[0], k[1]);
          mma_16x8x16<kType>(s[t][2 * j + 1], a[t], k[2], k[3]);
        }
      }
    }
    copy_wait<0>();
    __syncthreads();  // V(n) is there; everyone is done with K(n)
    const bool shown_now = shown, inside = shown && j0 >= clean_low && j0 + kN <= clean_high;
    const bool seen_wholly = products && inside;
    n = next(n - 1, shown);
    if (n >= n_first)
      fetch_padded<kThreads, kN, kD, kDp, kLdK>(sk, kbase, p.key.row, n * kN, total);
    copy_commit();

#pragma unroll
    for (int t = 0; t < kTilesM; t++) {
      if (!seen_wholly) {
#pragma unroll
        for (int r = 0; r < 2; r++) {
          const int row = row0 + t * 16 + r * 8;
          const Interval seen = visible_keys(view, position0 + row);
          const i64 base = mask_row_offset(p, b, h, min_of((i64)m0 + row, p.query_rows - 1));
#pragma unroll
          for (int j = 0; j < kTilesN; j++) {
#pragma unroll
            for (int e = 0; e < 2; e++) {
              const int key = j0 + j * 8 + (lane & 3) * 2 + e;
              bool visible = inside || (key >= seen.low && key < seen.high);
              float x = s[t][j][2 * r + e];
              if constexpr (!products) {
                x *= p.scale;
                if constexpr (kSoftcap) x = p.softcap * tanhf(x / p.softcap);
              }
              if (visible && !shown_now) visible = apply_mask<kMaskKind>(p, base, key, x);
              s[t][j][2 * r + e] = visible ? x : -infinity();
            }
          }
        }
      }
#pragma unroll
      for (int r = 0; r < 2; r++) {
        float top = -infinity();
#pragma unroll
        for (int j = 0; j < kTilesN; j++) {
          top = fmaxf(top, fmaxf(s[t][j][2 * r], s[t][j][2 * r + 1]));
        }
        top = fmaxf(top, __shfl_xor_sync(~0u, top, 1));
        top = fmaxf(top, __shfl_xor_sync(~0u, top, 2));
        top = fmaxf(m[t][r], top * to_log2);
        const float base = top == -infinity() ? 0.f : top;
        const float rescale = exp2_fast(m[t][r] - base);
        m[t][r] = top;
        float sum = 0.f;
#pragma unroll
        for (int j = 0; j < kTilesN; j++) {
#pragma unroll
          for (int e = 0; e < 2; e++) {
            float x = exp2_fast(fmaf(s[t][j][2 * r + e], to_log2, -base));
            s[t][j][2 * r + e] = x;
            sum += x;
          }
        }
        l[t][r] = l[t][r] * rescale + sum;
#pragma unroll
        for (int j = 0; j < kTilesDv; j++) {
          o[t][j][2 * r] *= rescale;
          o[t][j][2 * r + 1] *= rescale;
        }
      }
    }
    // Adds P V for 16 keys: with the weights rounded, or with what that left out.
    auto add_values = [&](int k, bool rest) {
      u32 a[kTilesM][4];
#pragma unroll
      for (int t = 0; t < kTilesM; t++) {
#pragma unroll
        for (int i = 0; i < 4; i++) {
          const float x = s[t][2 * k + i / 2][i % 2 * 2], y = s[t][2 * k + i / 2][i % 2 * 2 + 1];
          a[t][i] = pack2<kType>(x, y);
          if (rest) a[t][i] = pack2_rest<kType>(a[t][i], x, y);
        }
      }
#pragma unroll
      for (int j = 0; j < kTilesDv / 2; j++) {
        u32 v[4];
        ldmatrix_x4_trans(v, v_address + (k * 16 * kLdV + j * 16) * 2);
#pragma unroll
        for (int t = 0; t < kTilesM; t++) {
          mma_16x8x16<kType>(o[t][2 * j], a[t], v[0], v[1]);
          mma_16x8x16<kType>(o[t][2 * j + 1], a[t], v[2], v[3]);
        }
      }
    };
#pragma unroll
    for (int k = 0; k < kN / 16; k++) add_values(k, false);
    if (span.query_rows < kAveragingRows) {
#pragma unroll
      for (int k = 0; k < kN / 16; k++) add_values(k, true);
    }
  }

  // Without a tile, nobody has waited for the copies of the query rows yet.
  copy_wait<0>();
  if (no_tile) __syncthreads();
  // Denominators; then rows go through the warp's own part of the Q tile and out in 16-byte pieces.
  const float sink =
      kSinkKind == kSinkPerHead ? load_element<kType>(p.sink, h * p.sink_stride) * kLog2e : 0.f;
  __syncwarp();
#pragma unroll
  for (int t = 0; t < kTilesM; t++) {
#pragma unroll
    for (int r = 0; r < 2; r++) {
      float sum = l[t][r];
      sum += __shfl_xor_sync(~0u, sum, 1);
      sum += __shfl_xor_sync(~0u, sum, 2);
      const int row = row0 + t * 16 + r * 8;
      const bool empty = m[t][r] == -infinity() && sum == 0.f;
      if (kHasLse && (lane & 3) == 0 && row < rows) {
        float value = empty ? -infinity() : m[t][r] * kLn2 + logf(sum);
        ((float*)
             p.lse.data)[b * p.lse.batch + h * p.lse.head + (span.query + m0 + row) * p.lse.row] =
            value;
      }
      float factor = 1.f;
      if (kSinkKind != kSinkNone && !empty) {
        const float top = fmaxf(m[t][r], sink);
        factor = exp2_fast(m[t][r] - top);
        sum = sum * factor + exp2_fast(sink - top);
      }
      const float inverse = empty ? 0.f : factor / sum;
#pragma unroll
      for (int j = 0; j < kTilesDv; j++) {
        const float x = empty ? 0.f : o[t][j][2 * r] * inverse;
        const float y = empty ? 0.f : o[t][j][2 * r + 1] * inverse;
        *(u32*)(sq + row * kLdQ + j * 8 + (lane & 3) * 2) = pack2<kType>(x, y);
      }
    }
  }
  __syncwarp();
  u16* out =
      (u16*)p.output.data + b * p.output.batch + h * p.output.head + span.query * p.output.row;
  constexpr int chunks = (kDv + 7) / 8;
  for (int i = lane; i < kRowsPerWarp * chunks; i += 32) {
    const int row = warp * kRowsPerWarp + i / chunks, c = i % chunks;
    if (row < rows) {
      *(uint4*)(out + (i64)(m0 + row) * p.output.row + c * 8) =
          *(const uint4*)(sq + row * kLdQ + c * 8);
    }
  }
}

}  // namespace attnk
