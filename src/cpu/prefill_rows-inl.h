// The rows of one item of blocked attention, whichever unit multiplies them, for one target: which
// they are, what they see, how they come in and go out.
#if defined(ATTN_PREFILL_ROWS_INL_H_) == defined(HWY_TARGET_TOGGLE)
#ifdef ATTN_PREFILL_ROWS_INL_H_
#undef ATTN_PREFILL_ROWS_INL_H_
#else
#define ATTN_PREFILL_ROWS_INL_H_
#endif

#include <algorithm>
#include <cstring>
#include <span>

#include "core/problem.h"
#include "cpu/row_transform_simd.h"
#include "cpu/simd_io-inl.h"
#include "cpu/simd_load-inl.h"
#include "cpu/simd_mask-inl.h"
#include "cpu/simd_rows.h"
#include "hwy/highway.h"

HWY_BEFORE_NAMESPACE();
namespace attn::cpu {
namespace HWY_NAMESPACE {

// Most rows that are loaded together.
inline constexpr int kLoadRows = 16;

// An item is (batch row, kv head, block of query rows), the rows of all heads of the group
// together. E is the element type of Q, K, V and the output.
template <class E>
class PrefillRows {
  using Raw = typename E::Raw;

 public:
  // Item number `item` of those that each have `item_rows` rows, `blocks` a (batch row, kv head).
  PrefillRows(const AttentionProblem& problem, std::span<const RowLengths> lengths,
              const RowKernels& row_kernels, int64_t item_rows, int64_t blocks, int64_t item)
      : p_(problem), spec_(p_.spec), row_kernels_(row_kernels) {
    const int64_t heads = p_.batch * spec_.kv_heads;
    // Later query blocks see more keys: they go first, so that threads end together.
    const int64_t block = blocks - 1 - item / heads;
    batch_ = item % heads / spec_.kv_heads;
    kv_head_ = item % spec_.kv_heads;
    group_ = spec_.q_heads / spec_.kv_heads;
    first_row_ = block * item_rows;
    lengths_ = lengths[static_cast<size_t>(batch_)];
    // A packed sequence may end before the item begins.
    const int64_t left = query_rows_of(p_, lengths_) * group_ - first_row_;
    rows_ = static_cast<int>(std::clamp<int64_t>(left, 0, item_rows));
  }

 protected:
  // Calls f(row, place) for the rows [begin, end) of the item.
  template <class F>
  HWY_INLINE void each_row(int begin, int end, const F& f) const {
    const int64_t first = first_row_ + begin;
    int64_t query = first / group_;
    int64_t member = first % group_;
    for (int row = begin; row < end; ++row) {
      f(row, RowPlace{query, kv_head_ * group_ + member});
      if (++member == group_) {
        member = 0;
        ++query;
      }
    }
  }

  RowPlace place(int row) const {
    const int64_t r = first_row_ + row;
    return {r / group_, kv_head_ * group_ + r % group_};
  }

  // Fills the rows' visible ranges; returns their hull.
  KeyRange find_ranges(KeyRange* ranges) const {
    KeyRange all;
    each_row(0, rows_, [&](int r, const RowPlace& at) {
      if (r > 0 && at.head != kv_head_ * group_) {
        ranges[r] = ranges[r - 1];  // of the same query position
      } else {
        ranges[r] = lengths_.live ? visible_keys(p_, lengths_, at.query) : KeyRange{};
        all = hull(all, ranges[r]);
      }
    });
    return all;
  }

  // Query rows [first, first + count), count at most kLoadRows, transformed and times `scale`, as
  // floats that are `stride` apart; at least to whole vectors. Nobody reads what becomes of rows
  // that see nothing, but they may not exist in the tables.
  void load_queries(int first, int count, const KeyRange* ranges, float scale, float* rows,
                    int64_t stride) const {
    const RowTransformSpec& transform = spec_.query_transform;
    if (!transform.unit_strides) {
      each_row(first, first + count, [&](int r, const RowPlace& at) {
        if (ranges[r].empty()) return;
        load_query_row(E{}, row_kernels_, p_, lengths_, batch_, at, scale,
                       rows + (r - first) * stride);
      });
      return;
    }
    const void* source[kLoadRows];
    int64_t position[kLoadRows];
    each_row(first, first + count, [&](int r, const RowPlace& at) {
      const bool blind = ranges[r].empty();
      source[r - first] =
          blind ? static_cast<const void*>(kZeroRow) : query_row<E>(p_, lengths_, batch_, at);
      position[r - first] = blind || !transform.rotary
                                ? -1
                                : row_position(transform, p_.query_transform, batch_, at.query,
                                               lengths_.query_start + at.query);
    });
    const RowBatch batch{spec_.type, spec_.head_size, count, source, position};
    row_kernels_.to_floats(batch, transform, p_.query_transform, scale, rows, stride);
  }

  // Whether fresh keys are normed or rotated as they are read.
  bool transforms_keys() const { return spec_.key_fresh && spec_.key_transform.any(); }

  // Keys [j, j + count), count at most kLoadRows, as floats that are `stride` apart: cached ones
  // widened, fresh ones transformed, zeros from `end`.
  void load_transformed(const KvRows& keys, int64_t j, int64_t end, int count, float* to,
                        int64_t stride) const {
    const RowTransformSpec& transform = spec_.key_transform;
    const void* source[kLoadRows];
    int64_t position[kLoadRows];
    RowBatch rows{spec_.type, spec_.head_size, 0, source, position};
    int before = 0;  // rows that are not transformed come first
    for (; before < count && j + before < std::min(keys.split, end); ++before) {
      widen_row(E{}, reinterpret_cast<const Raw*>(keys.row(j + before)), spec_.head_size,
                to + before * stride);
    }
    for (int i = before; i < count && j + i < end; ++i, ++rows.count) {
      const int64_t fresh = j + i - keys.split;
      source[rows.count] = keys.row(j + i);
      position[rows.count] =
          transform.rotary ? row_position(transform, p_.key_transform, batch_, fresh, j + i) : -1;
    }
    float* first = to + before * stride;
    if (transform.unit_strides) {
      row_kernels_.to_floats(rows, transform, p_.key_transform, 1.0f, first, stride);
    } else {
      for (int i = 0; i < rows.count; ++i) {
        const int64_t key = j + before + i;
        transform_row(&row_kernels_, transform, p_.key_transform, spec_.type, source[i], 1,
                      spec_.head_size, batch_, key - keys.split, key, first + i * stride);
      }
    }
    for (int i = before + rows.count; i < count; ++i) {
      std::memset(to + i * stride, 0, sizeof(float) * static_cast<size_t>(spec_.head_size));
    }
  }

  // The keys of `block` that some of the rows [first, first + count) see by their ranges.
  static KeyRange ranges_hull(const KeyRange* ranges, int first, int count, const KeyRange& block) {
    KeyRange seen;
    for (int r = first; r < first + count; ++r) seen = hull(seen, ranges[r]);
    return {std::max(seen.begin, block.begin), std::min(seen.end, block.end)};
  }

  // The hull of what the mask shows of the keys in `seen`, at most kMaskCells, to those of the rows
  // that see anything; plain where it shows all of that to all of them. A cell that causality hides
  // may be among them, which at worst costs a shortcut.
  MaskCells::Hull see_rows(const KeyRange* ranges, int first, int count,
                           const KeyRange& seen) const {
    MaskCells cells;
    int64_t last = -1;
    each_row(first, first + count, [&](int r, const RowPlace& at) {
      const int64_t offset = mask_row_offset(p_, batch_, at);
      if (ranges[r].empty() || (r > first && offset == last)) return;
      last = offset;
      see_mask(p_, offset, seen.begin, static_cast<int>(seen.end - seen.begin), cells);
    });
    return cells.hull();
  }

  // Writes all rows from their sums, `stride` floats apart; returns whether all is finite.
  bool write_rows(const float* row_max, const float* row_sum, const float* sums, int64_t stride,
                  float shrink) const {
    bool finite = true;
    each_row(0, rows_, [&](int r, const RowPlace& at) {
      finite &= write_result(E{}, p_, lengths_, batch_, at, RowState{row_max[r], row_sum[r]},
                             sums + r * stride, shrink);
    });
    return finite;
  }

  const AttentionProblem& p_;
  const AttentionSpec& spec_;
  const RowKernels& row_kernels_;  // of this level
  RowLengths lengths_;
  int64_t batch_, kv_head_, group_, first_row_;
  int rows_;
};

}  // namespace HWY_NAMESPACE
}  // namespace attn::cpu
HWY_AFTER_NAMESPACE();

#endif  // include guard per target
