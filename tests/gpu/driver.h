// The CUDA driver as a caller of the library would use it beside the library: contexts of his own,
// captures in global mode, graphs that he looks into.
#pragma once

#include <cstddef>

namespace attn::gpu {

struct Driver {
  using Status = int;
  using Context = void*;
  using StreamHandle = void*;
  using GraphHandle = void*;
  using ExecHandle = void*;

  Status (*CtxGetCurrent)(Context*);
  Status (*CtxSetCurrent)(Context);
  Status (*CtxCreate)(Context*, unsigned, int);
  Status (*CtxDestroy)(Context);
  Status (*DeviceGet)(int*, int);
  Status (*DevicePrimaryCtxRetain)(Context*, int);
  Status (*DevicePrimaryCtxRelease)(int);
  Status (*StreamCreate)(StreamHandle*, unsigned);
  Status (*StreamDestroy)(StreamHandle);
  Status (*StreamSynchronize)(StreamHandle);
  Status (*StreamBeginCapture)(StreamHandle, int);
  Status (*StreamEndCapture)(StreamHandle, GraphHandle*);
  Status (*StreamIsCapturing)(StreamHandle, int*);
  Status (*GraphGetNodes)(GraphHandle, void**, size_t*);
  Status (*GraphNodeGetType)(void*, int*);
  Status (*GraphDestroy)(GraphHandle);
  Status (*GraphInstantiate)(ExecHandle*, GraphHandle, unsigned long long);
  Status (*GraphLaunch)(ExecHandle, StreamHandle);
  Status (*GraphExecDestroy)(ExecHandle);
  Status (*MemAllocAsync)(unsigned long long*, size_t, StreamHandle);
  Status (*MemFreeAsync)(unsigned long long, StreamHandle);
  Status (*MemAlloc)(unsigned long long*, size_t);
  Status (*MemFree)(unsigned long long);
  Status (*MemHostAlloc)(void**, size_t, unsigned);
  Status (*MemFreeHost)(void*);
  Status (*MemsetD8)(unsigned long long, unsigned char, size_t);
  Status (*MemGetInfo)(size_t*, size_t*);

  // Opens libcuda at its usual place. Throws std::runtime_error where it lacks something.
  static const Driver& get();
};

inline constexpr int kCaptureGlobal = 0;
inline constexpr int kCaptureActive = 1;

// Throws std::runtime_error unless the status is success.
void must_driver(const char* what, Driver::Status status);

// Makes a context current for a scope, and what was current before again afterwards.
class CurrentContext {
 public:
  explicit CurrentContext(Driver::Context context);
  ~CurrentContext();
  CurrentContext(const CurrentContext&) = delete;
  CurrentContext& operator=(const CurrentContext&) = delete;

 private:
  Driver::Context before_ = nullptr;
};

// The primary context of a device, retained.
class PrimaryContext {
 public:
  explicit PrimaryContext(int device);
  ~PrimaryContext();
  PrimaryContext(const PrimaryContext&) = delete;
  PrimaryContext& operator=(const PrimaryContext&) = delete;
  Driver::Context get() const { return context_; }

 private:
  int device_ = 0;
  Driver::Context context_ = nullptr;
};

}  // namespace attn::gpu
