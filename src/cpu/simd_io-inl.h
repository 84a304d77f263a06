// How query rows come in and output rows go out, for one target.
#if defined(ATTN_SIMD_IO_INL_H_) == defined(HWY_TARGET_TOGGLE)
#ifdef ATTN_SIMD_IO_INL_H_
#undef ATTN_SIMD_IO_INL_H_
#else
#define ATTN_SIMD_IO_INL_H_
#endif

#include <limits>

#include "core/problem.h"
#include "cpu/row_transform.h"
#include "cpu/simd_load-inl.h"
#include "cpu/simd_rows.h"
#include "cpu/simd_scores-inl.h"
#include "hwy/highway.h"

HWY_BEFORE_NAMESPACE();
namespace attn::cpu {
namespace HWY_NAMESPACE {

// Widens n elements to aligned floats; the vector that holds the last one is filled with zeros.
template <class E>
HWY_INLINE void widen_row(E e, const typename E::Raw* from, int n, float* to) {
  for (int k = 0; k < n; k += kLanes) hn::Store(load_upto(e, kF, from + k, n - k), kF, to + k);
}

template <class E>
HWY_INLINE const typename E::Raw* query_row(const AttentionProblem& p, const RowLengths& lengths,
                                            int64_t batch, const RowPlace& at) {
  return static_cast<const typename E::Raw*>(p.query.data) + batch * p.query.batch +
         at.head * p.query.head + (lengths.query_offset + at.query) * p.query.row;
}

// One query row, transformed and times `scale`, with zeros up to a whole vector. `row` is aligned.
// `kernels` are those of this target's level.
template <class E>
HWY_INLINE void load_query_row(E e, const RowKernels& kernels, const AttentionProblem& p,
                               const RowLengths& lengths, int64_t batch, const RowPlace& at,
                               float scale, float* row) {
  const int depth = p.spec.head_size;
  const auto* from = query_row<E>(p, lengths, batch, at);
  if (p.spec.query_transform.any()) {
    transform_row(&kernels, p.spec.query_transform, p.query_transform, p.spec.type, from, 1, depth,
                  batch, at.query, lengths.query_start + at.query, row);
    for (int k = depth; k % kLanes != 0; ++k) row[k] = 0.0f;
  } else {
    widen_row(e, from, depth, row);
  }
  const VF by = hn::Set(kF, scale);
  for (int k = 0; k < depth; k += kLanes) {
    hn::Store(hn::Mul(hn::Load(kF, row + k), by), kF, row + k);
  }
}

// A mean of values whose weights were shrunk, in full size again. The mean of finite values is no
// larger than the largest: what rounding puts beyond is that.
HWY_INLINE VF grow_back(VF mean, float shrink) {
  const VF largest = hn::Set(kF, std::numeric_limits<float>::max());
  const VF grown = hn::Mul(mean, hn::Set(kF, 1.0f / shrink));
  const auto beyond = hn::And(hn::IsInf(grown), hn::IsFinite(mean));
  return hn::IfThenElse(beyond, hn::CopySign(largest, grown), grown);
}

// Writes the output row (and log-sum-exp) of a finished row from its aligned sums, which are padded
// to whole vectors. A row that saw nothing becomes zeros, whatever its sums hold. `shrink` is what
// the weights of the values were multiplied by. Returns whether all that was written is finite.
template <class E>
HWY_INLINE bool write_result(E e, const AttentionProblem& p, const RowLengths& lengths,
                             int64_t batch, const RowPlace& at, const RowState& state,
                             const float* sums, float shrink) {
  const int64_t row = lengths.query_offset + at.query;
  auto* out = static_cast<typename E::Raw*>(p.output.data) + batch * p.output.batch +
              at.head * p.output.head + row * p.output.row;
  const int channels = p.spec.v_head_size;
  const RowEnd end = finish_row(p, at.head, state);
  if (p.spec.log_sum_exp) {
    static_cast<float*>(
        p.log_sum_exp.data)[batch * p.log_sum_exp.batch + at.head * p.log_sum_exp.head +
                            row * p.log_sum_exp.row] = end.log_sum_exp;
  }
  if (end.empty) {
    std::memset(out, 0, static_cast<size_t>(channels) * sizeof(*out));
    return true;
  }
  const VF factor = hn::Set(kF, end.numerator / end.denominator);
  VF nothing = hn::Zero(kF);  // 0 * result: NaN where a result is not finite
  for (int c = 0; c < channels; c += kLanes) {
    VF result = hn::Mul(hn::Load(kF, sums + c), factor);
    if (shrink != 1.0f) result = grow_back(result, shrink);
    nothing = hn::MulAdd(result, hn::Zero(kF), nothing);
    store_upto(e, result, out + c, channels - c);
  }
  return hn::AllTrue(kF, hn::Eq(nothing, hn::Zero(kF)));
}

}  // namespace HWY_NAMESPACE
}  // namespace attn::cpu
HWY_AFTER_NAMESPACE();

#endif  // include guard per target
