// ai.onnx TensorScatter, written from the operator's contract: which element goes where.
#pragma once

#include <cstdint>
#include <vector>

#include "support/view.h"

namespace attn::reference {

struct TensorScatter {
  bool circular = false;
  int64_t axis = -2;

  test::View past, update;
  test::View write_indices;  // (B) or unbound

  size_t row_axis() const {
    return static_cast<size_t>(axis < 0 ? axis + static_cast<int64_t>(past.shape.size()) : axis);
  }
};

// Where each element of the present cache, in row-major order, comes from.
struct ScatterSource {
  bool fresh = false;  // the update, otherwise the past cache
  int64_t linear = 0;  // the row-major number of the element there
};
std::vector<ScatterSource> run(const TensorScatter& problem);

// Whether some batch row's new rows do not lie in the cache (linear mode).
bool index_outside(const TensorScatter& problem);

}  // namespace attn::reference
