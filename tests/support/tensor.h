// A tensor that owns fenced memory and may lie in it with any strides.
#pragma once

#include <cstdint>
#include <string>
#include <vector>

#include "support/buffer.h"
#include "support/random.h"
#include "support/view.h"

namespace attn::test {

// How a tensor lies in memory, axis by axis.
struct Layout {
  std::vector<int> order;       // axes from the outermost in memory; empty: as they come
  std::vector<int64_t> gaps;    // unused elements behind each step of an axis; empty: none
  std::vector<bool> reversed;   // axes with negative strides
  std::vector<bool> broadcast;  // axes with stride 0 (inputs only)
  Placement placement = Placement::kFlushEnd;
};

class Tensor {
 public:
  Tensor() = default;  // absent
  Tensor(Type type, std::vector<int64_t> shape, const Layout& layout = {});

  bool bound() const { return view_.bound; }
  const View& view() const { return view_; }
  Buffer& buffer() { return buffer_; }
  const Buffer& buffer() const { return buffer_; }
  // Bytes from the buffer's begin to element (0, ..., 0).
  int64_t byte_offset() const;

  // One flag a byte of the buffer: whether it belongs to an element of the view.
  std::vector<bool> element_bytes() const;

 private:
  Buffer buffer_;
  View view_;
};

// What draw_layout may use.
struct LayoutChoice {
  double plain = 0.5;  // probability of row-major without gaps
  bool allow_reversed = true;
  bool allow_broadcast = true;
  bool allow_permuted = true;
  bool allow_inner_step = true;     // innermost stride other than 1
  std::vector<bool> may_broadcast;  // axes that may have stride 0; empty: none
};

Layout draw_layout(Random& random, int rank, const LayoutChoice& choice);

}  // namespace attn::test
