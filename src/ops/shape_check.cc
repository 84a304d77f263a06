#include "ops/shape_check.h"

#include <algorithm>
#include <cstring>

#include "core/error.h"

namespace attn {
namespace {

bool all_unknown(std::span<const int64_t> sizes) {
  return std::all_of(sizes.begin(), sizes.end(), [](int64_t size) { return size == kAnyDim; });
}

std::string list_text(std::span<const int64_t> numbers, bool any_dim) {
  std::string text = "(";
  for (size_t i = 0; i < numbers.size(); ++i) {
    if (i > 0) text += ", ";
    if (any_dim && numbers[i] == kAnyDim) {
      text += '?';
    } else {
      text += cat(numbers[i]);
    }
  }
  text += ')';
  return text;
}

}  // namespace

std::string tensor_text(const Tensor& tensor) {
  if (tensor.rank == 0) return cat(name_of(tensor.type), " scalar");
  return cat(name_of(tensor.type), " ", shape_text(tensor));
}

std::string sizes_text(std::span<const int64_t> sizes) { return list_text(sizes, true); }

std::string strides_text(const Tensor& tensor) {
  return list_text({tensor.strides.data(), static_cast<size_t>(tensor.rank)}, false);
}

void fail_missing(const char* name, const char* shape) {
  fail_argument(name, ": expected a tensor of shape ", shape, "; got none (it is required)");
}

void fail_type(const char* name, const Tensor& tensor, const char* accepted) {
  fail_argument(name, ": expected ", accepted, "; got ", name_of(tensor.type));
}

void fail_type_of(const char* name, const Tensor& tensor, DType expected, const char* owner) {
  fail_argument(name, ": expected ", name_of(expected), ", the type of ", owner, "; got ",
                name_of(tensor.type));
}

void fail_shape(const char* name, const Tensor& tensor, const char* letters,
                std::span<const int64_t> expected) {
  fail_argument(name, ": expected shape ", letters,
                all_unknown(expected) ? "" : cat(" = ", sizes_text(expected)), "; got ",
                tensor.rank == 0 ? "a scalar" : shape_text(tensor));
}

std::optional<int32_t> host_int32(const Tensor& tensor) {
  if (tensor.placement != Placement::kHost || tensor.data == nullptr) return std::nullopt;
  int32_t value;
  std::memcpy(&value, tensor.data, sizeof value);
  return value;
}

}  // namespace attn
