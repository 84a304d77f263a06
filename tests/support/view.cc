#include "support/view.h"

namespace attn::test {

int64_t View::elements() const {
  int64_t count = 1;
  for (int64_t extent : shape) count *= extent;
  return count;
}

void* View::address(std::span<const int64_t> index) const {
  int64_t offset = 0;
  for (size_t axis = 0; axis < index.size(); ++axis) offset += index[axis] * strides[axis];
  return static_cast<char*>(data) + offset * size_of(type);
}

double View::at(std::initializer_list<int64_t> index) const {
  return load(address({index.begin(), index.size()}), type);
}

void View::set(std::initializer_list<int64_t> index, double value) const {
  store(address({index.begin(), index.size()}), type, value);
}

void* View::address_of(int64_t linear) const {
  int64_t offset = 0;
  for (size_t axis = shape.size(); axis-- > 0;) {
    offset += linear % shape[axis] * strides[axis];
    linear /= shape[axis];
  }
  return static_cast<char*>(data) + offset * size_of(type);
}

std::vector<int64_t> contiguous_strides(std::span<const int64_t> shape) {
  std::vector<int64_t> strides(shape.size());
  int64_t next = 1;
  for (size_t axis = shape.size(); axis-- > 0;) {
    strides[axis] = next;
    next *= shape[axis];
  }
  return strides;
}

View contiguous_view(void* data, Type type, std::vector<int64_t> shape) {
  View view;
  view.bound = true;
  view.type = type;
  view.strides = contiguous_strides(shape);
  view.shape = std::move(shape);
  view.data = data;
  return view;
}

std::vector<double> values_of(const View& view) {
  std::vector<double> values(static_cast<size_t>(view.elements()));
  size_t i = 0;
  for_each_address(view, [&](const void* at) { values[i++] = load(at, view.type); });
  return values;
}

}  // namespace attn::test
