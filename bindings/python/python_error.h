// The library's errors as exceptions of the package.
#pragma once

#include <Python.h>

#include "attn_c.h"

// What makes an exception of (status, native code, native domain, flags, message). Set once by the
// package when it is imported; kept for the life of the process.
inline PyObject*& error_factory() {
  static PyObject* factory = nullptr;
  return factory;
}

inline void set_error_factory(PyObject* factory) {
  Py_XINCREF(factory);
  PyObject* const old = error_factory();
  error_factory() = factory;
  Py_XDECREF(old);
}

inline void raise_error(const attn_error& error) {
  if (error_factory() == nullptr) {
    PyErr_SetString(PyExc_RuntimeError, error.message);
    return;
  }
  PyObject* exception = PyObject_CallFunction(
      error_factory(), "iLIIs", static_cast<int>(error.status),
      static_cast<long long>(error.native_code), static_cast<unsigned>(error.native_domain),
      static_cast<unsigned>(error.flags), error.message);
  if (exception == nullptr) return;
  PyErr_SetObject(reinterpret_cast<PyObject*>(Py_TYPE(exception)), exception);
  Py_DECREF(exception);
}
