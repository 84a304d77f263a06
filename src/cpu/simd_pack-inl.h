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

// Four rows of up to four channels each, stored as channel-major groups of four keys.
template <class E>
HWY_INLINE void transpose_four(E e, const typename E::Raw* const* row, int64_t at, int64_t left,
                               float* to) {
  constexpr DF4 d4{};
  const auto a = left >= 4 ? load(e, d4, row[0] + at) : load_some(e, d4, row[0] + at, left);
  const auto b = left >= 4 ? load(e, d4, row[1] + at) : load_some(e, d4, row[1] + at, left);
  const auto c = left >= 4 ? load(e, d4, row[2] + at) : load_some(e, d4, row[2] + at, left);
  const auto d = left >= 4 ? load(e, d4, row[3] + at) : load_some(e, d4, row[3] + at, left);
  constexpr hn::Repartition<uint64_t, DF4> d64{};
  const auto ab_low = hn::BitCast(d64, hn::InterleaveLower(d4, a, b));
  const auto cd_low = hn::BitCast(d64, hn::InterleaveLower(d4, c, d));
  const auto ab_high = hn::BitCast(d64, hn::InterleaveUpper(d4, a, b));
  const auto cd_high = hn::BitCast(d64, hn::InterleaveUpper(d4, c, d));
  hn::Store(hn::BitCast(d4, hn::InterleaveLower(d64, ab_low, cd_low)), d4, to);
  if (left > 1) {
    hn::Store(hn::BitCast(d4, hn::InterleaveUpper(d64, ab_low, cd_low)), d4, to + kPanel);
  }
  if (left > 2) {
    hn::Store(hn::BitCast(d4, hn::InterleaveLower(d64, ab_high, cd_high)), d4, to + 2 * kPanel);
  }
  if (left > 3) {
    hn::Store(hn::BitCast(d4, hn::InterleaveUpper(d64, ab_high, cd_high)), d4, to + 3 * kPanel);
  }
}

// panel[k][c] = channel k of key j + c, for kPanel keys; keys at or beyond `end` become zeros.
// `row_of(j)` gives the address of row j.
template <class E, class RowOf>
HWY_INLINE void pack_key_panel(E e, const RowOf& row_of, int64_t j, int64_t end, int channels,
                               float* HWY_RESTRICT panel) {
  using Raw = typename E::Raw;
  for (int group = 0; group < kPanel; group += 4) {
    const Raw* row[4];
    for (int i = 0; i < 4; ++i) {
      const int64_t key = j + group + i;
      row[i] = key < end ? reinterpret_cast<const Raw*>(row_of(key))
                         : reinterpret_cast<const Raw*>(kZeroRow);
    }
    float* to = panel + group;
    int k = 0;
    for (; k + 4 <= channels; k += 4) transpose_four(e, row, k, 4, to + k * kPanel);
    if (k < channels) transpose_four(e, row, k, channels - k, to + k * kPanel);
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
