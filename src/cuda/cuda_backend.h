// The CUDA back end as the API layer sees it. A build without it has no_cuda.cc in its place.
#pragma once

#include <cstdint>
#include <memory>
#include <string>
#include <vector>

#include "core/backend.h"
#include "core/host_allocator.h"

namespace attn::cuda {

// A device for the list that exists before any context.
struct DeviceDescription {
  int32_t id = 0;
  bool available = false;
  std::string name;
  std::string reason;  // why it cannot be used, in words; empty when it can
};

struct CudaOptions {
  int32_t device_id = 0;
  void* native_context =
      nullptr;               // CUcontext; null = the current one on the device, or the primary
  std::string driver_path;   // empty = search
  std::string nvrtc_path;    // empty = search
  std::string cache_folder;  // empty = the default folder
  uint64_t cache_limit_bytes = 0;  // 0 = default
  bool disk_cache = true;
  const HostAllocator* allocator =
      nullptr;  // of the context, outlives the back end; null: cuMemAlloc
};

// The devices of this machine, those that cannot be used included; never empty, so that there is
// always a reason to read. `driver_path` empty: searched. Makes no CUDA context.
std::vector<DeviceDescription> list_devices(const std::string& driver_path);

// What a context tells of its device.
struct CudaFacts {
  std::string device_name;
  std::string architecture;  // "sm_90"
  std::string driver_version;
  std::string driver_path;
  std::string nvrtc_version;  // empty where no NVRTC can be opened: only the pack serves then
  std::string nvrtc_path;
  std::string cache_folder;  // empty: off
  std::string uuid;
  std::string pci_id;
};

class CudaBackend : public Backend {
 public:
  virtual CudaFacts facts() const = 0;
};

// Opens a device. Throws UNAVAILABLE with the reason in words.
std::unique_ptr<CudaBackend> make_cuda_backend(const CudaOptions& options);

}  // namespace attn::cuda
