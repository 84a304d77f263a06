// Opening a device: a back end with the facts that attn_context_info tells of it.
#pragma once

#include <cstdint>
#include <memory>
#include <string>
#include <utility>
#include <vector>

#include "api/callbacks.h"
#include "api/tensor_intake.h"
#include "core/backend.h"
#include "cpu/cpu_backend.h"

namespace attn::api {

// The options of a context with the environment already taken into account.
struct DeviceOptions {
  DeviceIdentity identity;
  int32_t thread_count = 0;
  std::string simd_level;
  void* native_context = nullptr;
  std::string driver_path;
  std::string nvrtc_path;
  std::string cache_folder;
  uint64_t cache_limit_bytes = 0;
  bool disk_cache = true;
};

struct DeviceFacts {
  DeviceIdentity identity;
  int32_t thread_count = 0;
  bool can_capture = false;
  uint64_t workspace_alignment = 64;
  std::string device_name;
  std::string architecture;
  std::string simd_level;
  std::string simd_levels;
  std::vector<std::string> instruction_sets;  // of the processor, for people who read a plan
  // Caches in bytes and counts of processors, for people who read a plan.
  std::vector<std::pair<const char*, int64_t>> machine;
  std::string engines;
  std::string driver_version;
  std::string driver_path;
  std::string nvrtc_version;
  std::string nvrtc_path;
  std::string cache_folder;
  std::string uuid;
  std::string pci_id;
};

struct OpenDevice {
  std::unique_ptr<Backend> backend;
  DeviceFacts facts;
};

// Opens the device. `callbacks` and `stats` must outlive the back end. Throws INVALID_ARGUMENT,
// UNSUPPORTED or UNAVAILABLE.
OpenDevice open_device(const DeviceOptions& options, const Callbacks& callbacks,
                       cpu::CpuStats& stats);

// Names joined with ",".
std::string join(const std::vector<std::string>& names);

}  // namespace attn::api
