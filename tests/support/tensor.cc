#include "support/tensor.h"

#include <algorithm>
#include <numeric>
#include <utility>

namespace attn::test {

Tensor::Tensor(Type type, std::vector<int64_t> shape, const Layout& layout) {
  const size_t rank = shape.size();
  std::vector<int> order = layout.order;
  if (order.empty()) {
    order.resize(rank);
    std::iota(order.begin(), order.end(), 0);
  }
  view_.bound = true;
  view_.type = type;
  view_.strides.assign(rank, 0);
  int64_t step = 1, first = 0, last = 0;
  bool empty = false;
  for (size_t k = rank; k-- > 0;) {
    const size_t axis = static_cast<size_t>(order[k]);
    empty = empty || shape[axis] == 0;
    if (!layout.broadcast.empty() && layout.broadcast[axis]) continue;
    if (!layout.gaps.empty()) step += layout.gaps[axis];
    const bool reversed = !layout.reversed.empty() && layout.reversed[axis];
    view_.strides[axis] = reversed ? -step : step;
    const int64_t reach = step * std::max<int64_t>(shape[axis] - 1, 0);
    (reversed ? first : last) += reversed ? -reach : reach;
    step *= std::max<int64_t>(shape[axis], 1);
  }
  view_.shape = std::move(shape);
  const int64_t elements = empty ? 0 : last - first + 1;
  buffer_ = Buffer(elements * size_of(type), layout.placement);
  view_.data = buffer_.data() + (empty ? 0 : -first * size_of(type));
}

int64_t Tensor::byte_offset() const {
  return static_cast<unsigned char*>(view_.data) - buffer_.data();
}

std::vector<bool> Tensor::element_bytes() const {
  if (view_.strides == contiguous_strides(view_.shape)) {
    return std::vector<bool>(static_cast<size_t>(buffer_.size()), true);
  }
  std::vector<bool> bytes(static_cast<size_t>(buffer_.size()), false);
  const int64_t size = size_of(view_.type);
  for_each_address(view_, [&](const void* element) {
    const int64_t at = static_cast<const unsigned char*>(element) - buffer_.data();
    for (int64_t k = 0; k < size; ++k) bytes[static_cast<size_t>(at + k)] = true;
  });
  return bytes;
}

Layout draw_layout(Random& random, int rank, const LayoutChoice& choice) {
  Layout layout;
  layout.placement = random.chance(0.7) ? Placement::kFlushEnd : Placement::kFlushStart;
  if (rank == 0 || random.chance(choice.plain)) return layout;
  const size_t axes = static_cast<size_t>(rank);
  layout.order.resize(axes);
  std::iota(layout.order.begin(), layout.order.end(), 0);
  layout.gaps.assign(axes, 0);
  layout.reversed.assign(axes, false);
  layout.broadcast.assign(axes, false);
  if (choice.allow_permuted && rank > 2 && random.chance(0.3)) {
    std::swap(layout.order[static_cast<size_t>(random.below(rank - 1))],
              layout.order[static_cast<size_t>(random.below(rank - 1))]);
  }
  for (size_t axis = 0; axis < axes; ++axis) {
    const bool inner = axis + 1 == axes;
    if (inner && !choice.allow_inner_step) continue;
    if (random.chance(inner ? 0.15 : 0.4)) layout.gaps[axis] = random.between(1, inner ? 2 : 9);
    if (choice.allow_reversed && random.chance(inner ? 0.05 : 0.1)) layout.reversed[axis] = true;
    if (choice.allow_broadcast && !choice.may_broadcast.empty() && choice.may_broadcast[axis] &&
        random.chance(0.15)) {
      layout.broadcast[axis] = true;
    }
  }
  return layout;
}

}  // namespace attn::test
