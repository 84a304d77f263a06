// The arguments of one call, from dictionaries of names.
#pragma once

#include <Python.h>

#include <cstdint>

#include "attn_c.h"
#include "described.h"
#include "dlpack_capsule.h"

// What all arguments of a call have in common. Nothing here is owned.
struct NamedCall {
  PyObject* describe;     // callable (outputs, name, value, stream, error) that gives a description
  PyObject* tensor_type;  // attn_c.Tensor, which carries its description
  void* stream;           // that will use the tensors; null is the null stream
};

// Inputs or outputs of one call: descriptions, and what keeps their memory. Each producer is asked
// once; one that is not of the usual kind (plain numbers, types without DLPack, errors) is left to
// `describe`, the layer's own way, which also finds the words where it refuses.
class NamedArguments {
 public:
  static constexpr uint32_t kMost = 32;

  NamedArguments(const NamedCall& call, bool outputs) : call_(call), outputs_(outputs) {}
  NamedArguments(const NamedArguments&) = delete;
  NamedArguments& operator=(const NamedArguments&) = delete;
  ~NamedArguments() {
    for (uint32_t i = 0; i < count_; ++i) Py_XDECREF(owners_[i]);
    Py_XDECREF(with_stream_);
  }

  // Takes {name: tensor}; `slots` is {name: slot}. False with a Python exception.
  bool fill(PyObject* values, PyObject* slots) {
    const Py_ssize_t size = PyDict_Size(values);
    PyObject *name = nullptr, *value = nullptr;
    Py_ssize_t position = 0;
    while (PyDict_Next(values, &position, &name, &value) != 0) {
      Py_INCREF(name);  // the value's own code runs now, and may change the dictionary
      Py_INCREF(value);
      const bool added = add(name, value, slots);
      Py_DECREF(name);
      Py_DECREF(value);
      if (!added) return false;
      if (PyDict_Size(values) != size) {
        PyErr_SetString(PyExc_RuntimeError, "the dictionary of tensors changed during the call");
        return false;
      }
    }
    return true;
  }

  const attn_arg* data() const { return args_; }
  uint32_t size() const { return count_; }

 private:
  bool add(PyObject* name, PyObject* value, PyObject* slots) {
    PyObject* slot = PyDict_GetItemWithError(slots, name);  // borrowed
    if (slot == nullptr && PyErr_Occurred() != nullptr) return false;
    if (slot != nullptr && value == Py_None && !outputs_) return true;
    if (count_ == kMost) {
      PyErr_Format(PyExc_ValueError, "more than %u tensors came", kMost);
      return false;
    }
    attn_tensor* tensor = &tensors_[count_];
    *tensor = ATTN_TENSOR_INIT;
    PyObject* owner = nullptr;
    if (slot == nullptr) {
      Py_XDECREF(describe(name, value, nullptr));  // says which names there are
      if (PyErr_Occurred() == nullptr) PyErr_SetObject(PyExc_KeyError, name);
      return false;
    }
    if (value == Py_None) {
      tensor = nullptr;  // the library has the words for an output without memory
    } else if ((owner = owner_of(name, value, tensor)) == nullptr) {
      return false;
    }
    args_[count_] = {static_cast<uint32_t>(PyLong_AsUnsignedLong(slot)), 0, tensor};
    owners_[count_] = owner;
    ++count_;
    return PyErr_Occurred() == nullptr;
  }

  // Fills the description; a new reference to what keeps it and its memory.
  PyObject* owner_of(PyObject* name, PyObject* value, attn_tensor* tensor) {
    static PyObject* const attribute = PyUnicode_InternFromString("_described");
    if (PyObject_TypeCheck(value, reinterpret_cast<PyTypeObject*>(call_.tensor_type)) != 0) {
      PyObject* description = PyObject_GetAttr(value, attribute);
      if (!copy(description, tensor)) return nullptr;
      Py_DECREF(description);  // the tensor's own
      Py_INCREF(value);
      return value;
    }
    PyObject* capsule = capsule_of_producer(value);
    if (capsule != nullptr && tensor_of_capsule(capsule, tensor)) return capsule;
    Py_XDECREF(capsule);
    const bool mine = PyErr_Occurred() == nullptr || PyErr_ExceptionMatches(PyExc_TypeError) != 0 ||
                      PyErr_ExceptionMatches(PyExc_BufferError) != 0 ||
                      PyErr_ExceptionMatches(PyExc_ValueError) != 0 ||
                      PyErr_ExceptionMatches(PyExc_RuntimeError) != 0;
    if (!mine) return nullptr;
    PyObject *kind = nullptr, *error = nullptr, *trace = nullptr;
    PyErr_Fetch(&kind, &error, &trace);
    if (kind != nullptr) {
      PyErr_NormalizeException(&kind, &error, &trace);
      if (trace != nullptr) PyException_SetTraceback(error, trace);
    }
    PyObject* description = describe(name, value, error);
    Py_XDECREF(kind);
    Py_XDECREF(error);
    Py_XDECREF(trace);
    return copy(description, tensor) ? description : nullptr;
  }

  // Takes over a description's content; gives the reference up where there is none.
  static bool copy(PyObject* description, attn_tensor* tensor) {
    if (description == nullptr) return false;
    const void* from = PyCapsule_GetPointer(description, kDescribed);
    if (from == nullptr) {
      Py_DECREF(description);
      return false;
    }
    *tensor = *static_cast<const attn_tensor*>(from);
    return true;
  }

  PyObject* describe(PyObject* name, PyObject* value, PyObject* error) {
    PyObject* stream = PyLong_FromVoidPtr(call_.stream);
    if (stream == nullptr) return nullptr;
    PyObject* result =
        PyObject_CallFunctionObjArgs(call_.describe, outputs_ ? Py_True : Py_False, name, value,
                                     stream, error != nullptr ? error : Py_None, nullptr);
    Py_DECREF(stream);
    return result;
  }

  // The capsule of a producer; null without an exception for what is none.
  PyObject* capsule_of_producer(PyObject* value) {
    static PyObject* const name = PyUnicode_InternFromString("__dlpack__");
    static PyObject* const nothing = PyTuple_New(0);
    static PyObject* const version = Py_BuildValue("{s(ii)}", "max_version", 1, 1);
    PyObject* method = PyObject_GetAttr(value, name);
    if (method == nullptr) {
      if (PyErr_ExceptionMatches(PyExc_AttributeError) != 0) PyErr_Clear();
      return nullptr;
    }
    PyObject* keywords = version;
    bool on_stream = false;
    PyObject* capsule = nullptr;
    if (call_.stream == nullptr || (is_on_device(value, &on_stream) &&
                                    (!on_stream || (keywords = stream_keywords()) != nullptr))) {
      capsule = PyObject_Call(method, nothing, keywords);
      // Producers of the first protocol know no version.
      if (capsule == nullptr && PyErr_ExceptionMatches(PyExc_TypeError) != 0) {
        PyErr_Clear();
        PyObject* old =
            on_stream ? Py_BuildValue("{sN}", "stream", PyLong_FromVoidPtr(call_.stream)) : nullptr;
        if (!on_stream || old != nullptr) capsule = PyObject_Call(method, nothing, old);
        Py_XDECREF(old);
      }
    }
    Py_DECREF(method);
    return capsule;
  }

  // Only producers on a device take a stream. False with an exception.
  static bool is_on_device(PyObject* value, bool* on_device) {
    PyObject* place = PyObject_CallMethod(value, "__dlpack_device__", nullptr);
    PyObject* kind = place != nullptr ? PySequence_GetItem(place, 0) : nullptr;
    const long number = kind != nullptr ? PyLong_AsLong(kind) : -1;
    Py_XDECREF(place);
    Py_XDECREF(kind);
    *on_device = number == ATTN_DEVICE_CUDA;
    if (PyErr_Occurred() == nullptr) return true;
    if (PyErr_ExceptionMatches(PyExc_AttributeError) != 0) {
      PyErr_SetString(PyExc_TypeError, "it has __dlpack__, and no __dlpack_device__");
    }
    return false;
  }

  PyObject* stream_keywords() {
    if (with_stream_ == nullptr) {
      with_stream_ = Py_BuildValue("{s(ii)sN}", "max_version", 1, 1, "stream",
                                   PyLong_FromVoidPtr(call_.stream));
    }
    return with_stream_;
  }

  const NamedCall call_;
  const bool outputs_;
  attn_tensor tensors_[kMost];
  attn_arg args_[kMost];
  PyObject* owners_[kMost];
  uint32_t count_ = 0;
  PyObject* with_stream_ = nullptr;
};
