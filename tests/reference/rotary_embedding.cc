#include "reference/rotary_embedding.h"

#include <algorithm>

#include "reference/row_transform.h"

namespace attn::reference {
namespace {

// The (S, width/2) tables of one batch row.
test::View table_of(const test::View& table, int64_t batch) {
  if (table.shape.size() == 2) return table;
  test::View one = table;
  one.data = table.address(std::vector<int64_t>{batch, 0, 0});
  one.shape = {table.dim(1), table.dim(2)};
  one.strides = {table.strides[1], table.strides[2]};
  return one;
}

}  // namespace

std::vector<bool> bad_batch_rows(const RotaryEmbedding& problem) {
  std::vector<bool> bad(static_cast<size_t>(problem.batch()), false);
  if (!problem.position_ids.bound) return bad;
  for (int64_t b = 0; b < problem.batch(); ++b) {
    for (int64_t i = 0; i < problem.rows(); ++i) {
      const double position = problem.position_ids.at({b, i});
      if (position >= 0 && position < static_cast<double>(problem.cos.dim(0))) continue;
      bad[static_cast<size_t>(b)] = true;
    }
  }
  return bad;
}

std::vector<double> run(const RotaryEmbedding& problem) {
  const int64_t heads = problem.heads(), rows = problem.rows(), size = problem.head_size();
  std::vector<double> out = test::values_of(problem.x);
  std::vector<double> row(static_cast<size_t>(size));
  if (out.empty()) return out;
  const std::vector<bool> bad = bad_batch_rows(problem);
  for (int64_t b = 0; b < problem.batch(); ++b) {
    RowTransform transform;
    transform.cos = table_of(problem.cos, b);
    transform.sin = table_of(problem.sin, b);
    transform.interleaved = problem.interleaved;
    for (int64_t i = 0; i < rows; ++i) {
      const int64_t position =
          problem.position_ids.bound ? static_cast<int64_t>(problem.position_ids.at({b, i})) : i;
      for (int64_t h = 0; h < heads; ++h) {
        const int64_t number =
            problem.heads_apart() ? (b * heads + h) * rows + i : (b * rows + i) * heads + h;
        const auto at = out.begin() + number * size;
        if (bad[static_cast<size_t>(b)]) {
          std::fill(at, at + size, 0.0);
          continue;
        }
        row.assign(at, at + size);
        transform_row(transform, position, problem.x.type, row);
        std::copy(row.begin(), row.end(), at);
      }
    }
  }
  return out;
}

}  // namespace attn::reference
