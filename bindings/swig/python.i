/* Python's side of attn_c.i: errors become exceptions, out-parameters become results, addresses are
 * ints, and tensors come in as DLPack capsules. Limited API only. */
%{
#ifndef Py_LIMITED_API
#error "the module promises the stable ABI: define Py_LIMITED_API"
#endif

#include "described.h"
#include "dlpack_capsule.h"
#include "dlpack_export.h"
#include "execute_by_name.h"
#include "python_error.h"
#include "sequences.h"
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
%define ATTN_SEQUENCE(T)
%typemap(in) const std::vector<T>& (std::vector<T> values) {
  if (!take_sequence($input, &values)) SWIG_fail;
  $1 = &values;
}
%enddef
ATTN_SEQUENCE(int64_t)
ATTN_SEQUENCE(double)

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

/* A method of nothing is refused, and not followed. */
%typemap(check) SWIGTYPE* self {
  if ($1 == nullptr) {
    SWIG_exception_fail(SWIG_ValueError, "$symname: an object is needed; got None");
  }
}

/* What bindings/python adds: capsules of descriptions, calls by name, and exceptions. */
PyObject* capsule_of(const attn_tensor* tensor, PyObject* owner, bool versioned);
PyObject* described(attn_tensor* tensor, PyObject* owner);
PyObject* execute_by_name(attn_plan* plan, attn_session* session, PyObject* inputs,
                          PyObject* outputs, PyObject* names, const attn_execute_desc* desc,
                          void* stream);
void set_error_factory(PyObject* factory);
