// Sequences of Python's numbers as vectors.
#pragma once

#include <Python.h>

#include <cstdint>
#include <vector>

// As the library has integers. New references; null with a Python exception for what is none.
inline PyObject* number_of(PyObject* item, int64_t) { return PyNumber_Index(item); }
inline PyObject* number_of(PyObject* item, double) { return PyNumber_Float(item); }
inline void take(PyObject* number, int64_t* value) { *value = PyLong_AsLongLong(number); }
inline void take(PyObject* number, double* value) { *value = PyFloat_AsDouble(number); }

// Appends the elements of a sequence; false with a Python exception.
template <typename T>
bool take_sequence(PyObject* sequence, std::vector<T>* values) {
  const Py_ssize_t size = PySequence_Size(sequence);
  if (size < 0) return false;
  values->reserve(static_cast<size_t>(size));
  for (Py_ssize_t i = 0; i < size; ++i) {
    PyObject* item = PySequence_GetItem(sequence, i);
    if (item == nullptr) return false;
    PyObject* number = number_of(item, T{});
    Py_DECREF(item);
    if (number == nullptr) return false;
    take(number, &values->emplace_back());
    Py_DECREF(number);
    if (PyErr_Occurred() != nullptr) return false;
  }
  return true;
}
