// Descriptions of tensors that Python hands on: capsules called "attn_tensor".
#pragma once

#include <Python.h>

#include "attn_c.h"

constexpr const char* kDescribed = "attn_tensor";

inline void release_described(PyObject* capsule) {
  Py_XDECREF(static_cast<PyObject*>(PyCapsule_GetContext(capsule)));
}

// A new capsule of a description; it keeps `owner`, whose the description is. Null with a Python
// exception where that cannot be.
inline PyObject* described(attn_tensor* tensor, PyObject* owner) {
  if (tensor == nullptr) {
    PyErr_SetString(PyExc_ValueError, "described: a tensor is needed");
    return nullptr;
  }
  PyObject* capsule = PyCapsule_New(tensor, kDescribed, release_described);
  if (capsule == nullptr) return nullptr;
  Py_INCREF(owner);
  PyCapsule_SetContext(capsule, owner);
  return capsule;
}
