/* Python's side of attn_c.i: errors become exceptions, out-parameters become results, addresses are
 * ints, and tensors come in as DLPack capsules. Limited API only. */
%{
#ifndef Py_LIMITED_API
#error "the module promises the stable ABI: define Py_LIMITED_API"
#endif

#include "dlpack_capsule.h"
#include "dlpack_export.h"
#include "fast_execute.h"

namespace {

/* Makes an exception of (status, native code, native domain, flags, message). Set once by the
 * package when it is imported; kept for the life of the process. */
PyObject* error_factory = nullptr;

void raise_error(const attn_error& error) {
  if (error_factory == nullptr) {
    PyErr_SetString(PyExc_RuntimeError, error.message);
    return;
  }
  PyObject* exception = PyObject_CallFunction(
      error_factory, "iLIIs", static_cast<int>(error.status),
      static_cast<long long>(error.native_code), static_cast<unsigned>(error.native_domain),
      static_cast<unsigned>(error.flags), error.message);
  if (exception == nullptr) return;
  PyErr_SetObject(reinterpret_cast<PyObject*>(Py_TYPE(exception)), exception);
  Py_DECREF(exception);
}

}  // namespace
%}

%include "typemaps.i"
%include "std_string.i"

/* Status and error: nothing comes back for OK, an exception for the rest. The error is the last
 * parameter, so its turn is after those of the results, which are given up. */
%typemap(out) attn_status "$result = NULL;"
%typemap(ret) attn_status "if (!$result) $result = SWIG_Py_Void();"
%typemap(in, numinputs=0) attn_error* error (attn_error local) {
  local.struct_size = sizeof(attn_error);
  local.message[0] = '\0';
  $1 = &local;
}
%typemap(argout) attn_error* error {
  if (result != ATTN_OK) {
    Py_XDECREF($result);
    $result = NULL;
    raise_error(local$argnum);
    SWIG_fail;
  }
}
/* A status that is a field, not a function's result. */
%typemap(out) attn_status status "$result = PyLong_FromLong($1);"
%typemap(ret) attn_status status ""

/* New handles. */
%define ATTN_HANDLE_RESULT(T)
%typemap(in, numinputs=0) T** (T* handle = nullptr) "$1 = &handle;"
%typemap(argout) T** {
  if (result == ATTN_OK) {
    %append_output(SWIG_NewPointerObj(handle$argnum, $descriptor(T*), SWIG_POINTER_OWN));
  }
}
%enddef
ATTN_HANDLE_RESULT(attn_context)
ATTN_HANDLE_RESULT(attn_session)
ATTN_HANDLE_RESULT(attn_op)
ATTN_HANDLE_RESULT(attn_plan)
ATTN_HANDLE_RESULT(attn_binding)
ATTN_HANDLE_RESULT(attn_host_graph)

%apply unsigned int* OUTPUT { uint32_t* count, uint32_t* depends_on_value };

/* Text: the caller names the room, and gets the text and the bytes that it needs. */
%typemap(in) (char* buffer, size_t capacity, size_t* needed) (std::string text, size_t size) {
  const size_t room = PyLong_AsSize_t($input);
  if (PyErr_Occurred()) SWIG_fail;
  if (room > size_t{1} << 28) SWIG_exception_fail(SWIG_ValueError, "$symname: too much room");
  text.resize(room);
  size = 0;
  $1 = text.empty() ? nullptr : text.data();
  $2 = room;
  $3 = &size;
}
%typemap(argout) (char* buffer, size_t capacity, size_t* needed) {
  if (result == ATTN_OK) {
    %append_output(PyUnicode_DecodeUTF8(text$argnum.c_str(), std::strlen(text$argnum.c_str()),
                                        "replace"));
    %append_output(PyLong_FromSize_t(size$argnum));
  }
}

/* Arguments: an ArgumentList, or None for none. */
%define ATTN_ARGUMENTS(ARGS, COUNT)
%typemap(in) (const attn_arg* ARGS, uint32_t COUNT) {
  void* pointer = nullptr;
  if (!SWIG_IsOK(SWIG_ConvertPtr($input, &pointer, $descriptor(ArgumentList*), 0))) {
    SWIG_exception_fail(SWIG_TypeError, "$symname: ARGS must be an ArgumentList or None");
  }
  const ArgumentList* list = static_cast<const ArgumentList*>(pointer);
  $1 = list != nullptr ? const_cast<attn_arg*>(list->data()) : nullptr;
  $2 = list != nullptr ? list->size() : 0;
}
%enddef
ATTN_ARGUMENTS(inputs, input_count)
ATTN_ARGUMENTS(outputs, output_count)

/* Addresses and foreign handles are ints; None is null. */
%typemap(in) void* {
  $1 = $input == Py_None ? nullptr : PyLong_AsVoidPtr($input);
  if (PyErr_Occurred()) SWIG_fail;
}
%typemap(in) const void* = void*;
%typemap(out) void* "$result = PyLong_FromVoidPtr($1);"
%typemap(in, numinputs=0) void** (void* address = nullptr) "$1 = &address;"
%typemap(argout) void** {
  if (result == ATTN_OK) %append_output(PyLong_FromVoidPtr(address$argnum));
}

/* Sequences of numbers. */
%define ATTN_SEQUENCE(T, FROM_PYTHON)
%typemap(in) const std::vector<T>& (std::vector<T> values) {
  const Py_ssize_t size = PySequence_Size($input);
  if (size < 0) SWIG_fail;
  values.reserve(static_cast<size_t>(size));
  for (Py_ssize_t i = 0; i < size; ++i) {
    PyObject* item = PySequence_GetItem($input, i);
    if (item == nullptr) SWIG_fail;
    PyObject* number = FROM_PYTHON##_object(item);
    Py_DECREF(item);
    if (number == nullptr) SWIG_fail;
    values.push_back(FROM_PYTHON##_value(number));
    Py_DECREF(number);
    if (PyErr_Occurred()) SWIG_fail;
  }
  $1 = &values;
}
%enddef
%{
namespace {

PyObject* integer_object(PyObject* item) { return PyNumber_Index(item); }
int64_t integer_value(PyObject* number) { return PyLong_AsLongLong(number); }
PyObject* real_object(PyObject* item) { return PyNumber_Float(item); }
double real_value(PyObject* number) { return PyFloat_AsDouble(number); }

}  // namespace
%}
ATTN_SEQUENCE(int64_t, integer)
ATTN_SEQUENCE(double, real)

%extend ArgumentList {
  /* Adds the tensor of a DLPack capsule, which the caller keeps until the call or the binding that
   * uses the list has ended. */
  PyObject* add_capsule(uint32_t slot, PyObject* capsule) {
    attn_tensor tensor = ATTN_TENSOR_INIT;
    if (!tensor_of_capsule(capsule, &tensor)) return nullptr;
    $self->add_tensor(slot, &tensor);
    Py_INCREF(Py_None);
    return Py_None;
  }
}

%apply unsigned int* OUTPUT { uint32_t* done };
%apply void* { void* stream };

%inline %{
/* A new DLPack capsule of a description; it keeps `owner` until its consumer lets go. */
PyObject* capsule_of(const attn_tensor* tensor, PyObject* owner, bool versioned) {
  if (tensor == nullptr) {
    PyErr_SetString(PyExc_ValueError, "capsule_of: a tensor is needed");
    return nullptr;
  }
  return capsule_of_tensor(*tensor, owner, versioned);
}

/* attn_plan_execute with tensors by name. `done` is 0, and nothing ran, where an argument is not
 * the usual case: the layer in Python takes such calls. */
attn_status execute_by_name(attn_plan* plan, attn_session* session, PyObject* inputs,
                            PyObject* input_slots, PyObject* outputs, PyObject* output_slots,
                            PyObject* keywords, void* stream, uint32_t* done, attn_error* error) {
  FastArguments ins, outs;
  *done = ins.fill(inputs, input_slots, keywords) && outs.fill(outputs, output_slots, keywords);
  if (*done == 0) return ATTN_OK;
  attn_execute_desc desc = ATTN_EXECUTE_DESC_INIT;
  desc.stream = stream;
  PyThreadState* const state = PyEval_SaveThread();
  const attn_status status = attn_plan_execute(plan, session, ins.data(), ins.size(), outs.data(),
                                               outs.size(), &desc, error);
  PyEval_RestoreThread(state);
  return status;
}

/* Sets what makes an exception of (status, native code, native domain, flags, message). */
void set_error_factory(PyObject* factory) {
  Py_XINCREF(factory);
  Py_XDECREF(error_factory);
  error_factory = factory;
}
%}
