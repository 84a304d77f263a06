// How the SIMD engines see a problem: rows of one kv head, and what a query row sees of them.
//
// The query rows of all heads of a group stand together: row r is head r % group of the group at
// query position r / group, so that every key that is loaded serves all of them.
#pragma once

#include <algorithm>
#include <cstddef>
#include <cstdint>
#include <limits>

#include "core/problem.h"

namespace attn::cpu {

inline constexpr int32_t kMaxHeadSize = 1024;  // of Q, K and V in the SIMD engines

// Zeros that stand in for rows that do not exist; long enough for any row in any type.
alignas(64) inline constexpr float kZeroRow[kMaxHeadSize] = {};

// Key or value rows [0, total) of one batch row and head. Rows from `split` on lie in `fresh`.
struct KvRows {
  const std::byte* cached = nullptr;
  const std::byte* fresh = nullptr;  // address of row `split`
  int64_t cached_stride = 0;         // bytes
  int64_t fresh_stride = 0;
  int64_t split = std::numeric_limits<int64_t>::max();

  const std::byte* row(int64_t j) const {
    return j < split ? cached + j * cached_stride : fresh + (j - split) * fresh_stride;
  }
};

inline KvRows kv_rows(const View4& cached, const View4& fresh, bool has_fresh, int64_t size,
                      const RowLengths& lengths, int64_t batch, int64_t head) {
  KvRows rows;
  const auto start = [&](const View4& view) {
    return static_cast<const std::byte*>(view.data) +
           (batch * view.batch + head * view.head + lengths.key_offset * view.row) * size;
  };
  if (cached.data != nullptr) rows.cached = start(cached);
  rows.cached_stride = cached.row * size;
  if (has_fresh) {
    rows.fresh = start(fresh);
    rows.fresh_stride = fresh.row * size;
    rows.split = lengths.past;
  }
  return rows;
}

inline KvRows key_rows(const AttentionProblem& p, const RowLengths& lengths, int64_t batch,
                       int64_t head) {
  return kv_rows(p.key, p.key_fresh, p.spec.key_fresh, size_of(p.spec.type), lengths, batch, head);
}

inline KvRows value_rows(const AttentionProblem& p, const RowLengths& lengths, int64_t batch,
                         int64_t head) {
  return kv_rows(p.value, p.value_fresh, p.spec.value_fresh, size_of(p.spec.type), lengths, batch,
                 head);
}

// Query rows of a batch row.
inline int64_t query_rows_of(const AttentionProblem& p, const RowLengths& lengths) {
  return p.spec.packed ? lengths.query_rows : p.query_rows;
}

struct KeyRange {
  int64_t begin = 0;
  int64_t end = 0;  // at most `begin`: empty
  bool empty() const { return end <= begin; }
};

// The keys that causality, windows, length and mask width leave to query row i. What the mask's
// cells hide comes on top.
inline KeyRange visible_keys(const AttentionProblem& p, const RowLengths& lengths, int64_t i) {
  const AttentionSpec& spec = p.spec;
  const int64_t position = lengths.query_start + i;
  KeyRange range{0, lengths.total};
  if (spec.mask != MaskKind::kNone) range.end = std::min(range.end, p.mask_columns);
  if (spec.causal) range.end = std::min(range.end, position + 1);
  // Windows can be as large as an int64: compare without adding to them.
  if (spec.right_window >= 0 && spec.right_window < lengths.total - position) {
    range.end = std::min(range.end, position + spec.right_window + 1);
  }
  if (spec.left_window >= 0 && spec.left_window < position) {
    range.begin = position - spec.left_window;
  }
  if (range.empty()) range = {0, 0};
  return range;
}

// Which query row of the problem a row of a group is.
struct RowPlace {
  int64_t query;  // along S
  int64_t head;
};

inline KeyRange hull(const KeyRange& a, const KeyRange& b) {
  if (a.empty()) return b;
  if (b.empty()) return a;
  return {std::min(a.begin, b.begin), std::max(a.end, b.end)};
}

inline int64_t ceil_div(int64_t a, int64_t b) { return (a + b - 1) / b; }
inline int64_t round_up(int64_t a, int64_t b) { return ceil_div(a, b) * b; }

// Hands out consecutive pieces of a scratch buffer, each on its own cache lines.
class ScratchCursor {
 public:
  explicit ScratchCursor(std::byte* base) : base_(base) {}
  template <class T>
  T* take(int64_t count) {
    std::byte* at = base_ == nullptr ? nullptr : base_ + used_;
    used_ += static_cast<size_t>(round_up(count * static_cast<int64_t>(sizeof(T)), 64));
    return reinterpret_cast<T*>(at);
  }
  size_t used() const { return used_; }

 private:
  std::byte* base_;
  size_t used_ = 0;
};

}  // namespace attn::cpu
