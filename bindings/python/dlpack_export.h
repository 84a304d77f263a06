// Makes DLPack capsules of described memory under Python's limited API.
#pragma once

#include <Python.h>

#include <cstdint>

#include "attn_c.h"
#include "dlpack_capsule.h"

namespace dlpack {

// What a capsule's consumer holds: the tensor, its extents, and a reference to the Python object
// whose memory it is.
template <typename Managed>
struct Export {
  Managed managed;
  int64_t shape[ATTN_MAX_RANK];
  int64_t strides[ATTN_MAX_RANK];
};

// Called by whoever took the tensor, on any thread, with or without Python's lock. Once Python has
// ended there is nothing to give back.
template <typename Managed>
void release_export(Managed* managed) {
  if (Py_IsInitialized() != 0) {
    const PyGILState_STATE state = PyGILState_Ensure();
    Py_XDECREF(static_cast<PyObject*>(managed->manager));
    PyGILState_Release(state);
  }
  delete reinterpret_cast<Export<Managed>*>(managed);
}

// A capsule that nobody took: one that was is called used_..., and its tensor is not ours any more.
template <typename Managed>
void release_capsule(PyObject* capsule, const char* name) {
  if (PyCapsule_IsValid(capsule, name) == 0) return;
  release_export(static_cast<Managed*>(PyCapsule_GetPointer(capsule, name)));
}

inline void release_unversioned(PyObject* capsule) {
  release_capsule<ManagedTensor>(capsule, "dltensor");
}

inline void release_versioned(PyObject* capsule) {
  release_capsule<ManagedTensorVersioned>(capsule, "dltensor_versioned");
}

template <typename Managed>
Export<Managed>* make_export(const attn_tensor& from, PyObject* owner) {
  auto* out = new Export<Managed>{};
  Tensor& tensor = out->managed.tensor;
  for (int32_t axis = 0; axis < from.ndim; ++axis) {
    out->shape[axis] = from.shape[axis];
    out->strides[axis] = from.strides[axis];
  }
  tensor.data = from.data;
  tensor.device = {from.device_type, from.device_id};
  tensor.ndim = from.ndim;
  tensor.dtype = {from.dtype.code, from.dtype.bits, from.dtype.lanes};
  tensor.shape = out->shape;
  tensor.strides = out->strides;
  tensor.byte_offset = from.byte_offset;
  Py_INCREF(owner);
  out->managed.manager = owner;
  out->managed.deleter = release_export<Managed>;
  return out;
}

}  // namespace dlpack

// A new capsule of the tensor, which keeps `owner` until its consumer lets go; null with a Python
// exception where memory ran out. A read-only tensor has a versioned capsule alone.
inline PyObject* capsule_of(const attn_tensor* described, PyObject* owner, bool versioned) {
  if (described == nullptr) {
    PyErr_SetString(PyExc_ValueError, "capsule_of: a tensor is needed");
    return nullptr;
  }
  const attn_tensor& tensor = *described;
  PyObject* capsule = nullptr;
  if (versioned) {
    auto* made = dlpack::make_export<dlpack::ManagedTensorVersioned>(tensor, owner);
    made->managed.major = 1;
    made->managed.minor = 0;
    made->managed.flags = (tensor.flags & ATTN_TENSOR_READ_ONLY) != 0 ? dlpack::kReadOnly : 0;
    capsule = PyCapsule_New(&made->managed, "dltensor_versioned", dlpack::release_versioned);
    if (capsule == nullptr) dlpack::release_export(&made->managed);
  } else {
    auto* made = dlpack::make_export<dlpack::ManagedTensor>(tensor, owner);
    capsule = PyCapsule_New(&made->managed, "dltensor", dlpack::release_unversioned);
    if (capsule == nullptr) dlpack::release_export(&made->managed);
  }
  return capsule;
}
