// The two matrix products of blocked attention on packed panels, for one target.
//
// A tile is kTileRows query rows by kPanel keys (scores) or channels (output). Panels hold kPanel
// columns side by side for each step of the sum, so that a step is kPanelVectors loads, one
// broadcast a row and kTileRows * kPanelVectors fused multiply-adds into registers.
#if defined(ATTN_SIMD_TILE_INL_H_) == defined(HWY_TARGET_TOGGLE)
#ifdef ATTN_SIMD_TILE_INL_H_
#undef ATTN_SIMD_TILE_INL_H_
#else
#define ATTN_SIMD_TILE_INL_H_
#endif

#include <type_traits>

#include "cpu/simd_load-inl.h"
#include "hwy/highway.h"

HWY_BEFORE_NAMESPACE();
namespace attn::cpu {
namespace HWY_NAMESPACE {

// 16 registers hold 12 sums, 2 columns and a broadcast; 32 registers hold 24 sums.
#if HWY_TARGET == HWY_AVX3 || HWY_TARGET == HWY_NEON
inline constexpr int kTileRows = 12;
#else
inline constexpr int kTileRows = 6;
#endif
inline constexpr int kPanelVectors = 2;
inline constexpr int kPanel = kPanelVectors * kLanes;

// Steps of a score's sum that run in one register before it is added to the score in memory. Short
// runs keep the rounding error of large scores near one unit in the last place.
inline constexpr int kSumRun = 32;

// s[r][c] (+)= sum over k < steps of q[k][r] * panel[k][c], c in the first N vectors of the panel;
// q is packed kTileRows wide.
template <int M, int N, bool kAdd>
HWY_INLINE void score_run(const float* HWY_RESTRICT q, const float* HWY_RESTRICT panel, int steps,
                          float* HWY_RESTRICT s, int64_t s_stride) {
  VF sum[M][N];
#pragma GCC unroll 16
  for (int r = 0; r < M; ++r) {
#pragma GCC unroll 2
    for (int c = 0; c < N; ++c) sum[r][c] = hn::Zero(kF);
  }
#pragma GCC unroll 2
  for (int k = 0; k < steps; ++k) {
    VF column[N];
#pragma GCC unroll 2
    for (int c = 0; c < N; ++c) column[c] = hn::Load(kF, panel + c * kLanes);
#pragma GCC unroll 16
    for (int r = 0; r < M; ++r) {
      const VF row = hn::Set(kF, q[r]);
#pragma GCC unroll 2
      for (int c = 0; c < N; ++c) sum[r][c] = hn::MulAdd(row, column[c], sum[r][c]);
    }
    q += kTileRows;
    panel += kPanel;
  }
#pragma GCC unroll 16
  for (int r = 0; r < M; ++r) {
    float* out = s + r * s_stride;
#pragma GCC unroll 2
    for (int c = 0; c < N; ++c) {
      VF value = sum[r][c];
      if constexpr (kAdd) value = hn::Add(value, hn::Load(kF, out + c * kLanes));
      hn::Store(value, kF, out + c * kLanes);
    }
  }
}

template <int M, int N>
HWY_NOINLINE void score_tile(const float* HWY_RESTRICT q, const float* HWY_RESTRICT panel,
                             int depth, float* HWY_RESTRICT s, int64_t s_stride) {
  int run = depth < kSumRun + kSumRun / 2 ? depth : kSumRun;
  score_run<M, N, false>(q, panel, run, s, s_stride);
  for (int k = run; k < depth; k += run) {
    const int left = depth - k;
    run = left < kSumRun + kSumRun / 2 ? left : kSumRun;
    score_run<M, N, true>(q + k * kTileRows, panel + k * kPanel, run, s, s_stride);
  }
}

// out[r][c] = out[r][c] * factor[r] + sum over k < keys of p[r][k] * panel[k][c]; with kFirst, what
// `out` holds is not read.
template <int M, bool kFirst>
HWY_NOINLINE void output_tile(const float* HWY_RESTRICT p, int64_t p_stride,
                              const float* HWY_RESTRICT panel, int keys, float* HWY_RESTRICT out,
                              int64_t out_stride, const float* HWY_RESTRICT factor) {
  VF sum[M][kPanelVectors];
#pragma GCC unroll 16
  for (int r = 0; r < M; ++r) {
#pragma GCC unroll 2
    for (int c = 0; c < kPanelVectors; ++c) sum[r][c] = hn::Zero(kF);
  }
#pragma GCC unroll 2
  for (int k = 0; k < keys; ++k) {
    VF column[kPanelVectors];
#pragma GCC unroll 2
    for (int c = 0; c < kPanelVectors; ++c) column[c] = hn::Load(kF, panel + c * kLanes);
#pragma GCC unroll 16
    for (int r = 0; r < M; ++r) {
      const VF weight = hn::Set(kF, p[r * p_stride + k]);
#pragma GCC unroll 2
      for (int c = 0; c < kPanelVectors; ++c) {
        sum[r][c] = hn::MulAdd(weight, column[c], sum[r][c]);
      }
    }
    panel += kPanel;
  }
#pragma GCC unroll 16
  for (int r = 0; r < M; ++r) {
    float* to = out + r * out_stride;
#pragma GCC unroll 2
    for (int c = 0; c < kPanelVectors; ++c) {
      VF value = sum[r][c];
      if constexpr (!kFirst) {
        value = hn::MulAdd(hn::Load(kF, to + c * kLanes), hn::Set(kF, factor[r]), value);
      }
      hn::Store(value, kF, to + c * kLanes);
    }
  }
}

// Calls f(std::integral_constant<int, M>()) with the least M that serves `rows`: a tile, or a third
// or two thirds of it.
template <class F>
HWY_INLINE void with_rows(int rows, const F& f) {
  constexpr int kThird = kTileRows / 3;
  if (rows > 2 * kThird) {
    f(std::integral_constant<int, kTileRows>());
  } else if (rows > kThird) {
    f(std::integral_constant<int, 2 * kThird>());
  } else {
    f(std::integral_constant<int, kThird>());
  }
}

// Scores of a tile's first `rows` rows; only the first vector of the panel unless `whole`.
HWY_INLINE void score_rows(int rows, bool whole, const float* q, const float* panel, int depth,
                           float* s, int64_t s_stride) {
  with_rows(rows, [&](auto m) {
    if (whole) {
      score_tile<m(), kPanelVectors>(q, panel, depth, s, s_stride);
    } else {
      score_tile<m(), 1>(q, panel, depth, s, s_stride);
    }
  });
}

HWY_INLINE void output_rows(int rows, bool first, const float* p, int64_t p_stride,
                            const float* panel, int keys, float* out, int64_t out_stride,
                            const float* factor) {
  with_rows(rows, [&](auto m) {
    if (first) {
      output_tile<m(), true>(p, p_stride, panel, keys, out, out_stride, factor);
    } else {
      output_tile<m(), false>(p, p_stride, panel, keys, out, out_stride, factor);
    }
  });
}

}  // namespace HWY_NAMESPACE
}  // namespace attn::cpu
HWY_AFTER_NAMESPACE();

#endif  // include guard per target
