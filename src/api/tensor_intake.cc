#include "api/tensor_intake.h"

#include <algorithm>
#include <string>

#include "api/overlap.h"
#include "api/struct_io.h"
#include "core/error.h"
#include "ops/shape_check.h"

namespace attn::api {
namespace {

const char* device_name(int32_t type) {
  switch (type) {
    case ATTN_DEVICE_CPU:
      return "host memory";
    case ATTN_DEVICE_CUDA:
      return "CUDA device memory";
    case ATTN_DEVICE_CUDA_HOST:
      return "pinned host memory";
    case ATTN_DEVICE_CUDA_MANAGED:
      return "managed memory";
    default:
      return nullptr;
  }
}

Placement place(const attn_tensor& source, const char* name, const DeviceIdentity& device) {
  int32_t type = source.device_type;
  if (type == 0 && source.data == nullptr) type = device.type;
  if (device_name(type) == nullptr) {
    fail_argument(name, ": device type ", type,
                  " is unknown; accepted are 1 (CPU), 2 (CUDA), 3 (pinned) and 13 (managed)");
  }
  const bool on_cuda = device.type == ATTN_DEVICE_CUDA;
  switch (type) {
    case ATTN_DEVICE_CPU:
      if (source.device_id != 0) {
        fail_argument(name, ": device id ", source.device_id, " of host memory; it must be 0");
      }
      return Placement::kHost;
    case ATTN_DEVICE_CUDA:
      if (!on_cuda) fail_argument(name, ": lies in CUDA device memory, the context is on the CPU");
      if (source.device_id != device.id) {
        fail_argument(name, ": lies on CUDA device ", source.device_id,
                      ", the context is on device ", device.id);
      }
      return Placement::kDevice;
    case ATTN_DEVICE_CUDA_MANAGED:
      return on_cuda ? Placement::kDevice : Placement::kHost;
    default:  // pinned
      return Placement::kHost;
  }
}

// Bytes of an element; types that there are not (refused by the operator's list) count as one.
int64_t element_bytes(DType type) { return std::max<int64_t>(1, size_of(type)); }

// What the sizes say of a tensor as a whole.
enum class Filling : uint8_t { kEmpty, kUnknown, kElements };

Filling take_shape(const attn_tensor& source, const char* name, Intake intake, Tensor& tensor) {
  if (source.ndim < 0 || source.ndim > kMaxRank) {
    fail_argument(name, ": ndim is ", source.ndim, "; 0 to ", kMaxRank, " are accepted");
  }
  tensor.rank = source.ndim;
  bool empty = false, unknown = false;
  for (size_t axis = 0; axis < static_cast<size_t>(source.ndim); ++axis) {
    const int64_t size = source.shape[axis];
    if (size < 0 && (size != kAnyDim || intake != Intake::kShapes)) {
      fail_argument(name, ": shape[", axis, "] is ", size,
                    intake == Intake::kShapes ? "; 0 and up, and -1 for any, are accepted"
                                              : "; 0 and up are accepted");
    }
    tensor.shape[axis] = size;
    empty |= size == 0;
    unknown |= size < 0;
  }
  check_bytes(name, tensor);
  return empty ? Filling::kEmpty : unknown ? Filling::kUnknown : Filling::kElements;
}

bool all_zero(const int64_t* values, int32_t count) {
  return std::all_of(values, values + count, [](int64_t value) { return value == 0; });
}

// Offsets from the first element, in elements: of the lowest one and of the highest one.
struct Extent {
  int64_t low = 0;
  int64_t high = 0;
};

// Who made a description of zeros and forgot the strides must not read one element over and over.
[[noreturn]] void fail_unstated_strides(const char* name, bool is_output, Tensor tensor) {
  set_row_major_strides(tensor);
  std::string row_major;
  for (int32_t axis = 0; axis < tensor.rank; ++axis) {
    row_major += cat(axis == 0 ? "" : ", ", tensor.strides[static_cast<size_t>(axis)]);
  }
  fail_argument(name, ": all strides are 0, but the shape ", shape_text(tensor),
                " has more than one element; state them (row-major is ", row_major, ")",
                is_output ? "" : ", or set ATTN_TENSOR_BROADCAST if one element is meant for all");
}

[[noreturn]] void fail_shared_place(const char* name, const Tensor& tensor) {
  fail_argument(name, ": with the strides ", strides_text(tensor), " elements of the shape ",
                shape_text(tensor),
                " share a place; outputs need an element of their own for each index");
}

Extent take_strides(const attn_tensor& source, const char* name, Intake intake, bool is_output,
                    Filling filling, Tensor& tensor) {
  const bool may_default =
      (intake != Intake::kExecute && source.data == nullptr) || filling == Filling::kUnknown;
  const bool unstated =
      (source.flags & ATTN_TENSOR_BROADCAST) == 0 && all_zero(source.strides, source.ndim);
  const bool defaults = filling == Filling::kEmpty || (may_default && unstated);
  if (unstated && !defaults && tensor.elements() > 1) {
    fail_unstated_strides(name, is_output, tensor);
  }
  Extent extent;
  bool overflow = false;
  int64_t row_major = 1;
  for (int32_t i = source.ndim - 1; i >= 0; --i) {
    const size_t axis = static_cast<size_t>(i);
    const int64_t size = tensor.shape[axis];
    // The stride of a single element is never multiplied by anything but 0.
    const int64_t stride = defaults || size == 1 ? row_major : source.strides[axis];
    tensor.strides[axis] = stride;
    row_major = size < 0 ? 0 : row_major * std::max<int64_t>(size, 1);
    // A default stride is 0 only where a size further in is not known.
    if (stride == 0 && is_output && size > 1 && !defaults) {
      fail_argument(name, ": stride 0 on axis ", i, " of size ", size,
                    "; outputs need an element of their own for each index");
    }
    if (size < 0) continue;
    int64_t reach;
    overflow |= __builtin_mul_overflow(size - 1, stride, &reach);
    int64_t& side = reach < 0 ? extent.low : extent.high;
    overflow |= __builtin_add_overflow(side, reach, &side);
  }
  if (filling != Filling::kElements) return Extent();
  if (overflow) fail_argument(name, ": the strides reach further than 64 bits count");
  if (is_output && !defaults && provably_overlaps_itself(tensor)) fail_shared_place(name, tensor);
  return extent;
}

// Whether base + offset fits an address; `*sum` gets it.
bool add_offset(uintptr_t base, int64_t offset, uintptr_t* sum) {
  if (offset < 0) return !__builtin_sub_overflow(base, 0 - static_cast<uintptr_t>(offset), sum);
  return !__builtin_add_overflow(base, static_cast<uintptr_t>(offset), sum);
}

bool is_aligned(uintptr_t address, int64_t size) {
  const auto unit = static_cast<uintptr_t>(size);
  return (unit & (unit - 1)) == 0 ? (address & (unit - 1)) == 0 : address % unit == 0;
}

void take_memory(const attn_tensor& source, const char* name, Intake intake, Filling filling,
                 const Extent& extent, Tensor& tensor, ByteRange& range) {
  const int64_t size = element_bytes(tensor.type);
  int64_t lowest = 0, end = 0;  // bytes from the first element on
  if (filling == Filling::kElements && (__builtin_mul_overflow(extent.low, size, &lowest) ||
                                        __builtin_mul_overflow(extent.high, size, &end) ||
                                        __builtin_add_overflow(end, size, &end))) {
    fail_argument(name, ": the strides reach further than 64 bits count");
  }
  if (source.data == nullptr) {
    if (intake == Intake::kExecute && filling != Filling::kEmpty) {
      fail_argument(name, ": data is null, but the shape ", shape_text(tensor), " has elements");
    }
    return;
  }
  if (source.data_bytes != 0 && end > 0) {
    uintptr_t first = 0, last = 0;
    if (!add_offset(source.byte_offset, lowest, &first) ||
        !add_offset(source.byte_offset, end, &last) || last > source.data_bytes) {
      fail_argument(name, ": the strides reach bytes ", lowest, " to ", end, " from byte_offset ",
                    source.byte_offset, "; data_bytes is ", source.data_bytes);
    }
  }
  uintptr_t address = 0;
  if (__builtin_add_overflow(reinterpret_cast<uintptr_t>(source.data), source.byte_offset,
                             &address) ||
      !add_offset(address, lowest, &range.begin) || !add_offset(address, end, &range.end)) {
    fail_argument(name, ": data, byte_offset and strides reach beyond the address space");
  }
  if (filling != Filling::kEmpty && !is_aligned(address, size)) {
    fail_argument(name, ": the data is not aligned to its element size of ", size, " bytes");
  }
  tensor.data = reinterpret_cast<void*>(address);
}

}  // namespace

void check_bytes(const char* name, const Tensor& tensor) {
  int64_t bytes = element_bytes(tensor.type);
  for (int32_t axis = 0; axis < tensor.rank; ++axis) {
    const int64_t size = tensor.shape[static_cast<size_t>(axis)];
    if (size <= 0 || !__builtin_mul_overflow(bytes, size, &bytes)) continue;
    std::string axes;
    for (int32_t i = 0; i <= axis; ++i) {
      if (tensor.shape[static_cast<size_t>(i)] > 1) {
        axes += cat(axes.empty() ? "" : " * ", "shape[", i, "]");
      }
    }
    fail_argument(name, ": the shape ", shape_text(tensor), " has more bytes than 64 bits count; ",
                  axes, " is too large for elements of ", element_bytes(tensor.type), " bytes");
  }
}

void set_row_major_strides(Tensor& tensor) {
  int64_t stride = 1;
  for (int32_t i = tensor.rank - 1; i >= 0; --i) {
    const size_t axis = static_cast<size_t>(i);
    tensor.strides[axis] = stride;
    const int64_t size = tensor.shape[axis];
    stride = size == kAnyDim ? 0 : stride * std::max<int64_t>(size, 1);
  }
}

void take_tensor(const attn_tensor* source, const char* name, Intake intake, bool is_output,
                 const DeviceIdentity& device, Tensor& tensor, ByteRange& range) {
  attn_tensor copy;
  copy_in(source, name, copy);
  check_flags(copy.flags, ATTN_TENSOR_READ_ONLY | ATTN_TENSOR_BROADCAST, name);
  if (is_output && (copy.flags & ATTN_TENSOR_READ_ONLY) != 0) {
    fail_argument(name, ": the tensor is read-only and cannot be an output");
  }
  if (copy.dtype.lanes != 1) {
    fail_argument(name, ": dtype.lanes is ", copy.dtype.lanes, "; only 1 is accepted");
  }
  tensor.present = true;
  tensor.type = {copy.dtype.code, copy.dtype.bits, 1};
  tensor.placement = place(copy, name, device);
  const Filling filling = take_shape(copy, name, intake, tensor);
  const Extent extent = take_strides(copy, name, intake, is_output, filling, tensor);
  take_memory(copy, name, intake, filling, extent, tensor, range);
}

}  // namespace attn::api
