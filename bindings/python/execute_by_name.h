// attn_plan_execute with tensors by name, in one step: what a loop over layers calls.
#pragma once

#include <Python.h>

#include "attn_c.h"
#include "named_arguments.h"
#include "python_error.h"

// Runs a plan on dictionaries {name: tensor}. `names` is ({input: slot}, {output: slot}, describe,
// attn_c.Tensor), as NamedArguments has them. `desc` may be null: then `stream` counts, else the
// desc's. None, or null with a Python exception. Other threads of Python run during the execute.
inline PyObject* execute_by_name(attn_plan* plan, attn_session* session, PyObject* inputs,
                                 PyObject* outputs, PyObject* names, const attn_execute_desc* desc,
                                 void* stream) {
  if (PyDict_Check(inputs) == 0 || PyDict_Check(outputs) == 0 || PyTuple_Check(names) == 0 ||
      PyTuple_Size(names) != 4 || PyDict_Check(PyTuple_GetItem(names, 0)) == 0 ||
      PyDict_Check(PyTuple_GetItem(names, 1)) == 0 ||
      PyType_Check(PyTuple_GetItem(names, 3)) == 0) {
    PyErr_SetString(PyExc_TypeError,
                    "execute_by_name: expected dictionaries of tensors, and names");
    return nullptr;
  }
  attn_execute_desc given = ATTN_EXECUTE_DESC_INIT;
  given.stream = stream;
  if (desc == nullptr) desc = &given;
  const NamedCall call{PyTuple_GetItem(names, 2), PyTuple_GetItem(names, 3), desc->stream};
  NamedArguments ins(call, false), outs(call, true);
  if (!ins.fill(inputs, PyTuple_GetItem(names, 0))) return nullptr;
  if (!outs.fill(outputs, PyTuple_GetItem(names, 1))) return nullptr;
  attn_error error = ATTN_ERROR_INIT;
  PyThreadState* const state = PyEval_SaveThread();
  const attn_status status = attn_plan_execute(plan, session, ins.data(), ins.size(), outs.data(),
                                               outs.size(), desc, &error);
  PyEval_RestoreThread(state);
  if (status != ATTN_OK) {
    raise_error(error);
    return nullptr;
  }
  Py_INCREF(Py_None);
  return Py_None;
}
