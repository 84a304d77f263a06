// What happens to a row of scores between the two products: cap, mask, hiding, softmax weights.
#if defined(ATTN_SIMD_SCORES_INL_H_) == defined(HWY_TARGET_TOGGLE)
#ifdef ATTN_SIMD_SCORES_INL_H_
#undef ATTN_SIMD_SCORES_INL_H_
#else
#define ATTN_SIMD_SCORES_INL_H_
#endif

#include <algorithm>
#include <cmath>
#include <limits>

#include "core/problem.h"
#include "cpu/simd_load-inl.h"
#include "cpu/simd_mask-inl.h"
#include "cpu/simd_math-inl.h"
#include "cpu/simd_rows.h"
#include "hwy/highway.h"

HWY_BEFORE_NAMESPACE();
namespace attn::cpu {
namespace HWY_NAMESPACE {

inline constexpr float kHidden = -std::numeric_limits<float>::infinity();

// s[0, n) = cap * tanh(s / cap); n is a multiple of kLanes.
HWY_INLINE void cap_scores(float* s, int n, float cap) {
  const VF scale = hn::Set(kF, cap);
  // 1 / cap overflows for the smallest caps; a score of 0 must stay 0.
  const VF inverse = hn::Set(kF, std::min(1.0f / cap, std::numeric_limits<float>::max()));
  for (int i = 0; i < n; i += kLanes) {
    const VF x = hn::Load(kF, s + i);
    hn::Store(hn::Mul(scale, tanh_float(hn::Mul(x, inverse))), kF, s + i);
  }
}

// s[i] += mask[i], or kHidden where mask[i] is -infinity, whatever s[i] is. Reads n cells.
template <class E>
HWY_INLINE void add_mask(E e, const typename E::Raw* mask, float* s, int n) {
  const VF hidden = hn::Set(kF, kHidden);
  for (int i = 0; i < n; i += kLanes) {
    const VF m = load_upto(e, kF, mask + i, n - i);
    const VF x = hn::LoadU(kF, s + i);
    const VF value = hn::IfThenElse(hn::Eq(m, hidden), hidden, hn::Add(x, m));
    store_upto(F32{}, value, s + i, n - i);
  }
}

// s[i] = kHidden where mask[i] is 0. Reads n cells.
HWY_INLINE void select_mask(const uint8_t* mask, float* s, int n) {
  const hn::Rebind<uint8_t, DF> d8;
  const hn::RebindToSigned<DF> di;
  const VF hidden = hn::Set(kF, kHidden);
  int i = 0;
  for (; i + kLanes <= n; i += kLanes) {
    const auto cells = hn::PromoteTo(di, hn::LoadU(d8, mask + i));
    const auto hide = hn::RebindMask(kF, hn::Eq(cells, hn::Zero(di)));
    hn::StoreU(hn::IfThenElse(hide, hidden, hn::LoadU(kF, s + i)), kF, s + i);
  }
  for (; i < n; ++i) s[i] = mask[i] != 0 ? s[i] : kHidden;
}

// The mask's cells of one row, s[i] for column first + i, i in [0, n).
HWY_INLINE void apply_mask_row(const AttentionProblem& p, int64_t row_offset, int64_t first,
                               float* s, int n) {
  const int64_t step = p.mask_column;
  const int64_t at = row_offset + first * step;
  if (p.spec.mask == MaskKind::kBoolean) {
    const uint8_t* mask = static_cast<const uint8_t*>(p.mask) + at;
    if (step == 1) {
      select_mask(mask, s, n);
    } else {
      for (int i = 0; i < n; ++i) s[i] = mask[i * step] != 0 ? s[i] : kHidden;
    }
    return;
  }
  if (step == 1) {
    if (p.spec.mask_type == kFloat32) {
      add_mask(F32{}, static_cast<const float*>(p.mask) + at, s, n);
    } else if (p.spec.mask_type == kFloat16) {
      add_mask(F16{}, static_cast<const uint16_t*>(p.mask) + at, s, n);
    } else {
      add_mask(BF16{}, static_cast<const uint16_t*>(p.mask) + at, s, n);
    }
    return;
  }
  for (int i = 0; i < n; ++i) {
    const float m = load_float(p.mask, at + i * step, p.spec.mask_type);
    s[i] = m == kHidden ? kHidden : s[i] + m;
  }
}

// s[i] = kHidden for i in [0, n) but not in [from, to); n is a multiple of kLanes, s is aligned.
HWY_INLINE void hide_outside(float* s, int n, int from, int to) {
  const hn::RebindToSigned<DF> di;
  const VF hidden = hn::Set(kF, kHidden);
  for (int i = 0; i < from; i += kLanes) {
    const auto hide = hn::RebindMask(kF, hn::Lt(hn::Iota(di, i), hn::Set(di, from)));
    hn::Store(hn::IfThenElse(hide, hidden, hn::Load(kF, s + i)), kF, s + i);
  }
  for (int i = to / kLanes * kLanes; i < n; i += kLanes) {
    const auto show = hn::RebindMask(kF, hn::Lt(hn::Iota(di, i), hn::Set(di, to)));
    hn::Store(hn::IfThenElse(show, hn::Load(kF, s + i), hidden), kF, s + i);
  }
}

// Cap, mask (where `masked`) and hiding of one row's scores: s[0, n) are the keys from `first` on.
// n is a multiple of kLanes; s is aligned, and what the row may not see becomes kHidden.
HWY_INLINE void prepare_scores(const AttentionProblem& p, bool masked, int64_t batch,
                               const RowPlace& at, const KeyRange& seen, int64_t first, float* s,
                               int n) {
  const int from = static_cast<int>(std::clamp<int64_t>(seen.begin - first, 0, n));
  const int to = static_cast<int>(std::clamp<int64_t>(seen.end - first, from, n));
  if (p.spec.softcap != 0) cap_scores(s, n, static_cast<float>(p.spec.softcap));
  if (masked && to > from) {
    apply_mask_row(p, mask_row_offset(p, batch, at), first + from, s + from, to - from);
  }
  if (from > 0 || to < n) hide_outside(s, n, from, to);
}

// The state of one row's online softmax.
struct RowState {
  float max;  // largest score so far, -infinity before the first visible key
  float sum;  // of exp(score - max)
};

// Turns s[0, n) into exp(s - max) with the new maximum and updates the state. Returns the factor
// that what was summed before must be multiplied by. n is a multiple of kLanes, s is aligned.
HWY_INLINE float softmax_row(float* s, int n, RowState& state) {
  VF top = hn::Load(kF, s);
  for (int i = kLanes; i < n; i += kLanes) top = hn::Max(top, hn::Load(kF, s + i));
  const float block_max = hn::GetLane(hn::MaxOfLanes(kF, top));
  // A NaN among the scores may or may not reach the maximum: it reaches the sum in any case.
  const float max = block_max > state.max ? block_max : state.max;
  // Nothing visible so far: any finite reference gives weights of zero.
  const VF reference = hn::Set(kF, max == kHidden ? 0.0f : max);
  VF total = hn::Zero(kF);
  for (int i = 0; i < n; i += kLanes) {
    const VF weight = exp_float(hn::Sub(hn::Load(kF, s + i), reference));
    hn::Store(weight, kF, s + i);
    total = hn::Add(total, weight);
  }
  const float block_sum = hn::GetLane(hn::SumOfLanes(kF, total));
  if (max == state.max) {
    state.sum += block_sum;
    return 1.0f;
  }
  float factor = 0.0f;  // nothing was visible before; a sum that is NaN all the same stays so
  if (state.max != kHidden) {
    factor = hn::GetLane(exp_float(hn::Sub(hn::Set(kF, state.max), reference)));
  }
  state.sum = state.sum * factor + block_sum;
  state.max = max;
  return factor;
}

// Sums of weighted values leave float32's range where values come near its end, although no weight
// is above 1 and the result is a mean. An item whose result is not finite is therefore computed
// once more with weights that add up to less than 1: times this power of two, which costs no digit
// of what does not come near the smallest numbers.
HWY_INLINE float weight_shrink(const KeyRange& seen) {
  int bits = 1;
  for (int64_t keys = seen.end - seen.begin; keys > 0; keys /= 2) ++bits;
  return std::ldexp(1.0f, -bits);
}

// s[0, n) times `factor`; n is a multiple of kLanes, s is aligned.
HWY_INLINE void scale_weights(float* s, int n, float factor) {
  const VF by = hn::Set(kF, factor);
  for (int i = 0; i < n; i += kLanes) hn::Store(hn::Mul(hn::Load(kF, s + i), by), kF, s + i);
}

// What a row's sums are divided by, and its log-sum-exp.
struct RowEnd {
  float numerator;  // factor of the weighted values
  float denominator;
  float log_sum_exp;  // without the sink; only where the spec wants it
  bool empty;         // nothing was visible: the output is zero
};

HWY_INLINE RowEnd finish_row(const AttentionProblem& p, int64_t head, const RowState& state) {
  RowEnd end{1.0f, state.sum, kHidden, state.sum == 0.0f};
  if (end.empty) return end;
  if (p.spec.log_sum_exp) end.log_sum_exp = state.max + std::log(state.sum);
  if (p.spec.sink != Sink::kNone) {
    const float sink = p.spec.sink == Sink::kPerHead
                           ? load_float(p.sink, head * p.sink_stride, p.spec.type)
                           : 0.0f;
    const float top = sink > state.max ? sink : state.max;
    end.numerator = std::exp(state.max - top);
    end.denominator = state.sum * end.numerator + std::exp(sink - top);
  }
  return end;
}

}  // namespace HWY_NAMESPACE
}  // namespace attn::cpu
HWY_AFTER_NAMESPACE();

#endif  // include guard per target
