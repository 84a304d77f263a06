#include "cuda/cuda_context.h"

#include "core/error.h"

namespace attn::cuda {
namespace {

std::string uuid_text(const CUuuid& uuid) {
  std::string out = "GPU-";
  for (int i = 0; i < 16; ++i) {
    if (i == 4 || i == 6 || i == 8 || i == 10) out += '-';
    out += "0123456789abcdef"[uuid.bytes[i] >> 4];
    out += "0123456789abcdef"[uuid.bytes[i] & 15];
  }
  return out;
}

int attribute(const Driver& driver, CUdevice device, int which) {
  int value = 0;
  check(driver, driver.DeviceGetAttribute(&value, which, device), "cuDeviceGetAttribute");
  return value;
}

// The context that calls are made in, and whether it is the primary one that we retained.
CUcontext choose_context(const Driver& driver, CUdevice device, void* native, bool* owns_primary) {
  CUcontext context = static_cast<CUcontext>(native);
  if (context != nullptr) {
    CUdevice on = -1;
    check(driver, driver.CtxPushCurrent(context), "cuCtxPushCurrent of native_context");
    const CUresult result = driver.CtxGetDevice(&on);
    CUcontext popped = nullptr;
    driver.CtxPopCurrent(&popped);
    check(driver, result, "cuCtxGetDevice of native_context");
    if (on != device) {
      fail_argument("native_context is on device ", on, ", device_id is ", device);
    }
    return context;
  }
  if (driver.CtxGetCurrent(&context) == kCudaSuccess && context != nullptr) {
    CUdevice on = -1;
    if (driver.CtxGetDevice(&on) == kCudaSuccess && on == device) return context;
  }
  check(driver, driver.DevicePrimaryCtxRetain(&context, device), "cuDevicePrimaryCtxRetain");
  *owns_primary = true;
  return context;
}

}  // namespace

// Hopper's and Blackwell's own instructions need the architecture-specific target.
void DeviceTraits::set_architecture(int major, int minor) {
  architecture = cat("sm_", major, minor);
  target = cat(architecture, major >= 9 ? "a" : "");
  overlaps_launches = major >= 9;
}

CudaContext::CudaContext(const CudaOptions& options) : driver(Driver::get(options.driver_path)) {
  int count = 0;
  check(driver, driver.DeviceGetCount(&count), "cuDeviceGetCount");
  if (options.device_id < 0 || options.device_id >= count) {
    throw_error(ATTN_UNAVAILABLE, cat("device_id is ", options.device_id, "; this machine has ",
                                      count, count == 1 ? " CUDA device" : " CUDA devices"));
  }
  check(driver, driver.DeviceGet(&device, options.device_id), "cuDeviceGet");
  const int major = attribute(driver, device, kAttributeMajor);
  const int minor = attribute(driver, device, kAttributeMinor);
  char text[256] = {};
  if (driver.DeviceGetName(text, sizeof text - 1, device) == kCudaSuccess) name = text;
  set_architecture(major, minor);
  if (major < 8) {
    throw_error(ATTN_UNAVAILABLE, cat(name, " is ", architecture,
                                      "; the CUDA back end needs sm_80 (Ampere) or later"));
  }
  multiprocessors = attribute(driver, device, kAttributeMultiprocessors);
  shared_bytes_per_block = attribute(driver, device, kAttributeSharedPerBlockOptin);
  l2_bytes = attribute(driver, device, kAttributeL2Bytes);
  CUuuid id{};
  if (driver.DeviceGetUuid(&id, device) == kCudaSuccess) uuid = uuid_text(id);
  if (driver.DeviceGetPCIBusId(text, sizeof text - 1, device) == kCudaSuccess) pci_id = text;
  context = choose_context(driver, device, options.native_context, &owns_primary);
}

CudaContext::~CudaContext() {
  if (owns_primary) driver.DevicePrimaryCtxRelease(device);
}

ContextScope::ContextScope(const CudaContext& context) : driver_(context.driver) {
  check(driver_, enter(context), "cuCtxPushCurrent");
}

ContextScope::ContextScope(const CudaContext& context, BestEffort) noexcept
    : driver_(context.driver) {
  enter(context);
}

// Where the current context cannot be told, a push is never wrong.
CUresult ContextScope::enter(const CudaContext& context) noexcept {
  CUcontext current = nullptr;
  if (driver_.CtxGetCurrent(&current) == kCudaSuccess && current == context.context) {
    entered_ = true;
    return kCudaSuccess;
  }
  const CUresult result = driver_.CtxPushCurrent(context.context);
  entered_ = pushed_ = result == kCudaSuccess;
  return result;
}

ContextScope::~ContextScope() {
  CUcontext popped = nullptr;
  if (pushed_) driver_.CtxPopCurrent(&popped);
}

RelaxedCapture::RelaxedCapture(const Driver& driver)
    : driver_(driver),
      mode_(kCaptureModeRelaxed),
      exchanged_(driver_.ThreadExchangeStreamCaptureMode(&mode_) == kCudaSuccess) {}

RelaxedCapture::~RelaxedCapture() {
  if (exchanged_) driver_.ThreadExchangeStreamCaptureMode(&mode_);
}

std::vector<DeviceDescription> list_devices(const std::string& driver_path) {
  std::vector<DeviceDescription> devices;
  const auto missing = [&](std::string reason) {
    DeviceDescription device;
    device.name = "CUDA";
    device.reason = std::move(reason);
    devices.push_back(std::move(device));
  };
  try {
    const Driver& driver = Driver::get(driver_path);
    int count = 0;
    if (driver.DeviceGetCount(&count) != kCudaSuccess || count == 0) {
      missing("the CUDA driver finds no device");
      return devices;
    }
    for (int i = 0; i < count; ++i) {
      DeviceDescription description;
      description.id = i;
      CUdevice device = 0;
      char text[256] = {};
      int major = 0, minor = 0;
      if (driver.DeviceGet(&device, i) != kCudaSuccess ||
          driver.DeviceGetName(text, sizeof text - 1, device) != kCudaSuccess ||
          driver.DeviceGetAttribute(&major, kAttributeMajor, device) != kCudaSuccess ||
          driver.DeviceGetAttribute(&minor, kAttributeMinor, device) != kCudaSuccess) {
        description.reason = "the driver does not answer for this device";
      } else if (major < 8) {
        description.reason = cat("sm_", major, minor, "; sm_80 (Ampere) or later is needed");
      } else {
        description.available = true;
      }
      description.name = text;
      devices.push_back(std::move(description));
    }
  } catch (const Error& error) {
    missing(error.message());
  }
  return devices;
}

}  // namespace attn::cuda
