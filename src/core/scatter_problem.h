// Rows written into a cache at an index of their own for each batch row: what TensorScatter is
// lowered to.
#pragma once

#include <array>
#include <cstdint>

#include "core/dtype.h"

namespace attn {

// Axes other than batch and rows that a problem may have after neighbours were joined.
inline constexpr int kScatterAxes = 6;

struct ScatterSpec {
  DType type{};            // moved bit by bit: 1, 2, 4 or 8 bytes
  bool circular = false;   // indices count modulo the cache's rows
  bool indexed = false;    // write indices are bound; otherwise all are 0
  bool in_place = false;   // the present cache is the past one: only new rows are written
  bool unit_inner = true;  // the innermost axis has stride 1 in all three tensors
  bool operator==(const ScatterSpec&) const = default;
};

// A strided view. `axes` are the further axes in the problem's order, which ends with the
// innermost.
struct ScatterView {
  void* data = nullptr;
  int64_t batch = 0;
  int64_t row = 0;
  std::array<int64_t, kScatterAxes> axes{};
};

// present[b, ..., (index[b] + i) mod L, ...] = update[b, ..., i, ...] for i in [0, N), all other
// rows are past's. Without `circular`, 0 <= index and index + N <= L hold for every batch row.
struct ScatterProblem {
  ScatterSpec spec;
  int64_t batch = 0;
  int64_t new_rows = 0;    // N <= L
  int64_t cache_rows = 0;  // L
  int axes = 1;            // used ones, at least 1
  std::array<int64_t, kScatterAxes> sizes{};
  ScatterView past, update, present;
  const int64_t* indices = nullptr;  // (B)
  int64_t index_stride = 1;
};

// The cache row at which batch row `batch` begins to write; reads the index from host memory.
inline int64_t first_row(const ScatterProblem& problem, int64_t batch) {
  if (!problem.spec.indexed) return 0;
  const int64_t index = problem.indices[batch * problem.index_stride];
  if (!problem.spec.circular || problem.cache_rows == 0) return index;
  const int64_t rest = index % problem.cache_rows;
  return rest < 0 ? rest + problem.cache_rows : rest;
}

// Reads write indices from host memory: throws INVALID_ARGUMENT with batch row, value and limit for
// the first one whose rows do not lie in the cache. Circular problems have no such.
void check_write_indices(const ScatterProblem& problem);

}  // namespace attn
