// The two products of decoding, straight from the cache's rows, for one target.
//
// A key row is loaded (and widened) once for up to four query rows. Scores are sums along the
// channels in vector lanes; four of them are folded to four adjacent floats at a time. Sums of
// weighted values keep a tile of channels of all rows in registers while they walk along the keys.
#if defined(ATTN_SIMD_DOT_INL_H_) == defined(HWY_TARGET_TOGGLE)
#ifdef ATTN_SIMD_DOT_INL_H_
#undef ATTN_SIMD_DOT_INL_H_
#else
#define ATTN_SIMD_DOT_INL_H_
#endif

#include "cpu/simd_load-inl.h"
#include "hwy/highway.h"

HWY_BEFORE_NAMESPACE();
namespace attn::cpu {
namespace HWY_NAMESPACE {

#if HWY_TARGET == HWY_AVX3 || HWY_TARGET == HWY_NEON
inline constexpr bool kManyRegisters = true;
#else
inline constexpr bool kManyRegisters = false;
#endif

// In each block of four lanes: (a0 + a2, b0 + b2, a1 + a3, b1 + b3).
HWY_INLINE VF fold_pair(VF a, VF b) {
  return hn::Add(hn::InterleaveLower(kF, a, b), hn::InterleaveUpper(kF, a, b));
}

// The four sums over all lanes whose halves are two folded pairs.
HWY_INLINE hn::Vec<DF4> fold_four(VF ab, VF cd) {
  constexpr hn::RepartitionToWide<DF> wide{};
  const auto x = hn::BitCast(wide, ab);
  const auto y = hn::BitCast(wide, cd);
  const VF sums = hn::Add(hn::BitCast(kF, hn::InterleaveLower(wide, x, y)),
                          hn::BitCast(kF, hn::InterleaveUpper(wide, x, y)));
  constexpr DF4 d4{};
#if HWY_MAX_BYTES == 64
  constexpr hn::Half<DF> d8{};
  const auto half = hn::Add(hn::LowerHalf(d8, sums), hn::UpperHalf(d8, sums));
  return hn::Add(hn::LowerHalf(d4, half), hn::UpperHalf(d4, half));
#elif HWY_MAX_BYTES == 32
  return hn::Add(hn::LowerHalf(d4, sums), hn::UpperHalf(d4, sums));
#else
  (void)d4;
  return sums;
#endif
}

// sum[r][i] += q[r] . row[i] over the channels, lane by lane.
template <int R, int K, class E>
HWY_INLINE void dot_keys(E e, const float* HWY_RESTRICT q, int64_t q_stride,
                         const typename E::Raw* const* row, int channels, VF (&sum)[R][K]) {
#pragma GCC unroll 4
  for (int r = 0; r < R; ++r) {
#pragma GCC unroll 4
    for (int i = 0; i < K; ++i) sum[r][i] = hn::Zero(kF);
  }
  int c = 0;
  for (; c + kLanes <= channels; c += kLanes) {
    VF key[K];
#pragma GCC unroll 4
    for (int i = 0; i < K; ++i) key[i] = load(e, kF, row[i] + c);
#pragma GCC unroll 4
    for (int r = 0; r < R; ++r) {
      const VF query = hn::Load(kF, q + r * q_stride + c);
#pragma GCC unroll 4
      for (int i = 0; i < K; ++i) sum[r][i] = hn::MulAdd(query, key[i], sum[r][i]);
    }
  }
  if (c < channels) {
    for (int i = 0; i < K; ++i) {
      const VF key = load_some(e, kF, row[i] + c, static_cast<size_t>(channels - c));
      for (int r = 0; r < R; ++r) {
        sum[r][i] = hn::MulAdd(hn::Load(kF, q + r * q_stride + c), key, sum[r][i]);
      }
    }
  }
}

// s[r][0..3] = q[r] . row[0..3]; q rows are aligned and padded with zeros to whole vectors.
template <int R, class E>
HWY_INLINE void score_four_keys(E e, const float* HWY_RESTRICT q, int64_t q_stride,
                                const typename E::Raw* const* row, int channels,
                                float* HWY_RESTRICT s, int64_t s_stride) {
  constexpr DF4 d4{};
  if constexpr (kManyRegisters || R <= 2) {
    VF sum[R][4];
    dot_keys<R, 4>(e, q, q_stride, row, channels, sum);
#pragma GCC unroll 4
    for (int r = 0; r < R; ++r) {
      hn::Store(fold_four(fold_pair(sum[r][0], sum[r][1]), fold_pair(sum[r][2], sum[r][3])), d4,
                s + r * s_stride);
    }
  } else {
    VF sum[R][2], first[R];
    dot_keys<R, 2>(e, q, q_stride, row, channels, sum);
#pragma GCC unroll 4
    for (int r = 0; r < R; ++r) first[r] = fold_pair(sum[r][0], sum[r][1]);
    dot_keys<R, 2>(e, q, q_stride, row + 2, channels, sum);
#pragma GCC unroll 4
    for (int r = 0; r < R; ++r) {
      hn::Store(fold_four(first[r], fold_pair(sum[r][0], sum[r][1])), d4, s + r * s_stride);
    }
  }
}

// out[r][c..] = out[r][c..] * factor[r] + sum over j < keys of weight[r][j] * row[j][c..], for V
// vectors of channels. `left` channels exist from c on.
template <int R, int V, bool kPartial, class E>
HWY_INLINE void add_value_tile(E e, const float* HWY_RESTRICT weight, int64_t weight_stride,
                               const typename E::Raw* const* row, int keys, int c, int left,
                               float* HWY_RESTRICT out, int64_t out_stride, const float* factor) {
  VF sum[R][V];
#pragma GCC unroll 4
  for (int r = 0; r < R; ++r) {
#pragma GCC unroll 8
    for (int v = 0; v < V; ++v) sum[r][v] = hn::Zero(kF);
  }
  for (int j = 0; j < keys; ++j) {
    const typename E::Raw* from = row[j] + c;
    VF value[V];
#pragma GCC unroll 8
    for (int v = 0; v < V; ++v) {
      if constexpr (kPartial) {
        value[v] = load_some(e, kF, from, static_cast<size_t>(left));
      } else {
        value[v] = load(e, kF, from + v * kLanes);
      }
    }
#pragma GCC unroll 4
    for (int r = 0; r < R; ++r) {
      const VF w = hn::Set(kF, weight[r * weight_stride + j]);
#pragma GCC unroll 8
      for (int v = 0; v < V; ++v) sum[r][v] = hn::MulAdd(w, value[v], sum[r][v]);
    }
  }
#pragma GCC unroll 4
  for (int r = 0; r < R; ++r) {
    const VF f = hn::Set(kF, factor[r]);
    float* to = out + r * out_stride + c;
#pragma GCC unroll 8
    for (int v = 0; v < V; ++v) {
      hn::Store(hn::MulAdd(hn::Load(kF, to + v * kLanes), f, sum[r][v]), kF, to + v * kLanes);
    }
  }
}

// The same for all channels. `out` rows are aligned and padded to whole vectors. `after(c)` is
// called when the channels below c are done.
template <int R, class E, class After>
HWY_INLINE void add_values(E e, const float* HWY_RESTRICT weight, int64_t weight_stride,
                           const typename E::Raw* const* row, int keys, int channels,
                           float* HWY_RESTRICT out, int64_t out_stride, const float* factor,
                           const After& after) {
  constexpr int kVectors = kManyRegisters || R <= 2 ? 4 : 2;
  int c = 0;
  for (; c + kVectors * kLanes <= channels; c += kVectors * kLanes) {
    add_value_tile<R, kVectors, false>(e, weight, weight_stride, row, keys, c, 0, out, out_stride,
                                       factor);
    after(c + kVectors * kLanes);
  }
  for (; c + kLanes <= channels; c += kLanes) {
    add_value_tile<R, 1, false>(e, weight, weight_stride, row, keys, c, 0, out, out_stride, factor);
    after(c + kLanes);
  }
  if (c < channels) {
    add_value_tile<R, 1, true>(e, weight, weight_stride, row, keys, c, channels - c, out,
                               out_stride, factor);
    after(channels);
  }
}

}  // namespace HWY_NAMESPACE
}  // namespace attn::cpu
HWY_AFTER_NAMESPACE();

#endif  // include guard per target
