/* The interface that SWIG reads for every language: the flat functions and structs of attn_c.h and
 * attn_c_host.h under their own names, and two helpers that own what the C structs only point to.
 * Each language adds its typemaps in a file of its own. */
%module(threads="1") native

%{
#include <cstring>

#include "attn_c.h"
#include "attn_c_host.h"
#include "argument_list.h"
#include "attribute_list.h"
%}

%include "stdint.i"

#ifdef SWIGPYTHON
/* Only calls that may run long let other threads of the language in. */
%nothread;
%thread attn_device_count;
%thread attn_device_get_info;
%thread attn_context_create;
%thread attn_context_trim;
%thread attn_session_create;
%thread attn_session_clear_faults;
%thread attn_op_prepare;
%thread attn_plan_execute;
%thread attn_binding_prepare;
%thread attn_binding_execute;
%thread attn_host_memory_alloc;
%thread attn_host_memory_free;
%thread attn_host_memory_copy;
%thread attn_host_stream_create;
%thread attn_host_stream_synchronize;
%thread attn_host_stream_release;
%thread attn_host_graph_begin_capture;
%thread attn_host_graph_end_capture;
%thread attn_host_graph_launch;
/* The last release may wait for a device. */
%define ATTN_RELEASE_LETS_OTHERS_IN(T)
%thread T::~T;
%thread T##_release;
%enddef
ATTN_RELEASE_LETS_OTHERS_IN(attn_context)
ATTN_RELEASE_LETS_OTHERS_IN(attn_session)
ATTN_RELEASE_LETS_OTHERS_IN(attn_op)
ATTN_RELEASE_LETS_OTHERS_IN(attn_plan)
ATTN_RELEASE_LETS_OTHERS_IN(attn_binding)
ATTN_RELEASE_LETS_OTHERS_IN(attn_host_graph)
#endif

/* Left to C: the tables, the callbacks, and the initialisers (every struct made here has its size
 * set). Arrays within structs are read through the methods below. */
%ignore attn_api;
%ignore attn_get_api;
%ignore attn_host_api;
%ignore attn_host_get_api;
%ignore attn_init;
%ignore attn_error;
%ignore attn_attribute;
%ignore attn_arg;
%ignore attn_alias;
%ignore attn_allocator;
%ignore attn_logger;
%ignore attn_executor;
%ignore attn_context_desc::allocator;
%ignore attn_context_desc::logger;
%ignore attn_context_desc::executor;
%ignore attn_tensor::shape;
%ignore attn_tensor::strides;
%ignore attn_plan_info::baked_slots;
%ignore attn_op_desc::attributes;
%ignore attn_op_desc::attribute_count;
%ignore attn_query_desc::inputs;
%ignore attn_query_desc::outputs;
%ignore attn_query_desc::aliases;
%ignore attn_query_desc::input_count;
%ignore attn_query_desc::output_count;
%ignore attn_query_desc::alias_count;
%ignore attn_prepare_desc::inputs;
%ignore attn_prepare_desc::outputs;
%ignore attn_prepare_desc::aliases;
%ignore attn_prepare_desc::input_count;
%ignore attn_prepare_desc::output_count;
%ignore attn_prepare_desc::alias_count;

#ifdef SWIGCSHARP
/* Nothing of this layer is seen from outside of the assembly. */
%typemap(csclassmodifiers) SWIGTYPE "internal class"
#endif

/* Handles: objects without fields; the last owner releases. */
%define ATTN_HANDLE(T)
%nodefaultctor T;
%delobject T##_release;
struct T {};
%extend T {
  ~T() { T##_release($self); }
}
%enddef

ATTN_HANDLE(attn_context)
ATTN_HANDLE(attn_session)
ATTN_HANDLE(attn_op)
ATTN_HANDLE(attn_plan)
ATTN_HANDLE(attn_binding)
ATTN_HANDLE(attn_host_graph)

/* Structs that begin with their size: zeroed, sized. */
%define ATTN_STRUCT(T)
%ignore T::struct_size;
%extend T {
  T() { return new T(attn_init<T>()); }
  ~T() { delete $self; }
}
%enddef

ATTN_STRUCT(attn_tensor)
ATTN_STRUCT(attn_device_info)
ATTN_STRUCT(attn_context_info)
ATTN_STRUCT(attn_context_stats)
ATTN_STRUCT(attn_operator_info)
ATTN_STRUCT(attn_slot_info)
ATTN_STRUCT(attn_attribute_info)
ATTN_STRUCT(attn_support)
ATTN_STRUCT(attn_plan_info)
ATTN_STRUCT(attn_execute_desc)
ATTN_STRUCT(attn_fault_info)

/* Those with texts that the caller sets: a text is copied in, and freed with the struct. */
%define ATTN_STRUCT_WITH_TEXTS(T, FREE_TEXTS)
%ignore T::struct_size;
%warnfilter(SWIGWARN_TYPEMAP_CHARLEAK) T;
%extend T {
  T() { return new T(attn_init<T>()); }
  ~T() {
    FREE_TEXTS
    delete $self;
  }
}
%enddef

%{
namespace {

/* Replaces a text of a struct by a copy; null for none. */
void set_text(const char*& member, const char* text) {
  delete[] member;
  member = nullptr;
  if (text != nullptr) {
    const size_t size = std::strlen(text) + 1;
    member = static_cast<const char*>(std::memcpy(new char[size], text, size));
  }
}

}  // namespace
%}
%typemap(memberin) const char* "set_text($1, $input);"

ATTN_STRUCT_WITH_TEXTS(attn_context_desc,
  delete[] $self->simd_level; delete[] $self->engine; delete[] $self->driver_path;
  delete[] $self->nvrtc_path; delete[] $self->cache_folder;)
ATTN_STRUCT_WITH_TEXTS(attn_op_desc,
  delete[] $self->domain; delete[] $self->type; delete[] $self->label;)
ATTN_STRUCT_WITH_TEXTS(attn_query_desc, delete[] $self->engine;)
ATTN_STRUCT_WITH_TEXTS(attn_prepare_desc, delete[] $self->engine;)
ATTN_STRUCT_WITH_TEXTS(attn_session_desc, delete[] $self->label;)

/* What the library fills is read only. */
%immutable attn_device_info::available;
%immutable attn_device_info::name;
%immutable attn_device_info::reason;
%immutable attn_context_info::device_name;
%immutable attn_context_info::architecture;
%immutable attn_context_info::simd_level;
%immutable attn_context_info::simd_levels;
%immutable attn_context_info::engines;
%immutable attn_context_info::driver_version;
%immutable attn_context_info::driver_path;
%immutable attn_context_info::nvrtc_version;
%immutable attn_context_info::nvrtc_path;
%immutable attn_context_info::cache_folder;
%immutable attn_context_info::uuid;
%immutable attn_context_info::pci_id;
%immutable attn_operator_info::domain;
%immutable attn_operator_info::type;
%immutable attn_operator_info::summary;
%immutable attn_slot_info::name;
%immutable attn_slot_info::types;
%immutable attn_slot_info::shape;
%immutable attn_attribute_info::name;
%immutable attn_attribute_info::default_text;
%immutable attn_attribute_info::summary;
%immutable attn_support::reason;
%immutable attn_plan_info::reason;
%immutable attn_fault_info::label;
%immutable attn_fault_info::text;

%extend attn_tensor {
  /* Elements along an axis; 0 beyond the rank. */
  int64_t extent(int32_t axis) const {
    return axis >= 0 && axis < $self->ndim ? $self->shape[axis] : 0;
  }
  /* Distance of neighbours along an axis in elements; 0 beyond the rank. */
  int64_t stride(int32_t axis) const {
    return axis >= 0 && axis < $self->ndim ? $self->strides[axis] : 0;
  }
}
%extend attn_plan_info {
  /* One of the host inputs that a capture would fix, below baked_slot_count. */
  uint32_t baked_slot(uint32_t index) const {
    return index < $self->baked_slot_count && index < 16 ? $self->baked_slots[index] : 0;
  }
}
/* The lists must outlive the struct's use; null is an empty one. */
%extend attn_op_desc {
  void set_attributes(const AttributeList* list) {
    $self->attributes = list != nullptr ? list->data() : nullptr;
    $self->attribute_count = list != nullptr ? list->size() : 0;
  }
}
%extend attn_query_desc {
  void set_arguments(const ArgumentList* inputs, const ArgumentList* outputs) {
    static const ArgumentList kNone;
    if (inputs == nullptr) inputs = &kNone;
    if (outputs == nullptr) outputs = &kNone;
    $self->inputs = inputs->data();
    $self->input_count = inputs->size();
    $self->outputs = outputs->data();
    $self->output_count = outputs->size();
    $self->aliases = outputs->aliases();
    $self->alias_count = outputs->alias_count();
  }
}
%extend attn_prepare_desc {
  void set_arguments(const ArgumentList* inputs, const ArgumentList* outputs) {
    static const ArgumentList kNone;
    if (inputs == nullptr) inputs = &kNone;
    if (outputs == nullptr) outputs = &kNone;
    $self->inputs = inputs->data();
    $self->input_count = inputs->size();
    $self->outputs = outputs->data();
    $self->output_count = outputs->size();
    $self->aliases = outputs->aliases();
    $self->alias_count = outputs->alias_count();
  }
}

%ignore ArgumentList::data;
%ignore ArgumentList::aliases;
%ignore ArgumentList::alias_count;
%ignore AttributeList::data;

#ifdef SWIGPYTHON
%include "python.i"
#endif
#ifdef SWIGCSHARP
%include "csharp.i"
#endif

#define __attribute__(x)
%include "argument_list.h"
%include "attribute_list.h"
%include "attn_c.h"
%include "attn_c_host.h"
