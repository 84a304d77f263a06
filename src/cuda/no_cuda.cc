// Stands in for the CUDA back end in builds without one: every answer is the reason.
#include "core/error.h"
#include "cuda/cuda_backend.h"

namespace attn::cuda {
namespace {

constexpr const char* kReason = "this build of attn_c has no CUDA back end; the CPU can be used";

}  // namespace

std::vector<DeviceDescription> list_devices(const std::string&) {
  DeviceDescription device;
  device.name = "CUDA";
  device.reason = kReason;
  return {device};
}

std::unique_ptr<CudaBackend> make_cuda_backend(const CudaOptions& options) {
  throw_error(ATTN_UNAVAILABLE, cat("CUDA device ", options.device_id, ": ", kReason));
}

}  // namespace attn::cuda
