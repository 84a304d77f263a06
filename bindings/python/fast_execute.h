// plan_execute with tensors by name, in one step: what a loop over layers calls.
#pragma once

#include <Python.h>

#include <cstdint>

#include "attn_c.h"
#include "dlpack_capsule.h"

// The arguments of one call: descriptions, and the capsules that keep their memory. Everything that
// is not the usual case (names, absent tensors of outputs, plain numbers, types without DLPack) is
// left to the layer in Python, which says what is wrong with it.
class FastArguments {
 public:
  static constexpr uint32_t kMost = 32;

  FastArguments() = default;
  FastArguments(const FastArguments&) = delete;
  FastArguments& operator=(const FastArguments&) = delete;
  ~FastArguments() {
    for (uint32_t i = 0; i < count_; ++i) Py_XDECREF(capsules_[i]);
  }

  // Takes {name: tensor}; `slots` is {name: slot}, `keywords` what __dlpack__ is called with. False
  // without an exception where the layer in Python is to do it.
  bool fill(PyObject* values, PyObject* slots, PyObject* keywords) {
    if (PyDict_CheckExact(values) == 0) return false;
    PyObject *name = nullptr, *value = nullptr;
    Py_ssize_t position = 0;
    while (PyDict_Next(values, &position, &name, &value) != 0) {
      if (value == Py_None) continue;
      PyObject* slot = PyDict_GetItem(slots, name);  // borrowed
      bool added = slot != nullptr && count_ < kMost;
      if (added) {
        Py_INCREF(value);  // its own code runs now
        added = add(value, slot, keywords);
        Py_DECREF(value);
      }
      if (!added) {
        PyErr_Clear();
        return false;
      }
    }
    return true;
  }

  const attn_arg* data() const { return args_; }
  uint32_t size() const { return count_; }

 private:
  bool add(PyObject* value, PyObject* slot, PyObject* keywords) {
    static PyObject* const name = PyUnicode_InternFromString("__dlpack__");
    static PyObject* const none = PyTuple_New(0);
    PyObject* method = PyObject_GetAttr(value, name);
    if (method == nullptr) return false;
    PyObject* capsule = PyObject_Call(method, none, keywords);
    Py_DECREF(method);
    if (capsule == nullptr) return false;
    tensors_[count_] = ATTN_TENSOR_INIT;
    args_[count_] = {static_cast<uint32_t>(PyLong_AsUnsignedLong(slot)), 0, &tensors_[count_]};
    capsules_[count_] = capsule;
    ++count_;
    return PyErr_Occurred() == nullptr && tensor_of_capsule(capsule, &tensors_[count_ - 1]);
  }

  attn_tensor tensors_[kMost];
  attn_arg args_[kMost];
  PyObject* capsules_[kMost];
  uint32_t count_ = 0;
};
