// The device list: what there is before any context, with the reason where it cannot be used.
#include "api/environment.h"
#include "api/guard.h"
#include "api/struct_io.h"
#include "api/text.h"
#include "cpu/cpu_info.h"
#include "cuda/cuda_backend.h"

using attn::api::guard;

namespace {

// With the driver that a context would use.
std::vector<attn::cuda::DeviceDescription> list_cuda_devices() {
  return attn::cuda::list_devices(attn::api::environment_driver_path());
}

}  // namespace

attn_status attn_device_count(uint32_t* count, attn_error* error) {
  return guard(error, [&] {
    if (count == nullptr) attn::fail_argument("count is null; it receives the number");
    *count = 1 + static_cast<uint32_t>(list_cuda_devices().size());
  });
}

attn_status attn_device_get_info(uint32_t index, attn_device_info* info, attn_error* error) {
  return guard(error, [&] {
    const attn::api::OutStruct out(info, "info");
    attn_device_info filled{};
    if (index == 0) {
      filled.available = 1;
      filled.device_type = ATTN_DEVICE_CPU;
      attn::api::copy_text(filled.name, attn::cpu::cpu_info().name);
    } else {
      const auto devices = list_cuda_devices();
      if (index > devices.size()) {
        attn::fail_argument("index is ", index, "; there are ", devices.size() + 1,
                            " devices, counted from 0");
      }
      const attn::cuda::DeviceDescription& device = devices[index - 1];
      filled.available = device.available ? 1 : 0;
      filled.device_type = ATTN_DEVICE_CUDA;
      filled.device_id = device.id;
      attn::api::copy_text(filled.name, device.name);
      attn::api::copy_text(filled.reason, device.reason);
    }
    out.write(filled);
  });
}
