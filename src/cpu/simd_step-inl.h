// The passes of one token over a linear attention's state where it is stored, for one target.
//
// Both walk the state in blocks of rows that lie in the first-level cache. Of a block the columns
// are taken a few vectors at a time, whose sums stay in registers for all rows of the block, and
// the next block is fetched meanwhile, line after line: memory is read in order.
#if defined(ATTN_SIMD_STEP_INL_H_) == defined(HWY_TARGET_TOGGLE)
#ifdef ATTN_SIMD_STEP_INL_H_
#undef ATTN_SIMD_STEP_INL_H_
#else
#define ATTN_SIMD_STEP_INL_H_
#endif

#include <algorithm>
#include <cstring>

#include "cpu/simd_load-inl.h"
#include "cpu/simd_rows.h"
#include "cpu/simd_state-inl.h"
#include "hwy/highway.h"

HWY_BEFORE_NAMESPACE();
namespace attn::cpu {
namespace HWY_NAMESPACE {

// Rows of a block: two blocks of rows of 128 floats fill half of a first-level cache of 32 KiB.
inline constexpr int kStepRows = 16;
// Vectors whose two sums a vector stay in registers, with a row's two numbers beside them.
#if HWY_TARGET == HWY_AVX3 || HWY_TARGET == HWY_NEON
inline constexpr int kStepVectors = 8;
#else
inline constexpr int kStepVectors = 4;
#endif
inline constexpr int64_t kStepColumns = kStepVectors * kLanes;

// Fetches lines one after the other, row by row.
template <class Raw>
class LineFetcher {
 public:
  LineFetcher(const Raw* rows, int64_t row, int64_t columns, int count)
      : at_(rows), row_(row), columns_(columns), left_(count) {}

  HWY_INLINE void fetch(int lines) {
    for (int i = 0; i < lines && left_ > 0; ++i) {
      __builtin_prefetch(at_ + column_);
      column_ += kLine;
      if (column_ < columns_) continue;
      column_ = 0;
      at_ += row_;
      --left_;
    }
  }

 private:
  static constexpr int64_t kLine = 64 / static_cast<int64_t>(sizeof(Raw));
  const Raw* at_;
  const int64_t row_, columns_;
  int64_t column_ = 0;
  int left_;
};

// held, seen += rows^T read_key, rows^T query over `count` rows, for N vectors of columns; with
// kScale the rows are multiplied by rescale first. `left`: the columns there are, where the last
// vector has fewer than kLanes. The sums have room for whole vectors.
template <bool kScale, bool kHeld, int N, bool kWhole, class S, class Fetcher>
HWY_INLINE void read_columns(S type, const typename S::Raw* from, int64_t from_row, int64_t left,
                             const PassRows& rows, int first, int count, Fetcher& fetcher,
                             float* HWY_RESTRICT held, float* HWY_RESTRICT seen) {
  constexpr int kLines = std::max(1, N * kLanes * static_cast<int>(sizeof(*from)) / 64);
  VF h[N], s[N];
#pragma GCC unroll 8
  for (int v = 0; v < N; ++v) {
    h[v] = kHeld ? hn::Load(kF, held + v * kLanes) : hn::Zero(kF);
    s[v] = hn::Load(kF, seen + v * kLanes);
  }
  for (int i = first; i < first + count; ++i, from += from_row) {
    fetcher.fetch(kLines);
    const VF k = hn::Set(kF, kHeld ? rows.read_key[i] : 0.0f);
    const VF q = hn::Set(kF, rows.query[i]);
    const VF f = hn::Set(kF, kScale ? rows.rescale[i] : 1.0f);
#pragma GCC unroll 8
    for (int v = 0; v < N; ++v) {
      VF u = kWhole ? load(type, kF, from + v * kLanes) : load_upto(type, kF, from, left);
      if constexpr (kScale) u = hn::Mul(f, u);
      if constexpr (kHeld) h[v] = hn::MulAdd(k, u, h[v]);
      s[v] = hn::MulAdd(q, u, s[v]);
    }
  }
#pragma GCC unroll 8
  for (int v = 0; v < N; ++v) {
    if constexpr (kHeld) hn::Store(h[v], kF, held + v * kLanes);
    hn::Store(s[v], kF, seen + v * kLanes);
  }
}

// held = state^T read_key, seen = state^T query straight from where a state is stored; nothing is
// written but the sums. `parts`: room for two rows of sums, `parts_row` floats apart. The sums are
// those of pass_over, bit for bit.
template <bool kScale, bool kHeld, class S>
HWY_NOINLINE void read_state(S type, const typename S::Raw* from, int64_t from_row, int64_t columns,
                             const PassRows& rows, float* parts, int64_t parts_row, float* held,
                             float* seen) {
  const int64_t size = round_up(columns, kLanes);
  const auto clear = [&](float* sums) {
    std::memset(sums, 0, sizeof(float) * static_cast<size_t>(size));
  };
  const auto add = [&](const float* part, float* sums) HWY_ATTR {
    for (int64_t i = 0; i < size; i += kLanes) {
      hn::Store(hn::Add(hn::Load(kF, sums + i), hn::Load(kF, part + i)), kF, sums + i);
    }
  };
  if (kHeld) clear(held);
  clear(seen);
  // The first part is the sum where there is no other.
  const bool one_part = rows.count <= kRowPart;
  float* part_held = one_part ? held : parts;
  float* part_seen = one_part ? seen : parts + parts_row;
  for (int begin = 0; begin < rows.count; begin += kRowPart) {
    const int end = std::min(rows.count, begin + kRowPart);
    if (!one_part) {
      if (kHeld) clear(part_held);
      clear(part_seen);
    }
    for (int first = begin; first < end; first += kStepRows) {
      const int count = std::min(kStepRows, end - first);
      const typename S::Raw* block = from + first * from_row;
      const int next = std::min(kStepRows, rows.count - first - count);
      LineFetcher fetcher(block + count * from_row, from_row, columns, next);
      int64_t c = 0;
      for (; c + kStepColumns <= columns; c += kStepColumns) {
        read_columns<kScale, kHeld, kStepVectors, true>(type, block + c, from_row, kStepColumns,
                                                        rows, first, count, fetcher, part_held + c,
                                                        part_seen + c);
      }
      for (; c + kLanes <= columns; c += kLanes) {
        read_columns<kScale, kHeld, 1, true>(type, block + c, from_row, kLanes, rows, first, count,
                                             fetcher, part_held + c, part_seen + c);
      }
      if (c < columns) {
        read_columns<kScale, kHeld, 1, false>(type, block + c, from_row, columns - c, rows, first,
                                              count, fetcher, part_held + c, part_seen + c);
      }
    }
    if (one_part) break;
    if (kHeld) add(part_held, held);
    add(part_seen, seen);
  }
}

// to = keep * (from * rescale + write_key change^T), `columns` wide: what load, passes and
// store_block make of a state in one token, bit for bit. `to` may be `from`.
template <bool kScale, class S>
HWY_NOINLINE void write_state(S type, const typename S::Raw* from, int64_t from_row,
                              int64_t columns, int count, const float* rescale,
                              const float* write_key, const float* change, const float* keep,
                              typename S::Raw* to, int64_t to_row) {
  constexpr int64_t kStride = 8 * kLanes;
  for (int i = 0; i < count; ++i, from += from_row, to += to_row) {
    const VF r = hn::Set(kF, kScale ? rescale[i] : 1.0f);
    const VF w = hn::Set(kF, write_key[i]);
    const VF f = hn::Set(kF, keep[i]);
    const auto next = [&](const float* change_at, VF u) HWY_ATTR {
      if constexpr (kScale) u = hn::Mul(r, u);
      return hn::Mul(f, hn::MulAdd(w, hn::Load(kF, change_at), u));
    };
    const typename S::Raw* in = from;
    typename S::Raw* out = to;
    const float* d = change;
    int64_t left = columns;
    for (; left >= kStride; left -= kStride, in += kStride, out += kStride, d += kStride) {
#pragma GCC unroll 8
      for (int64_t v = 0; v < kStride; v += kLanes) {
        store(type, next(d + v, load(type, kF, in + v)), out + v);
      }
    }
    for (; left > 0; left -= kLanes, in += kLanes, out += kLanes, d += kLanes) {
      store_upto(type, next(d, load_upto(type, kF, in, left)), out, left);
    }
  }
}

}  // namespace HWY_NAMESPACE
}  // namespace attn::cpu
HWY_AFTER_NAMESPACE();

#endif  // include guard per target
