// Prefill in float32 at float32 accuracy: flash attention on the tensor cores with every operand
// split into two TF32 pieces, x = high + low (high: 11 significand bits, low: the rest), and three
// products: high*high + high*low + low*high. What is left out is below 2^-21 of a product.
//
// One block treats BLOCK_M rows of one head, each of the WARPS warps 16 of them; K and V come in
// tiles of BLOCK_N keys by cp.async, one buffer each, as in attention_mma.cu. Fragments (m16n8k8):
// lane l holds of A rows l / 4 (+ 8), columns l % 4 (+ 4); of B row l % 4 (+ 4), column l / 4; of
// the scores columns 2 (l % 4) and + 1. For P V the keys of a step are renamed, so that a lane's
// two scores are its A columns: step key l % 4 is key 2 (l % 4), step key l % 4 + 4 is 2 (l % 4) +
// 1. Rows are padded so that fragment loads hit 32 different banks: by 4 floats.
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

constexpr int kM = BLOCK_M, kN = BLOCK_N, kWarps = WARPS, kThreads = 32 * kWarps;
constexpr int kDp = (kD + 15) / 16 * 16, kDvp = (kDv + 15) / 16 * 16;
constexpr int kLdQ = kDp + 4, kLdV = kDvp + 4;
constexpr int kTilesN = kN / 8, kStepsD = kDp / 8, kTilesDv = kDvp / 8;
constexpr int kTurn = kDp > 192 || kDvp > 192 ? 1 : 2;  // as registers allow
constexpr int kUnroll = BLOCKS > 1 ? 1 : 2;             // as registers allow
constexpr float kLog2e = 1.4426950408889634f;

struct Pieces {
  u32 high, low;
};
ATTN_DEVICE Pieces split(float x) {
  const u32 high = float_to_bits(x) & 0xffffe000u;
  return {high, float_to_bits(x - bits_to_float(high))};
}
// For the queries: rounded instead of cut, so that what is left out of a score has no sign of its
// own. An error that grows with the score would grow with the weight.
ATTN_DEVICE Pieces split_rounded(float x) {
  const u32 high = (float_to_bits(x) + 0x1000u) & 0xffffe000u;
  return {high, float_to_bits(x - bits_to_float(high))};
}
// Not volatile: the compiler may mix the products of different accumulators.
ATTN_DEVICE void mma_tf32(float (&c)[4], u32 a0, u32 a1, u32 a2, u32 a3, u32 b0, u32 b1) {
  asm("mma.sync.aligned.m16n8k8.row.col.f32.tf32.tf32.f32 {%0,%1,%2,%3}, {%4,%5,%6,%7}, {%8,%9}, "
      "{%0,%1,%2,%3};"
      : "+f"(c[0]), "+f"(c[1]), "+f"(c[2]), "+f"(c[3])
      : "r"(a0), "r"(a1), "r"(a2), "r"(a3), "r"(b0), "r"(b1));
}
// The tensor cores' own accumulation cuts instead of rounding, which would add up to a bias over
// many steps: two steps at a time go to a fresh accumulator, the small products first, and a
// rounded sum adds it. kTurn column tiles take turns, for each product waits for the one before it
// in the same accumulator. `b(i, t)` are the two values of step i in tile t.
template <int n, class Values>
ATTN_DEVICE void add_products(float (&c)[n][4], int first, const Pieces (&a)[2][4],
                              const Values& b) {
  float step[kTurn][4] = {};
  Pieces pieces[kTurn][2][2];
#pragma unroll
  for (int t = 0; t < kTurn; t++) {
#pragma unroll
    for (int i = 0; i < 2; i++) {
      const float2 values = b(i, t);
      pieces[t][i][0] = split(values.x);
      pieces[t][i][1] = split(values.y);
    }
  }
#pragma unroll
  for (int i = 0; i < 2; i++) {
#pragma unroll
    for (int t = 0; t < kTurn; t++) {
      mma_tf32(step[t], a[i][0].low, a[i][1].low, a[i][2].low, a[i][3].low, pieces[t][i][0].high,
               pieces[t][i][1].high);
    }
#pragma unroll
    for (int t = 0; t < kTurn; t++) {
      mma_tf32(step[t], a[i][0].high, a[i][1].high, a[i][2].high, a[i][3].high, pieces[t][i][0].low,
               pieces[t][i][1].low);
    }
  }
#pragma unroll
  for (int i = 0; i < 2; i++) {
#pragma unroll
    for (int t = 0; t < kTurn; t++) {
      mma_tf32(step[t], a[i][0].high, a[i][1].high, a[i][2].high, a[i][3].high,
               pieces[t][i][0].high, pieces[t][i][1].high);
    }
  }
#pragma unroll
  for (int t = 0; t < kTurn; t++) {
#pragma unroll
    for (int e = 0; e < 4; e++) c[first + t][e] += step[t][e];
  }
}

extern "C" __global__ void __launch_bounds__(kThreads, BLOCKS)
    attn_attention_float32(const __grid_constant__ AttentionParams p) {
  extern __shared__ __align__(128) float shared[];
  float* sq = shared;
  float* sk = sq + kM * kLdQ;
  float* sv = sk + kN * kLdQ;
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
  const int high = visible_keys(view, position0 + rows - 1).high;
  const int low = visible_keys(view, position0).low;
  const int clean_low = visible_keys(view, position0 + rows - 1).low;
  const int clean_high = visible_keys(view, position0).high;
  const int n_first = low / kN, n_last = (high + kN - 1) / kN - 1;
  // Of the warp's own rows: keys that none of them sees are not multiplied.
  const int warp_low = visible_keys(view, position0 + warp * 16).low;
  const int warp_high = visible_keys(view, position0 + warp * 16 + 15).high;

  const float* kbase =
      (const float*)p.key.data + b * p.key.batch + hk * p.key.head + span.key * p.key.row;
  const float* vbase =
      (const float*)p.value.data + b * p.value.batch + hk * p.value.head + span.key * p.value.row;
  const float* qbase =
      (const float*)p.query.data + b * p.query.batch + h * p.query.head + span.query * p.query.row;
  const bool rotates = kQueryTransform && p.query_transform.in_pieces;
  if (!rotates)
    fetch_padded<kThreads, kM, kD, kDp, kLdQ>(sq, qbase + m0 * p.query.row, p.query.row, 0, rows);
  // Tiles that the mask hides wholly are passed over.
  const i64 mask_base = mask_row_offset(p, b, h, m0);
  const auto next = [&](int from, bool& shown) {
    return next_tile<kMaskKind, kThreads, kM, kN>(p, mask_base, rows, from, n_first, shown);
  };
  bool shown;
  int n = next(n_last, shown);
  if (n >= n_first) fetch_padded<kThreads, kN, kD, kDp, kLdQ>(sk, kbase, p.key.row, n * kN, total);
  copy_commit();
  if (rotates) {
    constexpr int pieces = kDp / 4;
    for (int i = threadIdx.x; i < kM * pieces; i += kThreads) {
      const int row = i / pieces, c = i % pieces;
      if (row >= rows || c * 4 >= kD) *(float4*)(sq + row * kLdQ + c * 4) = float4{0, 0, 0, 0};
    }
    rotate_rows<kTypeFloat32, 2>(p.query_transform, qbase + m0 * p.query.row, p.query.row, rows, kD,
                                 b, m0, position0, threadIdx.x, kThreads,
                                 [&](int row, int piece, const uint4& value) {
                                   *(uint4*)(sq + row * kLdQ + piece * 4) = value;
                                 });
  } else if constexpr (kQueryTransform) {
    copy_wait<0>();
    __syncthreads();
    for (int r = warp; r < rows; r += kWarps) {
      transform_row<kTypeFloat32>(p.query_transform, sq + r * kLdQ, kD, b, m0 + r, position0 + r);
    }
  }

  float o[kTilesDv][4] = {};
  float m[2] = {-infinity(), -infinity()}, l[2] = {0.f, 0.f};
  float origins[2] = {-infinity(), -infinity()};
  const int row0 = warp * 16 + lane / 4;
  const float* q_at = sq + row0 * kLdQ + (lane & 3);
  const float* k_at = sk + (lane / 4) * kLdQ + (lane & 3);
  const float* v_at = sv + 2 * (lane & 3) * kLdV + lane / 4;

  while (n >= n_first) {
    const int j0 = n * kN;
    copy_wait<0>();
    __syncthreads();
    fetch_padded<kThreads, kN, kDv, kDvp, kLdV>(sv, vbase, p.value.row, j0, total);
    copy_commit();
    float s[kTilesN][4] = {};
    auto query_piece = [&](int d, Pieces(&a)[4]) {
      a[0] = split_rounded(q_at[d * 8]);
      a[1] = split_rounded(q_at[8 * kLdQ + d * 8]);
      a[2] = split_rounded(q_at[d * 8 + 4]);
      a[3] = split_rounded(q_at[8 * kLdQ + d * 8 + 4]);
    };
    const bool sees = j0 < warp_high && j0 + kN > warp_low;
    if (sees) {
#pragma unroll kUnroll
      for (int d = 0; d < kStepsD; d += 2) {
        Pieces a[2][4];
        query_piece(d, a[0]);
        query_piece(d + 1, a[1]);
#pragma unroll
        for (int j = 0; j < kTilesN; j += kTurn) {
          add_products(s, j, a, [&](int i, int t) {
            const float* k = k_at + (j + t) * 8 * kLdQ + (d + i) * 8;
            return float2{k[0], k[4]};
          });
        }
      }
    }
    copy_wait<0>();
    __syncthreads();
    const bool inside = shown && j0 >= clean_low && j0 + kN <= clean_high;
    n = next(n - 1, shown);
    if (n >= n_first)
      fetch_padded<kThreads, kN, kD, kDp, kLdQ>(sk, kbase, p.key.row, n * kN, total);
    copy_commit();

    if (!sees) continue;
    float tops[2] = {m[0], m[1]};
#pragma unroll
    for (int j = 0; j < kTilesN; j++) {
#pragma unroll
      for (int e = 0; e < 4; e++) {
        s[j][e] *= p.scale;
        if constexpr (kSoftcap) s[j][e] = p.softcap * tanhf(s[j][e] / p.softcap);
      }
    }
    if (inside) {
#pragma unroll
      for (int j = 0; j < kTilesN; j++) {
#pragma unroll
        for (int e = 0; e < 4; e++) tops[e / 2] = fmaxf(tops[e / 2], s[j][e]);
      }
    } else {
#pragma unroll
      for (int r = 0; r < 2; r++) {
        const int row = row0 + r * 8;
        const Interval seen = visible_keys(view, position0 + row);
        const i64 base = mask_row_offset(p, b, h, min_of((i64)m0 + row, p.query_rows - 1));
#pragma unroll
        for (int j = 0; j < kTilesN; j++) {
#pragma unroll
          for (int e = 0; e < 2; e++) {
            const int key = j0 + j * 8 + (lane & 3) * 2 + e;
            bool visible = key >= seen.low && key < seen.high;
            float& x = s[j][2 * r + e];
            float biased = x;
            if (visible) visible = apply_mask<kMaskKind>(p, base, key, biased);
            if (!visible) x = biased = -infinity();
            tops[r] = fmaxf(tops[r], biased);
          }
        }
      }
    }
#pragma unroll
    for (int r = 0; r < 2; r++) {
      const i64 base = mask_row_offset(p, b, h, min_of((i64)m0 + row0 + r * 8, p.query_rows - 1));
      float top = tops[r];
      top = fmaxf(top, __shfl_xor_sync(~0u, top, 1));
      top = fmaxf(top, __shfl_xor_sync(~0u, top, 2));
      // What a row's sums are relative to, in units of base 2, is rounded (origin), but is the same
      // number in every use, so that its rounding cancels in the quotient. With a bias it is the
      // exact top.
      const float finite_top = top == -infinity() ? 0.f : top, origin = finite_top * kLog2e;
      const float rescale = exp2_fast(kMaskKind == kMaskAdditive ? (m[r] - finite_top) * kLog2e
                                                                 : origins[r] - origin);
      m[r] = top;
      origins[r] = top == -infinity() ? top : origin;
      float sum = 0.f;
#pragma unroll
      for (int j = 0; j < kTilesN; j++) {
#pragma unroll
        for (int e = 0; e < 2; e++) {
          float x = s[j][2 * r + e];
          if (kMaskKind == kMaskAdditive && inside) {
            x = exp2_fast((x - finite_top) * kLog2e);
          } else if (kMaskKind == kMaskAdditive && x != -infinity()) {
            // Of the sum with a large bias, digits of the score would be lost: the row's top goes
            // from the bias first.
            const i64 key = j0 + j * 8 + (lane & 3) * 2 + e;
            const float bias = load_any(p.mask, base + key * p.mask_column, p.mask_type);
            x = exp2_fast((x + (bias - finite_top)) * kLog2e);
          } else {
            x = exp2_fast(fmaf(x, kLog2e, -origin));
          }
          s[j][2 * r + e] = x;
          sum += x;
        }
      }
      l[r] = l[r] * rescale + sum;
#pragma unroll
      for (int j = 0; j < kTilesDv; j++) {
        o[j][2 * r] *= rescale;
        o[j][2 * r + 1] *= rescale;
      }
    }
#pragma unroll
    for (int k = 0; k < kTilesN; k += 2) {
      const Pieces a[2][4] = {
          {split(s[k][0]), split(s[k][2]), split(s[k][1]), split(s[k][3])},
          {split(s[k + 1][0]), split(s[k + 1][2]), split(s[k + 1][1]), split(s[k + 1][3])}};
#pragma unroll
      for (int j = 0; j < kTilesDv; j += kTurn) {
        add_products(o, j, a, [&](int i, int t) {
          const float* v = v_at + (k + i) * 8 * kLdV + (j + t) * 8;
          return float2{v[0], v[kLdV]};
        });
      }
    }
  }

  copy_wait<0>();
  const float sink =
      kSinkKind == kSinkPerHead ? load_element<kTypeFloat32>(p.sink, h * p.sink_stride) : 0.f;
  float* out =
      (float*)p.output.data + b * p.output.batch + h * p.output.head + span.query * p.output.row;
#pragma unroll
  for (int r = 0; r < 2; r++) {
    float sum = l[r];
    sum += __shfl_xor_sync(~0u, sum, 1);
    sum += __shfl_xor_sync(~0u, sum, 2);
    const int row = row0 + r * 8;
    const bool empty = m[r] == -infinity() && sum == 0.f;
    if (kHasLse && (lane & 3) == 0 && row < rows) {
      ((float*)p.lse.data)[b * p.lse.batch + h * p.lse.head + (span.query + m0 + row) * p.lse.row] =
          empty ? -infinity() : m[r] + logf(sum);
    }
    float factor = 1.f;
    if (kSinkKind != kSinkNone && !empty) {
      const float joint = fmaxf(m[r], sink);
      factor = expf(m[r] - joint);
      sum = sum * factor + expf(sink - joint);
    }
    const float inverse = factor / sum;
    if (row < rows) {
#pragma unroll
      for (int j = 0; j < kTilesDv; j++) {
        const int c = j * 8 + (lane & 3) * 2;
        if (c < kDv) {
          float2 pair;
          pair.x = empty ? 0.f : o[j][2 * r] * inverse;
          pair.y = empty ? 0.f : o[j][2 * r + 1] * inverse;
          *(float2*)(out + (i64)(m0 + row) * p.output.row + c) = pair;
        }
      }
    }
  }
}

}  // namespace attnk
