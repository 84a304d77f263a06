// Checks of types and shapes that all front ends share, and their messages.
//
// The checks themselves are inline and cheap: they run on every execute. A size of kAnyDim, on
// either side, fits everything. What fails throws Error with INVALID_ARGUMENT; the text starts with
// the argument's name and says what is accepted and what came.
#pragma once

#include <cstdint>
#include <optional>
#include <span>
#include <string>

#include "core/tensor.h"

namespace attn {

// Whether a size can be the expected one.
inline bool fits(int64_t size, int64_t expected) {
  return size == expected || size == kAnyDim || expected == kAnyDim;
}

// As fits, with 1 accepted too: a size that is broadcast.
inline bool fits_or_one(int64_t size, int64_t expected) {
  return size == 1 || fits(size, expected);
}

// a * b of sizes that may be kAnyDim. Both must be small enough for the product to fit.
inline int64_t product(int64_t a, int64_t b) {
  return a == kAnyDim || b == kAnyDim ? kAnyDim : a * b;
}

// The known one of two sizes, the first if both are.
inline int64_t known_of(int64_t a, int64_t b) { return a != kAnyDim ? a : b; }

// "float16 (2, 5, 512)"
std::string tensor_text(const Tensor& tensor);
// "(2, 5, ?)"
std::string sizes_text(std::span<const int64_t> sizes);
// The strides of the tensor's axes, in elements: "(1024, 512, 1)"
std::string strides_text(const Tensor& tensor);

[[noreturn]] void fail_missing(const char* name, const char* shape);
[[noreturn]] void fail_type(const char* name, const Tensor& tensor, const char* accepted);
[[noreturn]] void fail_type_of(const char* name, const Tensor& tensor, DType expected,
                               const char* owner);
[[noreturn]] void fail_shape(const char* name, const Tensor& tensor, const char* letters,
                             std::span<const int64_t> expected);

// A required argument is bound. `shape`: what it would be, in letters.
inline void check_present(const char* name, const Tensor& tensor, const char* shape) {
  if (!tensor.present) fail_missing(name, shape);
}

// The tensor has the type that argument `owner` has.
inline void check_type_of(const char* name, const Tensor& tensor, DType expected,
                          const char* owner) {
  if (tensor.type != expected) fail_type_of(name, tensor, expected, owner);
}

// The tensor has exactly these sizes. `letters`: the shape in the words of the documentation.
template <size_t rank>
inline void check_shape(const char* name, const Tensor& tensor, const char* letters,
                        const int64_t (&expected)[rank]) {
  bool good = tensor.rank == static_cast<int32_t>(rank);
  for (size_t axis = 0; good && axis < rank; ++axis) {
    good = fits(tensor.shape[axis], expected[axis]);
  }
  if (!good) fail_shape(name, tensor, letters, expected);
}

// The value of an int32 tensor of one element where the host can read it now.
std::optional<int32_t> host_int32(const Tensor& tensor);

}  // namespace attn
