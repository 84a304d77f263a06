// Products of a chunk of tokens with one panel of a linear attention's state, for one target.
//
// A tile is M rows by one panel of columns, held in registers (simd_tile-inl.h).
#if defined(ATTN_SIMD_CHUNK_INL_H_) == defined(HWY_TARGET_TOGGLE)
#ifdef ATTN_SIMD_CHUNK_INL_H_
#undef ATTN_SIMD_CHUNK_INL_H_
#else
#define ATTN_SIMD_CHUNK_INL_H_
#endif

#include <algorithm>

#include "cpu/simd_load-inl.h"
#include "cpu/simd_tile-inl.h"
#include "hwy/highway.h"

HWY_BEFORE_NAMESPACE();
namespace attn::cpu {
namespace HWY_NAMESPACE {

// Sums over key channels are taken in parts of this many.
inline constexpr int64_t kChannelPart = 128;

// sum[r][c] += sum over k < count of weight(r, k) * panel[k][c]. Weights stand with the rows
// `stride` apart, or with kAcross side by side and the steps of the sum `stride` apart.
template <int M, bool kAcross>
HWY_INLINE void add_products(const float* HWY_RESTRICT weights, int64_t stride,
                             const float* HWY_RESTRICT panel, int64_t count,
                             VF (&sum)[M][kPanelVectors]) {
#pragma GCC unroll 2
  for (int64_t k = 0; k < count; ++k) {
    VF column[kPanelVectors];
#pragma GCC unroll 2
    for (int c = 0; c < kPanelVectors; ++c) column[c] = hn::Load(kF, panel + c * kLanes);
#pragma GCC unroll 16
    for (int r = 0; r < M; ++r) {
      const VF weight = hn::Set(kF, kAcross ? weights[r] : weights[r * stride]);
#pragma GCC unroll 2
      for (int c = 0; c < kPanelVectors; ++c) {
        sum[r][c] = hn::MulAdd(weight, column[c], sum[r][c]);
      }
    }
    weights += kAcross ? stride : 1;
    panel += kPanel;
  }
}

// sum = from, rows `stride` floats apart, each times factor[r] if that is not null.
template <int M>
HWY_INLINE void load_tile(const float* from, int64_t stride, const float* factor,
                          VF (&sum)[M][kPanelVectors]) {
#pragma GCC unroll 16
  for (int r = 0; r < M; ++r) {
#pragma GCC unroll 2
    for (int c = 0; c < kPanelVectors; ++c) {
      const VF x = hn::Load(kF, from + r * stride + c * kLanes);
      sum[r][c] = factor == nullptr ? x : hn::Mul(x, hn::Set(kF, factor[r]));
    }
  }
}

template <int M>
HWY_INLINE void store_tile(const VF (&sum)[M][kPanelVectors], float* to, int64_t stride) {
#pragma GCC unroll 16
  for (int r = 0; r < M; ++r) {
#pragma GCC unroll 2
    for (int c = 0; c < kPanelVectors; ++c) hn::Store(sum[r][c], kF, to + r * stride + c * kLanes);
  }
}

// out[r] = sum over k < depth of rows[r][k] * panel[k], for a tile of rows.
inline HWY_NOINLINE void multiply_rows(const float* rows, int64_t row_stride, const float* panel,
                                       int64_t depth, float* out, int64_t out_stride) {
  for (int64_t k = 0; k < depth; k += kChannelPart) {
    VF sum[kTileRows][kPanelVectors];
#pragma GCC unroll 16
    for (int r = 0; r < kTileRows; ++r) {
#pragma GCC unroll 2
      for (int c = 0; c < kPanelVectors; ++c) sum[r][c] = hn::Zero(kF);
    }
    add_products<kTileRows, false>(rows + k, row_stride, panel + k * kPanel,
                                   std::min(kChannelPart, depth - k), sum);
    if (k > 0) {
#pragma GCC unroll 16
      for (int r = 0; r < kTileRows; ++r) {
#pragma GCC unroll 2
        for (int c = 0; c < kPanelVectors; ++c) {
          sum[r][c] = hn::Add(sum[r][c], hn::Load(kF, out + r * out_stride + c * kLanes));
        }
      }
    }
    store_tile<kTileRows>(sum, out, out_stride);
  }
}

// ---- in double ----------------------------------------------------------------------------------

using DD = hn::Repartition<double, DF>;
using VD = hn::Vec<DD>;
inline constexpr DD kD{};
inline constexpr int kDoubles = kLanes / 2;
inline constexpr int kDoubleVectors = 2;  // of a tile in registers: half a panel

HWY_INLINE VD load_double(const float* from) {
  return hn::PromoteTo(kD, hn::LoadU(hn::Rebind<float, DD>(), from));
}

// out[r] = sum over k < depth of rows[r][k] * panel[k] for three rows, exact products summed in
// double.
inline HWY_NOINLINE void multiply_three_rows(const float* rows, int64_t row_stride,
                                             const float* panel, int64_t depth, double* out,
                                             int64_t out_stride) {
  constexpr int kRows = 3, kVectors = 2 * kDoubleVectors;
  VD sum[kRows][kVectors];
#pragma GCC unroll 4
  for (int r = 0; r < kRows; ++r) {
#pragma GCC unroll 4
    for (int c = 0; c < kVectors; ++c) sum[r][c] = hn::Zero(kD);
  }
  for (int64_t k = 0; k < depth; ++k) {
    VD row[kRows];
#pragma GCC unroll 4
    for (int r = 0; r < kRows; ++r) row[r] = hn::Set(kD, rows[r * row_stride + k]);
#pragma GCC unroll 4
    for (int c = 0; c < kVectors; ++c) {
      const VD column = load_double(panel + c * kDoubles);
#pragma GCC unroll 4
      for (int r = 0; r < kRows; ++r) sum[r][c] = hn::MulAdd(row[r], column, sum[r][c]);
    }
    panel += kPanel;
  }
#pragma GCC unroll 4
  for (int r = 0; r < kRows; ++r) {
#pragma GCC unroll 4
    for (int c = 0; c < kVectors; ++c) {
      hn::Store(sum[r][c], kD, out + r * out_stride + c * kDoubles);
    }
  }
}

// Substitution in the rows [first, first + kTileRows) of `change`: row i gets the sum over j < i of
// weights[i][j] * row j. `exact` has the rows before in double, and gets these.
inline HWY_NOINLINE void substitute_rows(const double* weights, int64_t stride, int64_t first,
                                         double* exact, float* change) {
  const double* own = weights + first * stride;
  for (int begin = 0; begin < kPanel; begin += kDoubleVectors * kDoubles) {
    VD sum[kTileRows][kDoubleVectors];
#pragma GCC unroll 16
    for (int r = 0; r < kTileRows; ++r) {
#pragma GCC unroll 2
      for (int c = 0; c < kDoubleVectors; ++c) {
        sum[r][c] = load_double(change + (first + r) * kPanel + begin + c * kDoubles);
      }
    }
    const double* row = exact + begin;
    for (int64_t k = 0; k < first; ++k, row += kPanel) {
      VD column[kDoubleVectors];
#pragma GCC unroll 2
      for (int c = 0; c < kDoubleVectors; ++c) column[c] = hn::Load(kD, row + c * kDoubles);
#pragma GCC unroll 16
      for (int r = 0; r < kTileRows; ++r) {
        const VD weight = hn::Set(kD, own[r * stride + k]);
#pragma GCC unroll 2
        for (int c = 0; c < kDoubleVectors; ++c) {
          sum[r][c] = hn::MulAdd(weight, column[c], sum[r][c]);
        }
      }
    }
#pragma GCC unroll 16
    for (int j = 0; j + 1 < kTileRows; ++j) {
#pragma GCC unroll 16
      for (int i = j + 1; i < kTileRows; ++i) {
        const VD weight = hn::Set(kD, own[i * stride + first + j]);
#pragma GCC unroll 2
        for (int c = 0; c < kDoubleVectors; ++c) {
          sum[i][c] = hn::MulAdd(weight, sum[j][c], sum[i][c]);
        }
      }
    }
#pragma GCC unroll 16
    for (int r = 0; r < kTileRows; ++r) {
#pragma GCC unroll 2
      for (int c = 0; c < kDoubleVectors; ++c) {
        const int64_t at = (first + r) * kPanel + begin + c * kDoubles;
        const hn::Rebind<float, DD> narrow;
        hn::Store(sum[r][c], kD, exact + at);
        hn::StoreU(hn::DemoteTo(narrow, sum[r][c]), narrow, change + at);
      }
    }
  }
}

// ---- outputs and state --------------------------------------------------------------------------

// seen[i] = factor[i] * seen[i] + sum over j <= i of weights[i][j] * change[j], for rows of a tile.
// A change is not felt by rows before it, whatever it holds.
inline HWY_NOINLINE void combine_rows(const float* weights, int64_t stride, int64_t first,
                                      const float* change, const float* factor, float* seen) {
  VF sum[kTileRows][kPanelVectors];
  float* rows = seen + first * kPanel;
  const float* own = weights + first * stride;
  load_tile<kTileRows>(rows, kPanel, factor + first, sum);
  add_products<kTileRows, false>(own, stride, change, first, sum);
#pragma GCC unroll 16
  for (int j = 0; j < kTileRows; ++j) {
    VF column[kPanelVectors];
#pragma GCC unroll 2
    for (int c = 0; c < kPanelVectors; ++c) {
      column[c] = hn::Load(kF, change + (first + j) * kPanel + c * kLanes);
    }
#pragma GCC unroll 16
    for (int i = j; i < kTileRows; ++i) {
      const VF weight = hn::Set(kF, own[i * stride + first + j]);
#pragma GCC unroll 2
      for (int c = 0; c < kPanelVectors; ++c) {
        sum[i][c] = hn::MulAdd(weight, column[c], sum[i][c]);
      }
    }
  }
  store_tile<kTileRows>(sum, rows, kPanel);
}

// M rows of a panel of a state: state[r] = keep * state[r] + sum over j of keys[j][r] * change[j].
template <int M>
HWY_NOINLINE void update_tile(const float* keys, int64_t key_stride, const float* change,
                              int64_t tokens, const float* keep, float* state) {
  VF sum[M][kPanelVectors];
  load_tile<M>(state, kPanel, nullptr, sum);
  if (*keep != 1.0f) {
    const VF factor = hn::Set(kF, *keep);
#pragma GCC unroll 16
    for (int r = 0; r < M; ++r) {
#pragma GCC unroll 2
      for (int c = 0; c < kPanelVectors; ++c) sum[r][c] = hn::Mul(factor, sum[r][c]);
    }
  }
  add_products<M, true>(keys, key_stride, change, tokens, sum);
  store_tile<M>(sum, state, kPanel);
}

// The same for all `depth` rows of a panel; whole tiles of rows are written.
HWY_INLINE void update_panel(const float* keys, int64_t key_stride, const float* change,
                             int64_t tokens, float keep, int depth, float* state) {
  for (int i = 0; i < depth; i += kTileRows) {
    with_rows(depth - i, [&](auto m) HWY_ATTR {
      update_tile<m()>(keys + i, key_stride, change, tokens, &keep, state + i * kPanel);
    });
  }
}

}  // namespace HWY_NAMESPACE
}  // namespace attn::cpu
HWY_AFTER_NAMESPACE();

#endif  // include guard per target
