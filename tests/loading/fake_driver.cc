#include "loading/fake_driver.h"

#include <cstdlib>
#include <cstring>
#include <mutex>
#include <set>
#include <string>
#include <vector>

#include "cuda/driver_api.h"

// What the driver's handles point to.
namespace attn::cuda {
struct CUctx_st {
  int device;
};
struct CUuserObject_st {
  void* user;
  CUhostFn destroy;
  int references;
};
struct CUgraph_st {
  std::vector<CUuserObject> objects;
};
struct CUgraphExec_st {
  std::vector<CUuserObject> objects;
};
struct CUstream_st {
  CUgraph capturing;
};
struct CUkern_st {
  std::string name;
};
struct CUlib_st {
  std::vector<CUkernel> kernels;
};
}  // namespace attn::cuda

namespace attn::test {
namespace {

using namespace attn::cuda;  // NOLINT: its types, all over

constexpr CUresult kInvalidValue = 1, kInvalidContext = 201, kInvalidHandle = 400, kNotFound = 500;

FakeDriver state;
CUctx_st primaries[16] = {{0}, {1}, {2}, {3}};

thread_local CUcontext stack[16];
thread_local int depth = 0;
thread_local int capture_mode = kCaptureModeGlobal;

bool has_context() { return depth > 0; }

// What the driver has handed out. A real one takes it back with its contexts; here what a test lets
// the library lose on purpose stays known, and is no leak of the process.
std::mutex handed_mutex;
std::set<const void*>& handed_out() {
  static auto* const set = new std::set<const void*>;
  return *set;
}
template <class T>
T* hand_out(T* thing) {
  const std::lock_guard lock(handed_mutex);
  handed_out().insert(thing);
  return thing;
}
void take_back(const void* thing) {
  const std::lock_guard lock(handed_mutex);
  handed_out().erase(thing);
}

// Counts a call; whether it is the one that shall fail.
bool fails(const char* name) {
  const int at = state.call_count.fetch_add(1);
  if (at < FakeDriver::kMaxCalls) state.calls[at] = name;
  if (state.fail_call == nullptr || std::strcmp(state.fail_call, name) != 0) return false;
  const int number = state.failing_calls.fetch_add(1) + 1;
  return state.fail_at == 0 || number == state.fail_at;
}

void release(CUuserObject object, unsigned count) {
  object->references -= static_cast<int>(count);
  if (object->references > 0) return;
  object->destroy(object->user);
  take_back(object);
  delete object;
  --state.user_objects;
}

// One tag a function: implementations are overloads for it, the rest succeeds and does nothing.
// kGivesBack: it does its work even when it is told to fail.
#define X(name, symbol, version, parameters)     \
  struct name##Tag {                             \
    static constexpr const char* kName = symbol; \
    static constexpr bool kGivesBack = false;    \
  };
ATTN_DRIVER_FUNCTIONS(X)
#undef X

template <class Tag>
constexpr bool gives_back(const Tag&) {
  return Tag::kGivesBack;
}
constexpr bool gives_back(const DevicePrimaryCtxReleaseTag&) { return true; }
constexpr bool gives_back(const CtxPopCurrentTag&) { return true; }
constexpr bool gives_back(const LibraryUnloadTag&) { return true; }
constexpr bool gives_back(const MemFreeTag&) { return true; }
constexpr bool gives_back(const MemFreeHostTag&) { return true; }
constexpr bool gives_back(const StreamDestroyTag&) { return true; }
constexpr bool gives_back(const GraphDestroyTag&) { return true; }
constexpr bool gives_back(const GraphExecDestroyTag&) { return true; }
constexpr bool gives_back(const UserObjectReleaseTag&) { return true; }
// Back to what the thread had.
bool gives_back(const ThreadExchangeStreamCaptureModeTag&) {
  return capture_mode == kCaptureModeRelaxed;
}

template <class Tag, class... Arguments>
CUresult run(Tag, Arguments...) {
  return kCudaSuccess;
}

CUresult run(DriverGetVersionTag, int* version) {
  *version = state.version;
  return kCudaSuccess;
}
CUresult run(GetErrorNameTag, CUresult, const char** name) {
  *name = "CUDA_ERROR_OF_THE_FAKE";
  return kCudaSuccess;
}
CUresult run(GetErrorStringTag, CUresult, const char** words) {
  *words = "words of the fake";
  return kCudaSuccess;
}
CUresult run(DeviceGetCountTag, int* count) {
  *count = state.devices;
  return kCudaSuccess;
}
CUresult run(DeviceGetTag, CUdevice* device, int ordinal) {
  if (ordinal >= state.devices) return kInvalidValue;
  *device = ordinal;
  return kCudaSuccess;
}
CUresult run(DeviceGetNameTag, char* name, int capacity, CUdevice) {
  std::strncpy(name, "Fake device", static_cast<size_t>(capacity));
  return kCudaSuccess;
}
CUresult run(DeviceGetAttributeTag, int* value, int which, CUdevice) {
  *value = which == kAttributeMajor                 ? state.major
           : which == kAttributeMinor               ? state.minor
           : which == kAttributeSharedPerBlockOptin ? 99 << 10
           : which == kAttributeMultiprocessors     ? 10
                                                    : 1 << 20;
  return kCudaSuccess;
}
CUresult run(DeviceGetPCIBusIdTag, char* id, int capacity, CUdevice) {
  std::strncpy(id, "0000:01:00.0", static_cast<size_t>(capacity));
  return kCudaSuccess;
}
CUresult run(DevicePrimaryCtxRetainTag, CUcontext* context, CUdevice device) {
  *context = &primaries[device];
  ++state.primary_contexts;
  return kCudaSuccess;
}
CUresult run(DevicePrimaryCtxReleaseTag, CUdevice) {
  --state.primary_contexts;
  return kCudaSuccess;
}
CUresult run(CtxGetCurrentTag, CUcontext* context) {
  *context = has_context() ? stack[depth - 1] : nullptr;
  return kCudaSuccess;
}
CUresult run(CtxGetDeviceTag, CUdevice* device) {
  if (!has_context()) return kInvalidContext;
  *device = stack[depth - 1]->device;
  return kCudaSuccess;
}
CUresult run(CtxPushCurrentTag, CUcontext context) {
  if (depth == 16) return kInvalidContext;
  stack[depth++] = context;
  ++state.pushed;
  return kCudaSuccess;
}
CUresult run(CtxPopCurrentTag, CUcontext* context) {
  if (!has_context()) return kInvalidContext;
  *context = stack[--depth];
  --state.pushed;
  return kCudaSuccess;
}
CUresult run(LibraryLoadDataTag, CUlibrary* library, const void* image, int*, void**, unsigned,
             int*, void**, unsigned) {
  if (std::memcmp(image, "fake cubin", 10) != 0 && std::memcmp(image, "\177ELF", 4) != 0) {
    return kCudaInvalidImage;
  }
  *library = hand_out(new CUlib_st);
  ++state.libraries;
  return kCudaSuccess;
}
CUresult run(LibraryUnloadTag, CUlibrary library) {
  for (CUkernel kernel : library->kernels) delete kernel;
  take_back(library);
  delete library;
  --state.libraries;
  return kCudaSuccess;
}
CUresult run(LibraryGetKernelTag, CUkernel* kernel, CUlibrary library, const char* name) {
  *kernel = library->kernels.emplace_back(new CUkern_st{name});
  return kCudaSuccess;
}
CUresult run(KernelGetFunctionTag, CUfunction* function, CUkernel kernel) {
  if (!has_context()) return kInvalidContext;
  *function = reinterpret_cast<CUfunction>(kernel);
  return kCudaSuccess;
}
CUresult run(LaunchKernelExTag, const CUlaunchConfig* config, CUfunction function, void** arguments,
             void**) {
  if (!has_context()) return kInvalidContext;
  if (function == nullptr || config->grid_x == 0 || config->block_x == 0) return kInvalidHandle;
  return arguments == nullptr ? kInvalidValue : kCudaSuccess;
}
CUresult run(MemAllocTag, CUdeviceptr* memory, size_t bytes) {
  if (!has_context()) return kInvalidContext;
  void* const block = hand_out(std::aligned_alloc(256, (bytes + 255) / 256 * 256));
  *memory = reinterpret_cast<CUdeviceptr>(block);
  ++state.device_memory;
  return kCudaSuccess;
}
CUresult run(MemFreeTag, CUdeviceptr memory) {
  if (!has_context()) return kInvalidContext;
  take_back(reinterpret_cast<void*>(memory));
  std::free(reinterpret_cast<void*>(memory));
  --state.device_memory;
  return kCudaSuccess;
}
CUresult run(MemHostAllocTag, void** memory, size_t bytes, unsigned) {
  if (!has_context()) return kInvalidContext;
  *memory = hand_out(std::malloc(bytes));
  ++state.host_memory;
  return kCudaSuccess;
}
CUresult run(MemFreeHostTag, void* memory) {
  if (!has_context()) return kInvalidContext;
  take_back(memory);
  std::free(memory);
  --state.host_memory;
  return kCudaSuccess;
}
CUresult run(MemHostGetDevicePointerTag, CUdeviceptr* address, void* memory, unsigned) {
  *address = reinterpret_cast<CUdeviceptr>(memory);
  return kCudaSuccess;
}
CUresult run(MemcpyAsyncTag, CUdeviceptr target, CUdeviceptr source, size_t bytes, CUstream) {
  std::memcpy(reinterpret_cast<void*>(target), reinterpret_cast<const void*>(source), bytes);
  return has_context() ? kCudaSuccess : kInvalidContext;
}
CUresult run(MemsetD8AsyncTag, CUdeviceptr memory, unsigned char value, size_t bytes, CUstream) {
  std::memset(reinterpret_cast<void*>(memory), value, bytes);
  return has_context() ? kCudaSuccess : kInvalidContext;
}
CUresult run(StreamCreateTag, CUstream* stream, unsigned) {
  if (!has_context()) return kInvalidContext;
  *stream = hand_out(new CUstream_st{nullptr});
  ++state.streams;
  return kCudaSuccess;
}
CUresult run(GraphDestroyTag, CUgraph graph) {
  for (CUuserObject object : graph->objects) release(object, 1);
  take_back(graph);
  delete graph;
  --state.graphs;
  return kCudaSuccess;
}
CUresult run(StreamDestroyTag, CUstream stream) {
  if (stream->capturing != nullptr) run(GraphDestroyTag{}, stream->capturing);
  take_back(stream);
  delete stream;
  --state.streams;
  return kCudaSuccess;
}
CUresult run(StreamGetCaptureInfoTag, CUstream stream, int* status, unsigned long long*,
             CUgraph* graph, const void**, size_t*) {
  const bool active = stream != nullptr && stream->capturing != nullptr;
  *status = active ? kCaptureStatusActive : kCaptureStatusNone;
  if (state.invalidated) *status = kCaptureStatusInvalidated;
  if (active && graph != nullptr) *graph = stream->capturing;
  return has_context() ? kCudaSuccess : kInvalidContext;
}
CUresult run(StreamBeginCaptureTag, CUstream stream, int) {
  stream->capturing = hand_out(new CUgraph_st);
  ++state.graphs;
  return kCudaSuccess;
}
CUresult run(StreamEndCaptureTag, CUstream stream, CUgraph* graph) {
  *graph = stream->capturing;
  stream->capturing = nullptr;
  return kCudaSuccess;
}
CUresult run(ThreadExchangeStreamCaptureModeTag, int* mode) {
  std::swap(*mode, capture_mode);
  return kCudaSuccess;
}
CUresult run(GraphInstantiateWithFlagsTag, CUgraphExec* executable, CUgraph graph,
             unsigned long long) {
  *executable = hand_out(new CUgraphExec_st{graph->objects});
  for (CUuserObject object : graph->objects) ++object->references;
  ++state.executables;
  return kCudaSuccess;
}
CUresult run(GraphExecDestroyTag, CUgraphExec executable) {
  for (CUuserObject object : executable->objects) release(object, 1);
  take_back(executable);
  delete executable;
  --state.executables;
  return kCudaSuccess;
}
CUresult run(UserObjectCreateTag, CUuserObject* object, void* user, CUhostFn destroy,
             unsigned references, unsigned) {
  *object = hand_out(new CUuserObject_st{user, destroy, static_cast<int>(references)});
  ++state.user_objects;
  return kCudaSuccess;
}
CUresult run(UserObjectReleaseTag, CUuserObject object, unsigned count) {
  release(object, count);
  return kCudaSuccess;
}
CUresult run(GraphRetainUserObjectTag, CUgraph graph, CUuserObject object, unsigned, unsigned) {
  graph->objects.push_back(object);  // the caller's reference moves to the graph
  return kCudaSuccess;
}

template <class Tag, class Function>
struct Entry;
template <class Tag, class... Arguments>
struct Entry<Tag, CUresult(Arguments...)> {
  static CUresult call(Arguments... arguments) {
    const bool fail = fails(Tag::kName);
    if (fail && !gives_back(Tag{})) return state.fail_code;
    const CUresult result = run(Tag{}, arguments...);
    return fail ? state.fail_code : result;
  }
};

}  // namespace
}  // namespace attn::test

#define ATTN_FAKE_EXPORT __attribute__((visibility("default")))

extern "C" {

ATTN_FAKE_EXPORT attn::test::FakeDriver* fake_driver() { return &attn::test::state; }

ATTN_FAKE_EXPORT int fake_driver_capture_mode() { return attn::test::capture_mode; }

// Before CUDA 12 there was another one, of that name alone.
#ifdef ATTN_FAKE_OLD_DRIVER
#define ATTN_FAKE_GET_PROC_ADDRESS cuGetProcAddress
#else
#define ATTN_FAKE_GET_PROC_ADDRESS cuGetProcAddress_v2
#endif
ATTN_FAKE_EXPORT int ATTN_FAKE_GET_PROC_ADDRESS(const char* symbol, void** address, int version,
                                                uint64_t, int*) {
  using namespace attn::test;  // NOLINT: tags and entries
  if (version > state.newest_version_asked) state.newest_version_asked = version;
  if (state.missing != nullptr && std::strcmp(state.missing, symbol) == 0) return kNotFound;
#define X(name, exported, since, parameters)                                          \
  if (std::strcmp(symbol, exported) == 0) {                                           \
    *address = reinterpret_cast<void*>(&Entry<name##Tag, CUresult parameters>::call); \
    return kCudaSuccess;                                                              \
  }
  ATTN_DRIVER_FUNCTIONS(X)
#undef X
  return kNotFound;
}

ATTN_FAKE_EXPORT int cuInit(unsigned flags) {
  return attn::test::Entry<attn::test::InitTag, int(unsigned)>::call(flags);
}

ATTN_FAKE_EXPORT int cuDriverGetVersion(int* version) {
  return attn::test::Entry<attn::test::DriverGetVersionTag, int(int*)>::call(version);
}

ATTN_FAKE_EXPORT int cuGetErrorString(int code, const char** words) {
  return attn::test::Entry<attn::test::GetErrorStringTag, int(int, const char**)>::call(code,
                                                                                        words);
}

}  // extern "C"
