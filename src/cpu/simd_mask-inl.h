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
#include <type_traits>

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
};

// What some rows of a mask do to the same keys.
struct MaskCells {
  CellBits shown;    // some row shows the key: neither false nor -infinity
  CellBits changed;  // some row changes the score: neither true nor 0

  // A row that shows its first n cells and changes none.
  void add_plain(int n) {
    shown.word[0] |= first_cells(n);
    shown.word[1] |= first_cells(n - 64);
  }
  static uint64_t first_cells(int n) {
    if (n <= 0) return 0;
    return n >= 64 ? ~uint64_t{0} : (uint64_t{1} << n) - 1;
  }

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
      const uint64_t inside = first_cells(out.end - 64 * w) & ~first_cells(out.begin - 64 * w);
      out.plain = out.plain && (changed.word[w] & inside) == 0;
    }
    return out;
  }
};

// Most masks show whole rows of a tile. Whether all n > 0 cells do is found out first, for an
// instruction or two a vector of them: kZero, whether all bits of `counted` are zero in all cells;
// otherwise whether no cell is zero. Padding hides the end of a row: that is looked at first.
template <bool kZero, class T>
HWY_INLINE bool all_plain(const T* mask, int n, T counted) {
  const hn::ScalableTag<T> d;
  constexpr int kCells = static_cast<int>(HWY_LANES(T));
  const auto is_plain = [&](auto cells) {
    const auto zero = hn::Eq(hn::And(cells, hn::Set(d, counted)), hn::Zero(d));
    return kZero ? hn::AllTrue(d, zero) : hn::AllFalse(d, zero);
  };
  HWY_ALIGN T few[kCells];
  if (n < kCells) {
    hn::Store(hn::Set(d, kZero ? T{0} : static_cast<T>(~T{0})), d, few);
    std::memcpy(few, mask, static_cast<size_t>(n) * sizeof(T));
  }
  auto all = n < kCells ? hn::Load(d, few) : hn::LoadU(d, mask + (n - kCells));
  if (!is_plain(all)) return false;
  for (int i = 0; i + kCells < n; i += kCells) {
    const auto cells = hn::LoadU(d, mask + i);
    all = kZero ? hn::Or(all, cells) : hn::Min(all, cells);
  }
  return is_plain(all);
}

// The lanes of masks as bits: those of vector i follow those of vector i - 1.
class BitRow {
 public:
  template <class D, class M>
  HWY_INLINE void add(D d, int at, M mask) {
    if constexpr (HWY_LANES(hn::TFromD<D>) >= 8) {
      hn::StoreMaskBits(d, mask, bytes_ + at / 8);
    } else {
      uint8_t bits[8];
      hn::StoreMaskBits(d, mask, bits);
      bytes_[at / 8] = static_cast<uint8_t>(bytes_[at / 8] | bits[0] << (at % 8));
    }
  }
  uint64_t word(int i) const {
    uint64_t bits;
    std::memcpy(&bits, bytes_ + i * 8, sizeof bits);
    return bits;
  }

 private:
  alignas(8) uint8_t bytes_[kMaskCells / 8 + 8] = {};  // eight may be written at once
};

// Adds what the first n cells of a row are.
HWY_INLINE void add_row(const BitRow& hidden, const BitRow& same, int n, MaskCells& cells) {
  for (int w = 0; w < kMaskCells / 64; ++w) {
    const uint64_t valid = MaskCells::first_cells(n - 64 * w);
    cells.shown.word[w] |= ~hidden.word(w) & valid;
    cells.changed.word[w] |= ~same.word(w) & valid;
  }
}

HWY_INLINE void see_boolean(const uint8_t* mask, int n, MaskCells& cells) {
  if (all_plain<false>(mask, n, uint8_t{255})) return cells.add_plain(n);
  using D8 = hn::ScalableTag<uint8_t>;
  constexpr D8 d8{};
  constexpr int kBytes = static_cast<int>(HWY_LANES(uint8_t));
  BitRow hidden, same;
  for (int i = 0; i < n; i += kBytes) {
    HWY_ALIGN uint8_t last[kBytes] = {};
    const uint8_t* from = mask + i;
    if (n - i < kBytes) {
      std::memcpy(last, from, static_cast<size_t>(n - i));
      from = last;
    }
    const auto hides = hn::Eq(hn::LoadU(d8, from), hn::Zero(d8));
    hidden.add(d8, i, hides);
    same.add(d8, i, hn::Not(hides));
  }
  add_row(hidden, same, n, cells);
}

template <class E>
HWY_INLINE void see_additive(E e, const typename E::Raw* mask, int n, MaskCells& cells) {
  using Bits = std::conditional_t<sizeof(*mask) == 4, uint32_t, uint16_t>;
  constexpr auto kMagnitude = static_cast<Bits>(static_cast<Bits>(~Bits{0}) >> 1);
  if (all_plain<true>(reinterpret_cast<const Bits*>(mask), n, kMagnitude)) {
    return cells.add_plain(n);
  }
  const VF minus_infinity = hn::Set(kF, -std::numeric_limits<float>::infinity());
  BitRow hidden, same;
  for (int i = 0; i < n; i += kLanes) {
    const VF cell = load_upto(e, kF, mask + i, n - i);
    hidden.add(kF, i, hn::Eq(cell, minus_infinity));
    same.add(kF, i, hn::Eq(cell, hn::Zero(kF)));
  }
  add_row(hidden, same, n, cells);
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
      const uint64_t bit = uint64_t{1} << (i % 64);
      if (cell != -std::numeric_limits<float>::infinity()) cells.shown.word[i / 64] |= bit;
      if (cell != 0) cells.changed.word[i / 64] |= bit;
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
