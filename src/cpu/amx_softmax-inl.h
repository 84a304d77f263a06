// Scores of a strip become weights in tiles, for one target. The state of 16 rows is kept in
// vectors: what a row needs on its own are its largest score and its sum, which four rows share the
// work of folding.
#if defined(ATTN_AMX_SOFTMAX_INL_H_) == defined(HWY_TARGET_TOGGLE)
#ifdef ATTN_AMX_SOFTMAX_INL_H_
#undef ATTN_AMX_SOFTMAX_INL_H_
#else
#define ATTN_AMX_SOFTMAX_INL_H_
#endif

#include <algorithm>
#include <cstdint>

#include "cpu/amx_pack-inl.h"
#include "cpu/attention_amx.h"
#include "cpu/simd_load-inl.h"
#include "cpu/simd_math-inl.h"
#include "cpu/simd_pack-inl.h"
#include "cpu/simd_scores-inl.h"
#include "hwy/highway.h"

HWY_BEFORE_NAMESPACE();
namespace attn::cpu {
namespace HWY_NAMESPACE {

// The columns of a row's scores in the key block, in groups of kAmxStrip.
struct AmxColumns {
  int from = 0;  // exact; what the row sees
  int to = 0;    // at most `from`: nothing
  int first_group() const { return from / kAmxStrip; }
  int end_group() const { return to <= from ? first_group() : (to + kAmxStrip - 1) / kAmxStrip; }
};

// Combines the lanes of each of four vectors by `op`, in pairs: lane i is vector i's result.
template <class D, class Op>
HWY_INLINE hn::Vec<DF4> fold_blocks(D /*d*/, hn::Vec<D> v, const Op& op) {
  if constexpr (std::is_same_v<D, DF4>) {
    return v;
  } else {
    const hn::Half<D> half;
    return fold_blocks(half, op(hn::LowerHalf(half, v), hn::UpperHalf(half, v)), op);
  }
}
template <class Op>
HWY_INLINE hn::Vec<DF4> fold_four(const VF* v, const Op& op) {
  VF out[4];
  transpose_blocks(kF, v[0], v[1], v[2], v[3], out);
  return fold_blocks(kF, op(op(out[0], out[1]), op(out[2], out[3])), op);
}

struct MaxOp {
  template <class V>
  HWY_INLINE V operator()(V a, V b) const {
    return hn::Max(a, b);
  }
};
struct AddOp {
  template <class V>
  HWY_INLINE V operator()(V a, V b) const {
    return hn::Add(a, b);
  }
};

// e^(x * scale - reference) for arguments that are not above 0 by more than a rounding.
HWY_INLINE VF weight_of(F32, VF x, VF scale, VF reference) {
  return exp_float(hn::MulSub(x, scale, reference));
}
// For results that are rounded to 16 bits: the error is that of the argument and 1e-7.
template <class E>
HWY_INLINE VF weight_of(E, VF x, VF scale, VF reference) {
  return exp_short(hn::MulSub(x, scale, reference));
}

// The largest score of each of kAmxTile rows; -infinity where a row sees nothing.
HWY_INLINE void row_maxima(const float* scores, int64_t stride, const AmxColumns* columns,
                           float* maxima) {
  const VF hidden = hn::Set(kF, kHidden);
  for (int r = 0; r < kAmxTile; r += 4) {
    VF top[4];
    for (int i = 0; i < 4; ++i) {
      const float* s = scores + (r + i) * stride;
      VF a = hidden;
      VF b = hidden;
      const int end = columns[r + i].end_group() * kAmxStrip;
      for (int c = columns[r + i].first_group() * kAmxStrip; c < end; c += 2 * kLanes) {
        a = hn::Max(a, hn::Load(kF, s + c));
        b = hn::Max(b, hn::Load(kF, s + c + kLanes));
      }
      top[i] = hn::Max(a, b);
    }
    hn::Store(fold_four(top, MaxOp()), DF4(), maxima + r);
  }
}

// Takes the largest scores of a block, times `scale`, into the rows' state. `references` is what
// the block's scores are relative to, `factors` what was summed before must be multiplied by.
HWY_INLINE void raise_maxima(const float* maxima, float scale, float* row_max, float* references,
                             float* factors) {
  const VF hidden = hn::Set(kF, kHidden);
  for (int r = 0; r < kAmxTile; r += kLanes) {
    const VF before = hn::Load(kF, row_max + r);
    const VF block = hn::Mul(hn::Load(kF, maxima + r), hn::Set(kF, scale));
    // A NaN among the scores may or may not reach the maximum: it reaches the sum in any case.
    const VF top = hn::IfThenElse(hn::Gt(block, before), block, before);
    // Nothing visible so far: any finite reference gives weights of zero.
    const VF reference = hn::IfThenZeroElse(hn::Eq(top, hidden), top);
    const VF shrunk = exp_float(hn::Sub(before, reference));
    const VF factor = hn::IfThenElse(hn::Eq(before, top), hn::Set(kF, 1.0f),
                                     hn::IfThenZeroElse(hn::Eq(before, hidden), shrunk));
    hn::Store(top, kF, row_max + r);
    hn::Store(reference, kF, references + r);
    hn::Store(factor, kF, factors + r);
  }
}

HWY_INLINE void add_sums(const float* sums, const float* factors, float* row_sum) {
  for (int r = 0; r < kAmxTile; r += kLanes) {
    const VF before = hn::Mul(hn::Load(kF, row_sum + r), hn::Load(kF, factors + r));
    hn::Store(hn::Add(before, hn::Load(kF, sums + r)), kF, row_sum + r);
  }
}

// Row `row` of the weights' tiles of groups [first, end) becomes zeros.
template <class E>
HWY_INLINE void clear_weights(int row, int first, int end, uint16_t* tiles) {
  const hn::ScalableTag<uint16_t> d16;
  for (int g = first; g < end; ++g) {
    for (int piece = 0; piece < kPieces<E>; ++piece) {
      uint16_t* to = tiles + g * kAmxStep<E> + piece * 2 * kAmxTileSize + row * kAmxStrip;
      for (int c = 0; c < kAmxStrip; c += 2 * kLanes) hn::Store(hn::Zero(d16), d16, to + c);
    }
  }
}

// Turns the scores of kAmxTile rows into weights in tiles, `shrink` times as large, and adds them
// up. Tiles hold the groups [0, groups); `first` is the group of the tiles' first.
template <class E>
HWY_INLINE void weigh_half(E e, const float* scores, int64_t stride, const AmxColumns* columns,
                           int first, int groups, float scale, float shrink,
                           const float* references, float* sums, uint16_t* tiles) {
  const VF by = hn::Set(kF, scale);
  const VF less = hn::Set(kF, shrink);
  for (int r = 0; r < kAmxTile; r += 4) {
    VF total[4];
    for (int i = 0; i < 4; ++i) {
      const int row = r + i;
      const float* s = scores + row * stride;
      const VF reference = hn::Set(kF, references[row]);
      VF a_sum = hn::Zero(kF);
      VF b_sum = hn::Zero(kF);
      const int from = columns[row].to <= columns[row].from ? first : columns[row].first_group();
      const int to = columns[row].to <= columns[row].from ? first : columns[row].end_group();
      clear_weights<E>(row, 0, from - first, tiles);
      clear_weights<E>(row, to - first, groups, tiles);
      for (int g = from; g < to; ++g) {
        uint16_t* tile = tiles + (g - first) * kAmxStep<E> + row * kAmxStrip;
#pragma GCC unroll 4
        for (int c = 0; c < kAmxTile; c += kLanes) {
          const float* at = s + g * kAmxStrip + c;
          VF a = weight_of(e, hn::Load(kF, at), by, reference);
          VF b = weight_of(e, hn::Load(kF, at + kAmxTile), by, reference);
          a_sum = hn::Add(a_sum, a);
          b_sum = hn::Add(b_sum, b);
          if (shrink != 1.0f) {
            a = hn::Mul(a, less);
            b = hn::Mul(b, less);
          }
          store_pieces(e, a, b, tile + 2 * c);
        }
      }
      total[i] = hn::Add(a_sum, b_sum);
    }
    hn::Store(fold_four(total, AddOp()), DF4(), sums + r);
  }
}

// Channels [0, kAmxStrip) of `rows` output rows: what they hold times the row's factor plus the
// product's rows, which are kAmxStrip floats apart; with `first`, what they hold is not read.
HWY_INLINE void add_output(const float* product, int rows, bool first, const float* factors,
                           float* out, int64_t stride) {
  for (int r = 0; r < rows; ++r, product += kAmxStrip, out += stride) {
    const VF factor = hn::Set(kF, factors[r]);
#pragma GCC unroll 8
    for (int c = 0; c < kAmxStrip; c += kLanes) {
      VF sum = hn::Load(kF, product + c);
      if (!first) sum = hn::MulAdd(hn::Load(kF, out + c), factor, sum);
      hn::Store(sum, kF, out + c);
    }
  }
}

}  // namespace HWY_NAMESPACE
}  // namespace attn::cpu
HWY_AFTER_NAMESPACE();

#endif  // include guard per target
