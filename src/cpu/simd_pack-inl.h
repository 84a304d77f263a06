// Packs key and value rows of any type into float panels (simd_tile-inl.h), for one target.
#if defined(ATTN_SIMD_PACK_INL_H_) == defined(HWY_TARGET_TOGGLE)
#ifdef ATTN_SIMD_PACK_INL_H_
#undef ATTN_SIMD_PACK_INL_H_
#else
#define ATTN_SIMD_PACK_INL_H_
#endif

#include "cpu/simd_load-inl.h"
#include "cpu/simd_rows.h"
#include "cpu/simd_tile-inl.h"
#include "hwy/highway.h"

HWY_BEFORE_NAMESPACE();
namespace attn::cpu {
namespace HWY_NAMESPACE {

// Keys that are transposed together: a vector of at most eight.
using DGroup = hn::CappedTag<float, 8>;
inline constexpr int kGroup = static_cast<int>(HWY_MIN(kLanes, 8));

// In each block of four lanes, out[i] holds element i of a, b, c, d.
template <class D, class V = hn::Vec<D>>
HWY_INLINE void transpose_blocks(D d, V a, V b, V c, V e, V* out) {
  constexpr hn::RepartitionToWide<D> wide{};
  const auto ab_low = hn::BitCast(wide, hn::InterleaveLower(d, a, b));
  const auto ce_low = hn::BitCast(wide, hn::InterleaveLower(d, c, e));
  const auto ab_high = hn::BitCast(wide, hn::InterleaveUpper(d, a, b));
  const auto ce_high = hn::BitCast(wide, hn::InterleaveUpper(d, c, e));
  out[0] = hn::BitCast(d, hn::InterleaveLower(wide, ab_low, ce_low));
  out[1] = hn::BitCast(d, hn::InterleaveUpper(wide, ab_low, ce_low));
  out[2] = hn::BitCast(d, hn::InterleaveLower(wide, ab_high, ce_high));
  out[3] = hn::BitCast(d, hn::InterleaveUpper(wide, ab_high, ce_high));
}

// tile[k][r] = channel k of row r, for kTileRows rows that are `stride` floats apart and padded
// with zeros to whole vectors. Up to three floats behind the tile are overwritten.
HWY_INLINE void pack_query_tile(const float* rows, int64_t stride, int channels, float* tile) {
  constexpr DF4 d{};
  constexpr int kFours = (kTileRows + 3) / 4;
  for (int k = 0; k < channels; k += 4) {
    hn::Vec<DF4> out[kFours][4];
#pragma GCC unroll 3
    for (int g = 0; g < kFours; ++g) {
      hn::Vec<DF4> in[4];
#pragma GCC unroll 4
      for (int i = 0; i < 4; ++i) {
        const int r = g * 4 + i;
        in[i] = r < kTileRows ? hn::LoadU(d, rows + r * stride + k) : hn::Zero(d);
      }
      transpose_blocks(d, in[0], in[1], in[2], in[3], out[g]);
    }
    // In ascending order: what the last four of a step write too much, the next step mends.
#pragma GCC unroll 4
    for (int i = 0; i < 4; ++i) {
      if (k + i >= channels) break;
#pragma GCC unroll 3
      for (int g = 0; g < kFours; ++g) {
        hn::StoreU(out[g][i], d, tile + (k + i) * kTileRows + g * 4);
      }
    }
  }
}

// kGroup channels of kGroup keys from channel `at` on, to channel-major order, `stride` floats a
// channel. Only `left` channels exist and are written.
template <class E>
HWY_INLINE void transpose_group(E e, const typename E::Raw* const* row, int at, int left, float* to,
                                int64_t stride) {
  constexpr DGroup d{};
  hn::Vec<DGroup> in[kGroup], out[kGroup];
#pragma GCC unroll 8
  for (int i = 0; i < kGroup; ++i) in[i] = load_upto(e, d, row[i] + at, left);
  transpose_blocks(d, in[0], in[1], in[2], in[3], out);
#if HWY_MAX_BYTES >= 32
  hn::Vec<DGroup> low[4], high[4];
  for (int i = 0; i < 4; ++i) low[i] = out[i];
  transpose_blocks(d, in[4], in[5], in[6], in[7], high);
#pragma GCC unroll 4
  for (int i = 0; i < 4; ++i) {
    out[i] = hn::ConcatLowerLower(d, high[i], low[i]);
    out[i + 4] = hn::ConcatUpperUpper(d, high[i], low[i]);
  }
#endif
#pragma GCC unroll 8
  for (int i = 0; i < kGroup; ++i) {
    if (i < left) hn::Store(out[i], d, to + i * stride);
  }
}

// panel[k][c] = channel k of key j + c, for kPanel keys; keys at or beyond `end` become zeros.
// `row_of(j)` gives the address of row j.
template <class E, class RowOf>
HWY_INLINE void pack_key_panel(E e, const RowOf& row_of, int64_t j, int64_t end, int channels,
                               float* HWY_RESTRICT panel) {
  using Raw = typename E::Raw;
  for (int group = 0; group < kPanel; group += kGroup) {
    const Raw* row[kGroup];
    for (int i = 0; i < kGroup; ++i) {
      const int64_t key = j + group + i;
      row[i] = key < end ? reinterpret_cast<const Raw*>(row_of(key))
                         : reinterpret_cast<const Raw*>(kZeroRow);
    }
    float* to = panel + group;
    int k = 0;
    for (; k + kGroup <= channels; k += kGroup) {
      transpose_group(e, row, k, kGroup, to + k * kPanel, kPanel);
    }
    if (k < channels) transpose_group(e, row, k, channels - k, to + k * kPanel, kPanel);
  }
}

// panels[c / kPanel][j - begin][c % kPanel] = channel c of value row j, j in [begin, end); channels
// beyond are zeros. `panel_stride` floats lie between panels.
template <class E, class RowOf>
HWY_INLINE void pack_values(E e, const RowOf& row_of, int64_t begin, int64_t end, int channels,
                            int64_t panel_stride, float* HWY_RESTRICT panels) {
  using Raw = typename E::Raw;
  for (int64_t j = begin; j < end; ++j) {
    const Raw* row = reinterpret_cast<const Raw*>(row_of(j));
    float* to = panels + (j - begin) * kPanel;
    int c = 0;
    for (; c + kPanel <= channels; c += kPanel) {
      for (int v = 0; v < kPanelVectors; ++v) {
        hn::Store(load(e, kF, row + c + v * kLanes), kF, to + v * kLanes);
      }
      to += panel_stride;
    }
    if (c < channels) {
      for (int v = 0; v < kPanelVectors; ++v, c += kLanes) {
        const int left = channels - c;
        const VF value = left > 0 ? load_upto(e, kF, row + c, left) : hn::Zero(kF);
        hn::Store(value, kF, to + v * kLanes);
      }
    }
  }
}

}  // namespace HWY_NAMESPACE
}  // namespace attn::cpu
HWY_AFTER_NAMESPACE();

#endif  // include guard per target
