/* C#'s side of attn_c.i: errors become exceptions, handles are SafeHandles of the classes above
 * (bindings/csharp/AttnC), addresses are IntPtr, sequences are arrays. */
%{
namespace {

/* Makes an exception pending; set once by the class below, which keeps the delegate alive. */
using RaiseError = void(SWIGSTDCALL*)(int status, long long native_code, unsigned native_domain,
                                      unsigned flags, const char* message);
RaiseError raise_error = nullptr;

}  // namespace
%}

%insert("runtime") %{
extern "C" SWIGEXPORT void SWIGSTDCALL AttnC_SetRaiseError(
    void(SWIGSTDCALL* callback)(int, long long, unsigned, unsigned, const char*));
%}
%{
SWIGEXPORT void SWIGSTDCALL AttnC_SetRaiseError(RaiseError callback) { raise_error = callback; }
%}

/* Nothing of this layer is seen from outside of the assembly; of its classes attn_c.i says so. */
%pragma(csharp) moduleclassmodifiers="internal static class"
%pragma(csharp) imclassclassmodifiers="internal class"

%pragma(csharp) imclasscode=%{
  protected class ErrorHelper {
    private delegate void RaiseError(int status, long nativeCode, uint nativeDomain, uint flags,
                                     global::System.IntPtr message);

    /* Kept, so that the collector does not take what native code calls. */
    private static readonly RaiseError raiseError = Raise;

    [global::System.Runtime.InteropServices.DllImport("$dllimport")]
    private static extern void AttnC_SetRaiseError(RaiseError callback);

    private static void Raise(int status, long nativeCode, uint nativeDomain, uint flags,
                              global::System.IntPtr message) {
      SWIGPendingException.Set(
          global::AttnC.AttnException.Make(status, nativeCode, nativeDomain, flags, message));
    }

    internal ErrorHelper() { AttnC_SetRaiseError(raiseError); }
  }
  protected static readonly ErrorHelper errorHelper = new ErrorHelper();
%}

%include "typemaps.i"
%include "std_string.i"

/* Status and error. */
%typemap(in, numinputs=0) attn_error* error (attn_error local) {
  local.struct_size = sizeof(attn_error);
  local.message[0] = '\0';
  $1 = &local;
}
%typemap(argout, canthrow=1) attn_error* error {
  if (result != ATTN_OK && raise_error != nullptr) {
    raise_error(local$argnum.status, local$argnum.native_code, local$argnum.native_domain,
                local$argnum.flags, local$argnum.message);
  }
}

/* Handles: made as plain addresses, which the classes above take over; used as SafeHandles. */
%define ATTN_SAFE_HANDLE(T, NAME, CLASS)
%typemap(ctype) T** "void**"
%typemap(imtype) T** "out global::System.IntPtr"
%typemap(cstype) T** "out global::System.IntPtr"
%typemap(csin) T** "out $csinput"
%typemap(in) T** "$1 = ($1_ltype)$input;"
%typemap(ctype) T* NAME "void*"
%typemap(imtype) T* NAME "global::AttnC.CLASS"
%typemap(cstype) T* NAME "global::AttnC.CLASS"
%typemap(csin) T* NAME "$csinput"
%typemap(in) T* NAME "$1 = ($1_ltype)$input;"
%ignore T##_release;
%enddef
ATTN_SAFE_HANDLE(attn_context, context, ContextHandle)
ATTN_SAFE_HANDLE(attn_session, session, SessionHandle)
ATTN_SAFE_HANDLE(attn_op, op, OpHandle)
ATTN_SAFE_HANDLE(attn_plan, plan, PlanHandle)
ATTN_SAFE_HANDLE(attn_binding, binding, BindingHandle)
ATTN_SAFE_HANDLE(attn_host_graph, graph, GraphHandle)

/* Addresses and foreign handles. */
%apply void* VOID_INT_PTR { void*, const void* };
%typemap(ctype) void** "void**"
%typemap(imtype) void** "out global::System.IntPtr"
%typemap(cstype) void** "out global::System.IntPtr"
%typemap(csin) void** "out $csinput"
%typemap(in) void** "$1 = ($1_ltype)$input;"

/* A release is called by a SafeHandle, on any thread, with the address itself. */
%define ATTN_RELEASE(T)
%rename(T##_release) T##_release_address;
%inline %{
void T##_release_address(void* address) { T##_release(static_cast<T*>(address)); }
%}
%enddef
ATTN_RELEASE(attn_context)
ATTN_RELEASE(attn_session)
ATTN_RELEASE(attn_op)
ATTN_RELEASE(attn_plan)
ATTN_RELEASE(attn_binding)
ATTN_RELEASE(attn_host_graph)

/* Likewise what is given back through its context, which may be closed to other calls. */
%ignore attn_host_memory_free;
%ignore attn_host_stream_release;
%rename(attn_host_memory_free) attn_host_memory_free_address;
%rename(attn_host_stream_release) attn_host_stream_release_address;
%inline %{
void attn_host_memory_free_address(void* address, uint32_t kind, void* memory) {
  attn_host_memory_free(static_cast<attn_context*>(address), kind, memory, nullptr);
}
void attn_host_stream_release_address(void* address, void* stream) {
  attn_host_stream_release(static_cast<attn_context*>(address), stream, nullptr);
}
%}

/* The rest of the tensor that was added last: a tensor in memory of a known size. */
%extend ArgumentList {
  void place_last(uint64_t byte_offset, uint64_t data_bytes) {
    attn_tensor* last = const_cast<attn_tensor*>($self->tensor($self->size() - 1));
    last->byte_offset = byte_offset;
    last->data_bytes = data_bytes;
  }
}

/* Callbacks: structs that the classes above lay out, and a task of a parallel loop. */
%extend attn_context_desc {
  void set_callbacks(const void* allocator, const void* logger, const void* executor) {
    $self->allocator = static_cast<const attn_allocator*>(allocator);
    $self->logger = static_cast<const attn_logger*>(logger);
    $self->executor = static_cast<const attn_executor*>(executor);
  }
}
%inline %{
void attn_csharp_run_task(void* task, void* context, int index) {
  reinterpret_cast<void (*)(void*, int32_t)>(task)(context, index);
}
%}

%apply unsigned int* OUTPUT { uint32_t* count, uint32_t* depends_on_value };

/* Text: a buffer, its size, and the bytes that are needed. */
%typemap(ctype) char* buffer "char*"
%typemap(imtype) char* buffer "byte[]"
%typemap(cstype) char* buffer "byte[]"
%typemap(csin) char* buffer "$csinput"
%typemap(in) char* buffer "$1 = $input;"
%typemap(freearg) char* buffer ""
%typemap(ctype) size_t capacity "unsigned long long"
%typemap(imtype) size_t capacity "ulong"
%typemap(cstype) size_t capacity "ulong"
%typemap(csin) size_t capacity "$csinput"
%typemap(in) size_t capacity "$1 = (size_t)$input;"
%typemap(ctype) size_t* needed "unsigned long long*"
%typemap(imtype) size_t* needed "out ulong"
%typemap(cstype) size_t* needed "out ulong"
%typemap(csin) size_t* needed "out $csinput"
%typemap(in) size_t* needed (size_t needed) "needed = 0; $1 = &needed;"
%typemap(argout) size_t* needed "*$input = needed$argnum;"

/* Arguments: an ArgumentList, or null for none. */
%define ATTN_ARGUMENTS(ARGS, COUNT)
%typemap(ctype) (const attn_arg* ARGS, uint32_t COUNT) "void*"
%typemap(imtype) (const attn_arg* ARGS, uint32_t COUNT)
  "global::System.Runtime.InteropServices.HandleRef"
%typemap(cstype) (const attn_arg* ARGS, uint32_t COUNT) "ArgumentList"
%typemap(csin) (const attn_arg* ARGS, uint32_t COUNT) "ArgumentList.getCPtr($csinput)"
%typemap(in) (const attn_arg* ARGS, uint32_t COUNT) {
  const ArgumentList* list = static_cast<const ArgumentList*>($input);
  $1 = list != nullptr ? const_cast<attn_arg*>(list->data()) : nullptr;
  $2 = list != nullptr ? list->size() : 0;
}
%enddef
ATTN_ARGUMENTS(inputs, input_count)
ATTN_ARGUMENTS(outputs, output_count)

/* Sequences of numbers: arrays whose first element counts the others. */
%define ATTN_SEQUENCE(T, CSTYPE)
%typemap(ctype) const std::vector<T>& "const T*"
%typemap(imtype) const std::vector<T>& "CSTYPE[]"
%typemap(cstype) const std::vector<T>& "CSTYPE[]"
%typemap(csin) const std::vector<T>& "global::AttnC.Sequence.Counted($csinput)"
%typemap(in) const std::vector<T>& (std::vector<T> values) {
  values.assign($input + 1, $input + 1 + static_cast<size_t>($input[0]));
  $1 = &values;
}
%typemap(freearg) const std::vector<T>& ""
%enddef
ATTN_SEQUENCE(int64_t, long)
ATTN_SEQUENCE(double, double)

/* What the header defines as numbers is constant in C# too. */
%csconst(1);
