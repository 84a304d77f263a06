// The CUDA driver, opened at run time. No toolkit header: the few types and values that are used
// are declared here, as the driver's ABI has them. Symbols come through cuGetProcAddress at one
// pinned version, so that a driver of any later version gives the same functions.
#pragma once

#include <cstddef>
#include <cstdint>
#include <memory>
#include <string>

#include "core/error.h"
#include "cuda/shared_library.h"

namespace attn::cuda {

using CUresult = int;
using CUdevice = int;
using CUdeviceptr = unsigned long long;
struct CUctx_st;
struct CUstream_st;
struct CUlib_st;
struct CUkern_st;
struct CUfunc_st;
struct CUgraph_st;
struct CUgraphExec_st;
struct CUuserObject_st;
using CUcontext = CUctx_st*;
using CUstream = CUstream_st*;
using CUlibrary = CUlib_st*;
using CUkernel = CUkern_st*;
using CUfunction = CUfunc_st*;
using CUgraph = CUgraph_st*;
using CUgraphExec = CUgraphExec_st*;
using CUuserObject = CUuserObject_st*;
struct CUuuid {
  unsigned char bytes[16];
};
using CUhostFn = void (*)(void*);

// CUlaunchAttribute and CUlaunchConfig, with the one attribute that is used.
struct CUlaunchAttribute {
  int id;
  int pad;
  union {
    char bytes[64];
    int programmatic_stream_serialization;
  } value;
};
struct CUlaunchConfig {
  unsigned grid_x, grid_y, grid_z, block_x, block_y, block_z, shared_bytes;
  CUstream stream;
  CUlaunchAttribute* attributes;
  unsigned attribute_count;
};
inline constexpr int kLaunchProgrammaticStreamSerialization = 6;

inline constexpr CUresult kCudaSuccess = 0;
inline constexpr CUresult kCudaOutOfMemory = 2;
inline constexpr CUresult kCudaNoDevice = 100;
inline constexpr CUresult kCudaInvalidImage = 200;
inline constexpr CUresult kCudaInvalidContext = 201;
inline constexpr CUresult kCudaNoBinaryForGpu = 209;
inline constexpr CUresult kCudaInvalidHandle = 400;
inline constexpr CUresult kCudaStreamCaptureImplicit = 906;

// Values of CUdevice_attribute, CUfunction_attribute, CUpointer_attribute and flags.
enum : int {
  kAttributeMultiprocessors = 16,
  kAttributeMajor = 75,
  kAttributeMinor = 76,
  kAttributeL2Bytes = 38,
  kAttributeSharedPerBlockOptin = 97,
  kFunctionMaxDynamicShared = 8,
  kHostAllocPortableMapped = 1 | 2,
  kStreamNonBlocking = 1,
  kCaptureModeGlobal = 0,
  kCaptureModeThreadLocal = 1,
  kCaptureModeRelaxed = 2,
  kCaptureStatusNone = 0,
  kCaptureStatusActive = 1,
  kCaptureStatusInvalidated = 2,
  kUserObjectNoDestructorSync = 1,
  kGraphUserObjectMove = 1,
};

// X(result name, exported name, version, parameters)
#define ATTN_DRIVER_FUNCTIONS(X)                                                                 \
  X(Init, "cuInit", 2000, (unsigned))                                                            \
  X(DriverGetVersion, "cuDriverGetVersion", 2020, (int*))                                        \
  X(GetErrorName, "cuGetErrorName", 6000, (CUresult, const char**))                              \
  X(GetErrorString, "cuGetErrorString", 6000, (CUresult, const char**))                          \
  X(DeviceGetCount, "cuDeviceGetCount", 2000, (int*))                                            \
  X(DeviceGet, "cuDeviceGet", 2000, (CUdevice*, int))                                            \
  X(DeviceGetName, "cuDeviceGetName", 2000, (char*, int, CUdevice))                              \
  X(DeviceGetAttribute, "cuDeviceGetAttribute", 2000, (int*, int, CUdevice))                     \
  X(DeviceGetUuid, "cuDeviceGetUuid", 11040, (CUuuid*, CUdevice))                                \
  X(DeviceGetPCIBusId, "cuDeviceGetPCIBusId", 4010, (char*, int, CUdevice))                      \
  X(DevicePrimaryCtxRetain, "cuDevicePrimaryCtxRetain", 7000, (CUcontext*, CUdevice))            \
  X(DevicePrimaryCtxRelease, "cuDevicePrimaryCtxRelease", 11000, (CUdevice))                     \
  X(CtxGetCurrent, "cuCtxGetCurrent", 4000, (CUcontext*))                                        \
  X(CtxGetDevice, "cuCtxGetDevice", 2000, (CUdevice*))                                           \
  X(CtxPushCurrent, "cuCtxPushCurrent", 4000, (CUcontext))                                       \
  X(CtxPopCurrent, "cuCtxPopCurrent", 4000, (CUcontext*))                                        \
  X(LibraryLoadData, "cuLibraryLoadData", 12000,                                                 \
    (CUlibrary*, const void*, int*, void**, unsigned, int*, void**, unsigned))                   \
  X(LibraryUnload, "cuLibraryUnload", 12000, (CUlibrary))                                        \
  X(LibraryGetKernel, "cuLibraryGetKernel", 12000, (CUkernel*, CUlibrary, const char*))          \
  X(KernelSetAttribute, "cuKernelSetAttribute", 12000, (int, int, CUkernel, CUdevice))           \
  X(KernelGetFunction, "cuKernelGetFunction", 12000, (CUfunction*, CUkernel))                    \
  X(LaunchKernelEx, "cuLaunchKernelEx", 11060,                                                   \
    (const CUlaunchConfig*, CUfunction, void**, void**))                                         \
  X(MemAlloc, "cuMemAlloc", 3020, (CUdeviceptr*, size_t))                                        \
  X(MemFree, "cuMemFree", 3020, (CUdeviceptr))                                                   \
  X(MemHostAlloc, "cuMemHostAlloc", 2020, (void**, size_t, unsigned))                            \
  X(MemFreeHost, "cuMemFreeHost", 2000, (void*))                                                 \
  X(MemHostGetDevicePointer, "cuMemHostGetDevicePointer", 3020, (CUdeviceptr*, void*, unsigned)) \
  X(MemcpyAsync, "cuMemcpyAsync", 4000, (CUdeviceptr, CUdeviceptr, size_t, CUstream))            \
  X(MemsetD8Async, "cuMemsetD8Async", 3020, (CUdeviceptr, unsigned char, size_t, CUstream))      \
  X(StreamCreate, "cuStreamCreate", 2000, (CUstream*, unsigned))                                 \
  X(StreamDestroy, "cuStreamDestroy", 4000, (CUstream))                                          \
  X(StreamSynchronize, "cuStreamSynchronize", 2000, (CUstream))                                  \
  X(StreamGetCtx, "cuStreamGetCtx", 9020, (CUstream, CUcontext*))                                \
  X(StreamGetCaptureInfo, "cuStreamGetCaptureInfo", 11030,                                       \
    (CUstream, int*, unsigned long long*, CUgraph*, const void**, size_t*))                      \
  X(StreamBeginCapture, "cuStreamBeginCapture", 10010, (CUstream, int))                          \
  X(StreamEndCapture, "cuStreamEndCapture", 10000, (CUstream, CUgraph*))                         \
  X(ThreadExchangeStreamCaptureMode, "cuThreadExchangeStreamCaptureMode", 10010, (int*))         \
  X(GraphInstantiateWithFlags, "cuGraphInstantiateWithFlags", 11040,                             \
    (CUgraphExec*, CUgraph, unsigned long long))                                                 \
  X(GraphLaunch, "cuGraphLaunch", 10000, (CUgraphExec, CUstream))                                \
  X(GraphExecDestroy, "cuGraphExecDestroy", 10000, (CUgraphExec))                                \
  X(GraphDestroy, "cuGraphDestroy", 10000, (CUgraph))                                            \
  X(UserObjectCreate, "cuUserObjectCreate", 11030,                                               \
    (CUuserObject*, void*, CUhostFn, unsigned, unsigned))                                        \
  X(UserObjectRelease, "cuUserObjectRelease", 11030, (CUuserObject, unsigned))                   \
  X(GraphRetainUserObject, "cuGraphRetainUserObject", 11030,                                     \
    (CUgraph, CUuserObject, unsigned, unsigned))                                                 \
  X(CtxSynchronize, "cuCtxSynchronize", 2000, (void))

// Lowest driver that has every function above.
inline constexpr int kMinimumDriverVersion = 12000;

// The driver's functions. One a process and path; any threads.
struct Driver {
  // NOLINTNEXTLINE(bugprone-macro-parentheses): a declaration
#define X(name, symbol, version, parameters) CUresult(*name) parameters = nullptr;
  ATTN_DRIVER_FUNCTIONS(X)
#undef X
  int version = 0;  // 13000 means CUDA 13.0
  std::string path;

  // Opens and initialises the driver, searching: `option` (only it, when not empty),
  // what the process has loaded, the system loader and its usual folders. Throws UNAVAILABLE with
  // every place that was tried, or what the driver answered. Remembers a success; a forked
  // child of a process that used it gets UNAVAILABLE.
  static const Driver& get(const std::string& option);
};

// "call failed: NAME (code), the driver's words".
std::string error_text(const Driver& driver, CUresult result, const char* call);

// A driver's code as errors carry it.
NativeError native_error(CUresult result);

// Throws a DEVICE error (OUT_OF_MEMORY for that code) that names call, code and the driver's words.
void check(const Driver& driver, CUresult result, const char* call);

}  // namespace attn::cuda
