// ai.onnx TensorScatter, written from the operator's contract: which element goes where.
#pragma once

#include <cstdint>
#include <vector>

#include "support/view.h"

namespace attn::reference {

struct TensorScatter {
  bool circular = false;
  int64_t axis = -2;
  bool in_place = false;

  test::View past, update;
  test::View write_indices;  // (B) or unbound

  size_t row_axis() const {
    return static_cast<size_t>(axis < 0 ? axis + static_cast<int64_t>(past.shape.size()) : axis);
  }
};

// Where an element of the present cache comes from.
struct ScatterSource {
  enum From : uint8_t { kPast, kUpdate, kZero };
  From from = kPast;
  int64_t linear = 0;  // the row-major number of the element there
};

// For each element of the present cache, in row-major order. A batch row whose index is bad is what
// a device makes of it: zeros, or the past where the cache is in place.
std::vector<ScatterSource> run(const TensorScatter& problem);

// The batch rows whose new rows do not lie in the cache (linear mode).
std::vector<bool> bad_batch_rows(const TensorScatter& problem);

}  // namespace attn::reference
