#include "api/tensor_intake.h"

#include <algorithm>
#include <limits>

#include "api/struct_io.h"
#include "core/error.h"

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

void take_shape(const attn_tensor& source, const char* name, Intake intake, Tensor& tensor) {
  if (source.ndim < 0 || source.ndim > kMaxRank) {
    fail_argument(name, ": ndim is ", source.ndim, "; 0 to ", kMaxRank, " are accepted");
  }
  tensor.rank = source.ndim;
  int64_t bytes = std::max<int64_t>(1, size_of(tensor.type));
  for (int32_t axis = 0; axis < tensor.rank; ++axis) {
    const int64_t size = source.shape[axis];
    if (size < 0 && (size != kAnyDim || intake != Intake::kShapes)) {
      fail_argument(name, ": shape[", axis, "] is ", size,
                    intake == Intake::kShapes ? "; 0 and up, and -1 for any, are accepted"
                                              : "; 0 and up are accepted");
    }
    tensor.shape[static_cast<size_t>(axis)] = size;
    // Zero sizes are left out: the products of the others appear in strides and offsets too.
    if (size > 0 && __builtin_mul_overflow(bytes, size, &bytes)) {
      fail_argument(name, ": the shape ", shape_text(tensor), " has more bytes than 64 bits count");
    }
  }
}

bool all_zero(const int64_t* values, int32_t count) {
  return std::all_of(values, values + count, [](int64_t value) { return value == 0; });
}

void take_strides(const attn_tensor& source, const char* name, Intake intake, bool is_output,
                  Tensor& tensor) {
  const bool may_default =
      intake == Intake::kShapes || (intake == Intake::kPlan && source.data == nullptr);
  set_row_major_strides(tensor);
  if (tensor.elements() == 0 || (may_default && all_zero(source.strides, tensor.rank))) return;
  for (int32_t i = 0; i < tensor.rank; ++i) {
    const size_t axis = static_cast<size_t>(i);
    const int64_t size = tensor.shape[axis];
    if (size == 1) continue;  // never multiplied by anything but 0
    const int64_t stride = source.strides[axis];
    tensor.strides[axis] = stride;
    if (stride == 0 && is_output) {
      fail_argument(name, ": stride 0 on axis ", i, " of size ", size,
                    "; outputs need an element of their own for each index");
    }
  }
}

// Offsets in bytes, from the first element, of the lowest byte and of the end; throws where they
// do not fit 64 bits. Needs known sizes and at least one element.
void extent_of(const Tensor& tensor, const char* name, int64_t* lowest, int64_t* end) {
  const int64_t size = size_of(tensor.type);
  int64_t low = 0, high = 0;
  bool overflow = false;
  for (int32_t i = 0; i < tensor.rank; ++i) {
    const size_t axis = static_cast<size_t>(i);
    int64_t reach;
    overflow |= __builtin_mul_overflow(tensor.shape[axis] - 1, tensor.strides[axis], &reach);
    int64_t& side = reach < 0 ? low : high;
    overflow |= __builtin_add_overflow(side, reach, &side);
  }
  overflow |= __builtin_mul_overflow(low, size, &low);
  overflow |= __builtin_mul_overflow(high, size, &high);
  overflow |= __builtin_add_overflow(high, size, &high);
  if (overflow) fail_argument(name, ": the strides reach further than 64 bits count");
  *lowest = low;
  *end = high;
}

// Whether base + offset fits an address; `*sum` gets it.
bool add_offset(uintptr_t base, int64_t offset, uintptr_t* sum) {
  if (offset < 0) return !__builtin_sub_overflow(base, 0 - static_cast<uintptr_t>(offset), sum);
  return !__builtin_add_overflow(base, static_cast<uintptr_t>(offset), sum);
}

void take_memory(const attn_tensor& source, const char* name, Intake intake, Tensor& tensor,
                 ByteRange& range) {
  const bool empty = tensor.elements() == 0;
  int64_t lowest = 0, end = 0;
  if (tensor.elements() > 0) extent_of(tensor, name, &lowest, &end);
  if (source.data == nullptr) {
    if (intake == Intake::kExecute && !empty) {
      fail_argument(name, ": data is null, but the shape ", shape_text(tensor), " has elements");
    }
    return;
  }
  if (source.data_bytes != 0 && end > 0) {
    uintptr_t first = 0, last = 0;
    if (!add_offset(source.byte_offset, lowest, &first) ||
        !add_offset(source.byte_offset, end, &last) || last > source.data_bytes) {
      fail_argument(name, ": the strides reach bytes ", lowest, " to ", end,
                    " from byte_offset ", source.byte_offset, "; data_bytes is ",
                    source.data_bytes);
    }
  }
  uintptr_t address = 0;
  if (__builtin_add_overflow(reinterpret_cast<uintptr_t>(source.data), source.byte_offset,
                             &address) ||
      !add_offset(address, lowest, &range.begin) || !add_offset(address, end, &range.end)) {
    fail_argument(name, ": data, byte_offset and strides reach beyond the address space");
  }
  if (!empty && address % static_cast<uintptr_t>(size_of(tensor.type)) != 0) {
    fail_argument(name, ": the data is not aligned to its element size of ",
                  size_of(tensor.type), " bytes");
  }
  tensor.data = static_cast<char*>(source.data) + source.byte_offset;
}

}  // namespace

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
  check_flags(copy.flags, ATTN_TENSOR_READ_ONLY, name);
  if (is_output && (copy.flags & ATTN_TENSOR_READ_ONLY) != 0) {
    fail_argument(name, ": the tensor is read-only and cannot be an output");
  }
  if (copy.dtype.lanes != 1) {
    fail_argument(name, ": dtype.lanes is ", copy.dtype.lanes, "; only 1 is accepted");
  }
  tensor.present = true;
  tensor.type = {copy.dtype.code, copy.dtype.bits, 1};
  tensor.placement = place(copy, name, device);
  take_shape(copy, name, intake, tensor);
  take_strides(copy, name, intake, is_output, tensor);
  take_memory(copy, name, intake, tensor, range);
}

}  // namespace attn::api
