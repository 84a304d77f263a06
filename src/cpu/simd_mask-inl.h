// What a mask does to a tile, found out by reading its cells alone, for one target.
#if defined(ATTN_SIMD_MASK_INL_H_) == defined(HWY_TARGET_TOGGLE)
#ifdef ATTN_SIMD_MASK_INL_H_
#undef ATTN_SIMD_MASK_INL_H_
#else
#define ATTN_SIMD_MASK_INL_H_
#endif

#include <algorithm>
#include <bit>
#include <cstring>
#include <limits>

#include "core/problem.h"
#include "cpu/simd_load-inl.h"
#include "cpu/simd_rows.h"
#include "hwy/highway.h"

HWY_BEFORE_NAMESPACE();
namespace attn::cpu {
namespace HWY_NAMESPACE {

// Most cells that are looked at together: a block of keys.
inline constexpr int kMaskCells = 128;

// One bit a cell.
struct CellBits {
  uint64_t word[kMaskCells / 64] = {};
  void add(int at, uint64_t bits) { word[at / 64] |= bits << (at % 64); }
};

// What some rows of a mask do to the same keys.
struct MaskCells {
  CellBits shown;    // some row shows the key: neither false nor -infinity
  CellBits changed;  // some row changes the score: neither true nor 0

  // The hull of what is shown, and whether no score of it is changed.
  struct Hull {
    int begin = 0;
    int end = 0;  // at most `begin`: every key is hidden from every row
    bool plain = true;
    bool empty() const { return end <= begin; }
  };
  Hull hull() const {
    Hull out;
    const uint64_t low = shown.word[0], high = shown.word[1];
    if ((low | high) == 0) return out;
    out.begin = low != 0 ? std::countr_zero(low) : 64 + std::countr_zero(high);
    out.end = high != 0 ? 128 - std::countl_zero(high) : 64 - std::countl_zero(low);
    for (int w = 0; w < 2; ++w) {
      const int from = std::clamp(out.begin - 64 * w, 0, 64);
      const int to = std::clamp(out.end - 64 * w, 0, 64);
      const uint64_t below_to = to == 64 ? ~uint64_t{0} : (uint64_t{1} << to) - 1;
      const uint64_t from_on = from == 64 ? 0 : ~uint64_t{0} << from;
      out.plain = out.plain && (changed.word[w] & below_to & from_on) == 0;
    }
    return out;
  }
};

// The lanes of a mask as bits, lane 0 lowest.
template <class D, class M>
HWY_INLINE uint64_t bits_of(D d, M mask) {
  uint8_t bytes[8] = {};
  hn::StoreMaskBits(d, mask, bytes);
  uint64_t bits;
  std::memcpy(&bits, bytes, sizeof bits);
  return bits;
}

// Bits of the first n cells of a vector of `lanes`.
HWY_INLINE uint64_t first_bits(int n, int lanes) {
  return ~uint64_t{0} >> (64 - std::min(n, lanes));
}

HWY_INLINE void see_boolean(const uint8_t* mask, int n, MaskCells& cells) {
  using D8 = hn::ScalableTag<uint8_t>;
  constexpr D8 d8{};
  constexpr int kBytes = static_cast<int>(HWY_LANES(uint8_t));
  for (int i = 0; i < n; i += kBytes) {
    HWY_ALIGN uint8_t last[kBytes] = {};
    const uint8_t* from = mask + i;
    if (n - i < kBytes) {
      std::memcpy(last, from, static_cast<size_t>(n - i));
      from = last;
    }
    const uint64_t hidden = bits_of(d8, hn::Eq(hn::LoadU(d8, from), hn::Zero(d8)));
    const uint64_t valid = first_bits(n - i, kBytes);
    cells.shown.add(i, ~hidden & valid);
    cells.changed.add(i, hidden & valid);
  }
}

template <class E>
HWY_INLINE void see_additive(E e, const typename E::Raw* mask, int n, MaskCells& cells) {
  const VF zero = hn::Zero(kF);
  const VF hidden = hn::Set(kF, -std::numeric_limits<float>::infinity());
  for (int i = 0; i < n; i += kLanes) {
    const VF cell = load_upto(e, kF, mask + i, n - i);
    const uint64_t valid = first_bits(n - i, kLanes);
    cells.shown.add(i, ~bits_of(kF, hn::Eq(cell, hidden)) & valid);
    cells.changed.add(i, ~bits_of(kF, hn::Eq(cell, zero)) & valid);
  }
}

// Adds columns [first, first + n), n at most kMaskCells, of the row that begins at element
// `row_offset`.
HWY_INLINE void see_mask(const AttentionProblem& p, int64_t row_offset, int64_t first, int n,
                         MaskCells& cells) {
  const int64_t step = p.mask_column;
  const int64_t at = row_offset + first * step;
  const bool boolean = p.spec.mask == MaskKind::kBoolean;
  if (boolean && step == 1) {
    see_boolean(static_cast<const uint8_t*>(p.mask) + at, n, cells);
  } else if (step == 1 && p.spec.mask_type == kFloat32) {
    see_additive(F32{}, static_cast<const float*>(p.mask) + at, n, cells);
  } else if (step == 1 && p.spec.mask_type == kFloat16) {
    see_additive(F16{}, static_cast<const uint16_t*>(p.mask) + at, n, cells);
  } else if (step == 1) {
    see_additive(BF16{}, static_cast<const uint16_t*>(p.mask) + at, n, cells);
  } else {
    for (int i = 0; i < n; ++i) {
      float cell = 0;
      if (!boolean) {
        cell = load_float(p.mask, at + i * step, p.spec.mask_type);
      } else if (static_cast<const uint8_t*>(p.mask)[at + i * step] == 0) {
        cell = -std::numeric_limits<float>::infinity();
      }
      cells.shown.add(i, cell != -std::numeric_limits<float>::infinity() ? 1 : 0);
      cells.changed.add(i, cell != 0 ? 1 : 0);
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
