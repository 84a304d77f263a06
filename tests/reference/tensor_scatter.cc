#include "reference/tensor_scatter.h"

#include <algorithm>

namespace attn::reference {
namespace {

int64_t index_of(const TensorScatter& problem, int64_t batch) {
  if (!problem.write_indices.bound) return 0;
  // Read as the integer it is: indices may be larger than a double counts.
  return *static_cast<const int64_t*>(problem.write_indices.address_of(batch));
}

}  // namespace

std::vector<bool> bad_batch_rows(const TensorScatter& problem) {
  std::vector<bool> bad(static_cast<size_t>(problem.past.dim(0)), false);
  if (problem.circular) return bad;
  const int64_t room = problem.past.shape[problem.row_axis()];
  const int64_t rows = problem.update.shape[problem.row_axis()];
  for (int64_t b = 0; b < problem.past.dim(0); ++b) {
    const int64_t index = index_of(problem, b);
    bad[static_cast<size_t>(b)] = index < 0 || index > room - rows;
  }
  return bad;
}

std::vector<ScatterSource> run(const TensorScatter& problem) {
  const size_t axis = problem.row_axis();
  const std::vector<int64_t>& shape = problem.past.shape;
  std::vector<ScatterSource> sources(static_cast<size_t>(problem.past.elements()));
  const std::vector<bool> bad = bad_batch_rows(problem);
  const size_t batch_elements = sources.size() / std::max<size_t>(bad.size(), 1);
  for (size_t i = 0; i < sources.size(); ++i) {
    sources[i].linear = static_cast<int64_t>(i);
    if (bad[i / batch_elements] && !problem.in_place) sources[i].from = ScatterSource::kZero;
  }
  // Each element of the update says where it goes, as the standard's description does.
  const int64_t elements = problem.update.elements();
  for (int64_t linear = 0; linear < elements; ++linear) {
    std::vector<int64_t> index(shape.size());
    int64_t rest = linear;
    for (size_t d = shape.size(); d-- > 0;) {
      index[d] = rest % problem.update.shape[d];
      rest /= problem.update.shape[d];
    }
    if (bad[static_cast<size_t>(index[0])]) continue;
    int64_t row = index_of(problem, index[0]);
    if (problem.circular) row = (row % shape[axis] + shape[axis]) % shape[axis];
    row += index[axis];
    if (problem.circular) row %= shape[axis];
    index[axis] = row;
    int64_t at = 0;
    for (size_t d = 0; d < shape.size(); ++d) at = at * shape[d] + index[d];
    sources[static_cast<size_t>(at)] = {ScatterSource::kUpdate, linear};
  }
  return sources;
}

}  // namespace attn::reference
