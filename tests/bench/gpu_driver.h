// The CUDA driver as a program that uses the library has it beside the library: contexts, memory,
// captures whose nodes can be looked at, and bare launches. Names and layouts are cuda.h's.
#pragma once

#include <dlfcn.h>

#include <cstddef>
#include <cstdint>
#include <cstdio>
#include <cstdlib>
#include <string>
#include <type_traits>

namespace attn::bench {

[[noreturn]] inline void fail(const std::string& what) {
  std::fprintf(stderr, "gpu_host: %s\n", what.c_str());
  std::exit(1);
}

// CUDA_KERNEL_NODE_PARAMS_v2: one of `function` and `kernel` is null.
struct KernelNode {
  void* function;
  unsigned grid[3], block[3], shared_bytes;
  void** arguments;
  void** extra;
  void* kernel;
  void* context;
};

// CUlaunchAttribute.
struct LaunchAttribute {
  int id;
  char padding[4];
  union {
    int programmatic_stream_serialization;
    char bytes[64];
  } value;
};

// CUlaunchConfig.
struct LaunchConfig {
  unsigned grid[3], block[3], shared_bytes;
  void* stream;
  LaunchAttribute* attributes;
  unsigned attribute_count;
};

inline constexpr int kProgrammaticStreamSerialization = 6;
inline constexpr int kCaptureThreadLocal = 1;
inline constexpr int kKernelNode = 0;
inline constexpr int kComputeCapabilityMajor = 75;
inline constexpr unsigned kNonBlocking = 1;

struct Driver {
  int (*Init)(unsigned);
  int (*DeviceGet)(int*, int);
  int (*DeviceGetAttribute)(int*, int, int);
  int (*DevicePrimaryCtxRetain)(void**, int);
  int (*CtxSetCurrent)(void*);
  int (*MemAlloc)(uint64_t*, size_t);
  int (*MemsetD8)(uint64_t, unsigned char, size_t);
  int (*MemcpyHtoD)(uint64_t, const void*, size_t);
  int (*MemcpyDtoH)(void*, uint64_t, size_t);
  int (*StreamCreate)(void**, unsigned);
  int (*StreamSynchronize)(void*);
  int (*StreamBeginCapture)(void*, int);
  int (*StreamEndCapture)(void*, void**);
  int (*GraphGetNodes)(void*, void**, size_t*);
  int (*GraphNodeGetType)(void*, int*);
  int (*GraphKernelNodeGetParams)(void*, KernelNode*);
  int (*ModuleLoadData)(void**, const void*);
  int (*ModuleGetFunction)(void**, void*, const char*);
  int (*LaunchKernelEx)(const LaunchConfig*, void*, void**, void**);
};

// Ends the program where the driver call failed.
inline void must(const char* call, int result) {
  if (result != 0) fail(std::string(call) + " failed with code " + std::to_string(result));
}

// Opens and initialises libcuda, or what ATTN_C_DRIVER_PATH names.
inline Driver open_driver() {
  const char* path = std::getenv("ATTN_C_DRIVER_PATH");
  void* library =
      dlopen(path != nullptr && *path != '\0' ? path : "libcuda.so.1", RTLD_NOW | RTLD_LOCAL);
  if (library == nullptr) fail(dlerror());
  Driver driver{};
  const auto load = [&](auto& function, const char* name) {
    void* symbol = dlsym(library, name);
    if (symbol == nullptr) fail(std::string("libcuda lacks ") + name);
    function = reinterpret_cast<std::remove_reference_t<decltype(function)>>(symbol);
  };
  load(driver.Init, "cuInit");
  load(driver.DeviceGet, "cuDeviceGet");
  load(driver.DeviceGetAttribute, "cuDeviceGetAttribute");
  load(driver.DevicePrimaryCtxRetain, "cuDevicePrimaryCtxRetain");
  load(driver.CtxSetCurrent, "cuCtxSetCurrent");
  load(driver.MemAlloc, "cuMemAlloc_v2");
  load(driver.MemsetD8, "cuMemsetD8_v2");
  load(driver.MemcpyHtoD, "cuMemcpyHtoD_v2");
  load(driver.MemcpyDtoH, "cuMemcpyDtoH_v2");
  load(driver.StreamCreate, "cuStreamCreate");
  load(driver.StreamSynchronize, "cuStreamSynchronize");
  load(driver.StreamBeginCapture, "cuStreamBeginCapture_v2");
  load(driver.StreamEndCapture, "cuStreamEndCapture");
  load(driver.GraphGetNodes, "cuGraphGetNodes");
  load(driver.GraphNodeGetType, "cuGraphNodeGetType");
  load(driver.GraphKernelNodeGetParams, "cuGraphKernelNodeGetParams_v2");
  load(driver.ModuleLoadData, "cuModuleLoadData");
  load(driver.ModuleGetFunction, "cuModuleGetFunction");
  load(driver.LaunchKernelEx, "cuLaunchKernelEx");
  must("cuInit", driver.Init(0));
  return driver;
}

}  // namespace attn::bench
