// Passes over a column block of a linear attention's state, for one target.
//
// A block is NV vectors wide; its rows (key channels) stand kLanes * NV floats apart.
#if defined(ATTN_SIMD_STATE_INL_H_) == defined(HWY_TARGET_TOGGLE)
#ifdef ATTN_SIMD_STATE_INL_H_
#undef ATTN_SIMD_STATE_INL_H_
#else
#define ATTN_SIMD_STATE_INL_H_
#endif

#include <algorithm>

#include "cpu/simd_load-inl.h"
#include "cpu/simd_math-inl.h"
#include "hwy/highway.h"

HWY_BEFORE_NAMESPACE();
namespace attn::cpu {
namespace HWY_NAMESPACE {

// Sums over key channels are taken in parts of this many.
inline constexpr int kRowPart = 128;

// Rows as the tile of tokens has them; one float a row.
struct PassRows {
  int count;               // dk
  const float* write_key;  // with kAdd
  const float* rescale;    // with kScale
  const float* read_key;   // with kHeld
  const float* query;
};

// to = (from + write_key change^T) * rescale; held = to^T read_key, seen = to^T query.
// `from` may be `to`.
template <bool kAdd, bool kScale, bool kHeld, int NV>
HWY_NOINLINE void pass_over(const float* from, int64_t from_row, float* to, const PassRows& rows,
                            const float* change, float* held, float* seen) {
  constexpr int kWidth = NV * kLanes;
  VF d[NV];
  for (int v = 0; v < NV; ++v) {
    d[v] = kAdd ? hn::Load(kF, change + v * kLanes) : hn::Zero(kF);
    hn::Store(hn::Zero(kF), kF, held + v * kLanes);
    hn::Store(hn::Zero(kF), kF, seen + v * kLanes);
  }
  for (int begin = 0; begin < rows.count; begin += kRowPart) {
    const int end = std::min(rows.count, begin + kRowPart);
    VF h[NV], s[NV];
    for (int v = 0; v < NV; ++v) h[v] = s[v] = hn::Zero(kF);
    for (int i = begin; i < end; ++i) {
      const float* row = from + i * from_row;
      if constexpr (!kAdd) {  // the first look at memory: the next block's part of the row too
        __builtin_prefetch(row + kWidth);
        __builtin_prefetch(row + 2 * kWidth - 1);
      }
      const VF q = hn::Set(kF, rows.query[i]);
      const VF k = hn::Set(kF, kHeld ? rows.read_key[i] : 0.0f);
      const VF w = hn::Set(kF, kAdd ? rows.write_key[i] : 0.0f);
      const VF f = hn::Set(kF, kScale ? rows.rescale[i] : 1.0f);
      for (int v = 0; v < NV; ++v) {
        VF u = hn::LoadU(kF, row + v * kLanes);
        if constexpr (kAdd) u = hn::MulAdd(w, d[v], u);
        if constexpr (kScale) u = hn::Mul(f, u);
        hn::Store(u, kF, to + i * kWidth + v * kLanes);
        if constexpr (kHeld) h[v] = hn::MulAdd(k, u, h[v]);
        s[v] = hn::MulAdd(q, u, s[v]);
      }
    }
    for (int v = 0; v < NV; ++v) {
      float* held_at = held + v * kLanes;
      float* seen_at = seen + v * kLanes;
      hn::Store(hn::Add(hn::Load(kF, held_at), h[v]), kF, held_at);
      hn::Store(hn::Add(hn::Load(kF, seen_at), s[v]), kF, seen_at);
    }
  }
}

// seen = block^T query, for further queries of a state.
template <int NV>
HWY_NOINLINE void read_block(const float* block, int count, const float* query, float* seen) {
  for (int v = 0; v < NV; ++v) hn::Store(hn::Zero(kF), kF, seen + v * kLanes);
  for (int begin = 0; begin < count; begin += kRowPart) {
    const int end = std::min(count, begin + kRowPart);
    VF s[NV];
    for (int v = 0; v < NV; ++v) s[v] = hn::Zero(kF);
    for (int i = begin; i < end; ++i) {
      const VF q = hn::Set(kF, query[i]);
      for (int v = 0; v < NV; ++v) {
        s[v] = hn::MulAdd(q, hn::Load(kF, block + (i * NV + v) * kLanes), s[v]);
      }
    }
    for (int v = 0; v < NV; ++v) {
      float* at = seen + v * kLanes;
      hn::Store(hn::Add(hn::Load(kF, at), s[v]), kF, at);
    }
  }
}

// Widens the first `columns` columns of stored rows into a block; zeros behind.
template <int NV, class S>
HWY_NOINLINE void load_block(S type, const typename S::Raw* from, int64_t from_row, int count,
                             int64_t columns, float* block) {
  for (int i = 0; i < count; ++i) {
    for (int v = 0; v < NV; ++v) {
      const int64_t left = std::max<int64_t>(0, columns - v * kLanes);
      const VF u = load_upto(type, kF, from + i * from_row + (left > 0 ? v * kLanes : 0), left);
      hn::Store(u, kF, block + (i * NV + v) * kLanes);
    }
  }
}

// Stores keep * (block + write_key change^T), the first `columns` columns.
template <int NV, class S>
HWY_NOINLINE void store_block(S type, const float* block, int count, const float* write_key,
                              const float* change, const float* keep, int64_t columns,
                              typename S::Raw* to, int64_t to_row) {
  VF d[NV];
  for (int v = 0; v < NV; ++v) d[v] = hn::Load(kF, change + v * kLanes);
  for (int i = 0; i < count; ++i) {
    const VF w = hn::Set(kF, write_key[i]);
    const VF f = hn::Set(kF, keep[i]);
    for (int v = 0; v < NV; ++v) {
      const int64_t left = columns - v * kLanes;
      if (left <= 0) break;
      const VF u = hn::MulAdd(w, d[v], hn::Load(kF, block + (i * NV + v) * kLanes));
      store_upto(type, hn::Mul(f, u), to + i * to_row + v * kLanes, left);
    }
  }
}

// e^x over all of float: infinity above 88.7, subnormal below -87.3, NaN stays NaN.
HWY_INLINE VF exp_any(VF x) {
  const VF half = exp_float(at_most(88.0f, hn::Mul(x, hn::Set(kF, 0.5f))));
  const VF near = exp_float(at_most(80.0f, x));
  return hn::IfThenElse(hn::Gt(hn::Abs(x), hn::Set(kF, 80.0f)), hn::Mul(half, half), near);
}

}  // namespace HWY_NAMESPACE
}  // namespace attn::cpu
HWY_AFTER_NAMESPACE();

#endif  // include guard per target
