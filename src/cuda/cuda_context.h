// One device with the CUDA context that every call of a back end uses, and the scopes that keep the
// caller's own state as it was.
#pragma once

#include <cstdint>
#include <string>
#include <vector>

#include "cuda/cuda_backend.h"
#include "cuda/driver_api.h"

namespace attn::cuda {

// What engines are chosen and shaped by; known without any CUDA context.
struct DeviceTraits {
  std::string architecture;  // "sm_90"
  std::string target;        // what kernels are compiled for: "sm_90a"
  int multiprocessors = 0;
  int shared_bytes_per_block = 0;  // the opt-in limit
  int64_t l2_bytes = 0;
  bool overlaps_launches = false;  // programmatic dependent launch (sm_90 and later)

  void set_architecture(int major, int minor);
};

struct CudaContext : DeviceTraits {
  const Driver& driver;
  CUdevice device = 0;
  CUcontext context = nullptr;
  bool owns_primary = false;  // retained; given back when the back end goes
  std::string name;
  std::string uuid;
  std::string pci_id;

  // The context is options.native_context, else the current one if it is on the device, else the
  // primary one. Throws UNAVAILABLE or INVALID_ARGUMENT.
  explicit CudaContext(const CudaOptions& options);
  ~CudaContext();
  CudaContext(const CudaContext&) = delete;
  CudaContext& operator=(const CudaContext&) = delete;
};

// Makes the context current for a scope; a no-op when it already is.
class ContextScope {
 public:
  // For destructors, which cannot fail: entered() tells.
  enum BestEffort { kBestEffort };

  explicit ContextScope(const CudaContext& context);
  ContextScope(const CudaContext& context, BestEffort) noexcept;
  ~ContextScope();
  ContextScope(const ContextScope&) = delete;
  ContextScope& operator=(const ContextScope&) = delete;

  bool entered() const { return entered_; }

 private:
  CUresult enter(const CudaContext& context) noexcept;
  const Driver& driver_;
  bool entered_ = false;
  bool pushed_ = false;
};

// Lets this thread allocate, free and load while any thread captures in global mode, without
// breaking that capture.
class RelaxedCapture {
 public:
  explicit RelaxedCapture(const Driver& driver);
  ~RelaxedCapture();
  RelaxedCapture(const RelaxedCapture&) = delete;
  RelaxedCapture& operator=(const RelaxedCapture&) = delete;

 private:
  const Driver& driver_;
  int mode_;
  bool exchanged_;
};

}  // namespace attn::cuda
