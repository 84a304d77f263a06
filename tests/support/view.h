// A strided view of test memory: what a tensor argument is, without owning it.
#pragma once

#include <cstdint>
#include <initializer_list>
#include <span>
#include <vector>

#include "support/scalar.h"

namespace attn::test {

// `data` is the address of element (0, ..., 0); strides count elements and may be 0 or negative.
// An unbound view is an absent argument; a bound one may have rank 0 or hold nothing.
struct View {
  bool bound = false;
  Type type = Type::kFloat32;
  std::vector<int64_t> shape;
  std::vector<int64_t> strides;
  void* data = nullptr;

  int64_t dim(int axis) const { return shape[static_cast<size_t>(axis)]; }
  int64_t elements() const;
  // Address of the element at `index`; one index an axis.
  void* address(std::span<const int64_t> index) const;
  double at(std::initializer_list<int64_t> index) const;
  void set(std::initializer_list<int64_t> index, double value) const;
  // The element with row-major number `linear`, whatever the strides.
  void* address_of(int64_t linear) const;
  double at_linear(int64_t linear) const { return load(address_of(linear), type); }
  void set_linear(int64_t linear, double value) const { store(address_of(linear), type, value); }
};

// Calls each(address) for every element in row-major order; quicker than `address_of` each time.
template <class Each>
void for_each_address(const View& view, Each each) {
  const int64_t size = size_of(view.type);
  const size_t rank = view.shape.size();
  const int64_t columns = rank == 0 ? 1 : view.shape[rank - 1];
  const int64_t step = rank == 0 ? 0 : view.strides[rank - 1] * size;
  const int64_t rows = columns == 0 ? 0 : view.elements() / columns;
  for (int64_t row = 0; row < rows; ++row) {
    char* at = static_cast<char*>(view.address_of(row * columns));
    for (int64_t column = 0; column < columns; ++column) each(at + column * step);
  }
}

// Row-major strides of a shape.
std::vector<int64_t> contiguous_strides(std::span<const int64_t> shape);

// A bound row-major view of `data`.
View contiguous_view(void* data, Type type, std::vector<int64_t> shape);

// Every element in row-major order.
std::vector<double> values_of(const View& view);

}  // namespace attn::test
