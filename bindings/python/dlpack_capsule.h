// Reads DLPack capsules under Python's limited API.
//
// The capsule is only looked into: it keeps its name and stays the owner, so its own destructor
// frees the tensor when the last reference to it goes.
#pragma once

#include <Python.h>

#include <cstdint>

#include "attn_c.h"

namespace dlpack {

// Memory layouts of DLPack 0.x and 1.x (dmlc/dlpack, dlpack.h).
struct Device {
  int32_t type;
  int32_t id;
};

struct DataType {
  uint8_t code;
  uint8_t bits;
  uint16_t lanes;
};

struct Tensor {
  void* data;
  Device device;
  int32_t ndim;
  DataType dtype;
  int64_t* shape;
  int64_t* strides;  // elements; null where row-major without gaps
  uint64_t byte_offset;
};

// "dltensor"
struct ManagedTensor {
  Tensor tensor;
  void* manager;
  void (*deleter)(ManagedTensor*);
};

// "dltensor_versioned"
struct ManagedTensorVersioned {
  uint32_t major;
  uint32_t minor;
  void* manager;
  void (*deleter)(ManagedTensorVersioned*);
  uint64_t flags;
  Tensor tensor;
};

constexpr uint64_t kReadOnly = 1;

}  // namespace dlpack

// Whether a type is one that the library knows at all; false with a Python exception.
inline bool is_known(dlpack::DataType type) {
  const bool real = type.bits == 16 || type.bits == 32 || type.bits == 64;
  const bool whole = real || type.bits == 8;
  const bool known = type.lanes == 1 && ((type.code == ATTN_DTYPE_FLOAT && real) ||
                                         (type.code == ATTN_DTYPE_INT && whole) ||
                                         (type.code == ATTN_DTYPE_UINT && whole) ||
                                         (type.code == ATTN_DTYPE_BFLOAT && type.bits == 16) ||
                                         (type.code == ATTN_DTYPE_BOOL && type.bits == 8) ||
                                         (type.code >= 10 && type.code <= 13 && type.bits == 8));
  if (known) return true;
  static const char* const kNames[] = {"int",    "uint",    "float", "handle",
                                       "bfloat", "complex", "bool"};
  const unsigned bits = type.bits, lanes = type.lanes;
  if (type.code < sizeof(kNames) / sizeof(*kNames)) {
    PyErr_Format(PyExc_BufferError, "elements of type %s%u%s came", kNames[type.code], bits,
                 lanes == 1 ? "" : ", not one by one,");
  } else {
    PyErr_Format(PyExc_BufferError, "elements of DLPack's type %u with %u bits came",
                 static_cast<unsigned>(type.code), bits);
  }
  return false;
}

// Describes the capsule's tensor; false with a Python exception set where that cannot be.
inline bool tensor_of_capsule(PyObject* capsule, attn_tensor* out) {
  const dlpack::Tensor* tensor = nullptr;
  if (PyCapsule_IsValid(capsule, "dltensor_versioned")) {
    const auto* managed = static_cast<const dlpack::ManagedTensorVersioned*>(
        PyCapsule_GetPointer(capsule, "dltensor_versioned"));
    if (managed->major != 1) {
      PyErr_Format(PyExc_BufferError, "a DLPack tensor of version %u.%u came, 1.x is accepted",
                   static_cast<unsigned>(managed->major), static_cast<unsigned>(managed->minor));
      return false;
    }
    if (managed->flags & dlpack::kReadOnly) out->flags |= ATTN_TENSOR_READ_ONLY;
    tensor = &managed->tensor;
  } else if (PyCapsule_IsValid(capsule, "dltensor")) {
    tensor = &static_cast<const dlpack::ManagedTensor*>(PyCapsule_GetPointer(capsule, "dltensor"))
                  ->tensor;
  } else {
    PyErr_SetString(PyExc_BufferError, "the object is no DLPack capsule, or was used before");
    return false;
  }
  if (tensor->ndim < 0 || tensor->ndim > ATTN_MAX_RANK) {
    PyErr_Format(PyExc_BufferError, "a tensor of rank %d came, at most %d is accepted",
                 static_cast<int>(tensor->ndim), ATTN_MAX_RANK);
    return false;
  }
  if (!is_known(tensor->dtype)) return false;
  out->device_type = tensor->device.type;
  out->device_id = tensor->device.id;
  out->dtype = {tensor->dtype.code, tensor->dtype.bits, tensor->dtype.lanes};
  out->ndim = tensor->ndim;
  out->data = tensor->data;
  out->byte_offset = tensor->byte_offset;
  out->flags |= ATTN_TENSOR_BROADCAST;  // strides are always stated
  int64_t stride = 1;
  for (int32_t axis = tensor->ndim - 1; axis >= 0; --axis) {
    out->shape[axis] = tensor->shape[axis];
    out->strides[axis] = tensor->strides != nullptr ? tensor->strides[axis] : stride;
    stride *= tensor->shape[axis];
  }
  return true;
}
