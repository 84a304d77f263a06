// What a mask does to a tile, found out by reading its cells alone, for one target.
#if defined(ATTN_SIMD_MASK_INL_H_) == defined(HWY_TARGET_TOGGLE)
#ifdef ATTN_SIMD_MASK_INL_H_
#undef ATTN_SIMD_MASK_INL_H_
#else
#define ATTN_SIMD_MASK_INL_H_
#endif

#include <cstring>

#include "core/problem.h"
#include "cpu/simd_load-inl.h"
#include "cpu/simd_rows.h"
#include "hwy/highway.h"

HWY_BEFORE_NAMESPACE();
namespace attn::cpu {
namespace HWY_NAMESPACE {

// What the cells of a mask do: whether one changes a score, whether one shows its key.
struct MaskEffect {
  bool changes = false;  // some cell is neither true nor 0
  bool shows = false;    // some cell is neither false nor -infinity
  bool mixed() const { return changes && shows; }
};

HWY_INLINE void see_boolean(const uint8_t* mask, int64_t step, int n, MaskEffect& effect) {
  int i = 0;
  if (step == 1) {
    constexpr uint64_t kOnes = 0x0101010101010101u;
    for (; i + 8 <= n && !effect.mixed(); i += 8) {
      uint64_t cells;
      std::memcpy(&cells, mask + i, sizeof cells);
      effect.shows = effect.shows || cells != 0;
      effect.changes = effect.changes || ((cells - kOnes) & ~cells & (kOnes << 7)) != 0;
    }
  }
  for (; i < n && !effect.mixed(); ++i) {
    const bool shown = mask[i * step] != 0;
    effect.shows = effect.shows || shown;
    effect.changes = effect.changes || !shown;
  }
}

HWY_INLINE void see_one(float cell, MaskEffect& effect) {
  effect.changes = effect.changes || cell != 0;
  effect.shows = effect.shows || cell != -std::numeric_limits<float>::infinity();
}

template <class E>
HWY_INLINE void see_additive(E e, const typename E::Raw* mask, int n, MaskEffect& effect) {
  const VF zero = hn::Zero(kF);
  const VF hidden = hn::Set(kF, -std::numeric_limits<float>::infinity());
  int i = 0;
  for (; i + kLanes <= n && !effect.mixed(); i += kLanes) {
    const VF cells = load(e, kF, mask + i);
    effect.changes = effect.changes || !hn::AllTrue(kF, hn::Eq(cells, zero));
    effect.shows = effect.shows || !hn::AllTrue(kF, hn::Eq(cells, hidden));
  }
  for (; i < n && !effect.mixed(); ++i) see_one(E::load_one(mask + i), effect);
}

// Adds the effect of columns [first, first + n) of the row that begins at element `row_offset`.
HWY_INLINE void see_mask(const AttentionProblem& p, int64_t row_offset, int64_t first, int n,
                         MaskEffect& effect) {
  const int64_t step = p.mask_column;
  const int64_t at = row_offset + first * step;
  if (step == 0 && n > 1) n = 1;
  if (p.spec.mask == MaskKind::kBoolean) {
    see_boolean(static_cast<const uint8_t*>(p.mask) + at, step, n, effect);
  } else if (step == 1 && p.spec.mask_type == kFloat32) {
    see_additive(F32{}, static_cast<const float*>(p.mask) + at, n, effect);
  } else if (step == 1 && p.spec.mask_type == kFloat16) {
    see_additive(F16{}, static_cast<const uint16_t*>(p.mask) + at, n, effect);
  } else if (step == 1) {
    see_additive(BF16{}, static_cast<const uint16_t*>(p.mask) + at, n, effect);
  } else {
    for (int i = 0; i < n && !effect.mixed(); ++i) {
      see_one(load_float(p.mask, at + i * step, p.spec.mask_type), effect);
    }
  }
}

HWY_INLINE int64_t mask_row_offset(const AttentionProblem& p, int64_t batch, const RowPlace& at) {
  return batch * p.mask_batch + at.head * p.mask_head + at.query * p.mask_row;
}

}  // namespace HWY_NAMESPACE
}  // namespace attn::cpu
HWY_AFTER_NAMESPACE();

#endif  // include guard per target
