#include "gpu/driver.h"

#include <dlfcn.h>

#include <cstdlib>
#include <stdexcept>
#include <string>
#include <type_traits>

namespace attn::gpu {
namespace {

Driver open() {
  const char* path = std::getenv("ATTN_C_DRIVER_PATH");
  void* library =
      dlopen(path != nullptr && *path != '\0' ? path : "libcuda.so.1", RTLD_NOW | RTLD_LOCAL);
  if (library == nullptr) throw std::runtime_error("libcuda.so.1 cannot be opened");
  Driver driver{};
  const auto load = [&](auto& function, const char* name) {
    void* symbol = dlsym(library, name);
    if (symbol == nullptr) throw std::runtime_error(std::string("libcuda lacks ") + name);
    function = reinterpret_cast<std::remove_reference_t<decltype(function)>>(symbol);
  };
  load(driver.CtxGetCurrent, "cuCtxGetCurrent");
  load(driver.CtxSetCurrent, "cuCtxSetCurrent");
  load(driver.CtxCreate, "cuCtxCreate_v2");
  load(driver.CtxDestroy, "cuCtxDestroy_v2");
  load(driver.DeviceGet, "cuDeviceGet");
  load(driver.DevicePrimaryCtxRetain, "cuDevicePrimaryCtxRetain");
  load(driver.DevicePrimaryCtxRelease, "cuDevicePrimaryCtxRelease_v2");
  load(driver.StreamCreate, "cuStreamCreate");
  load(driver.StreamDestroy, "cuStreamDestroy_v2");
  load(driver.StreamSynchronize, "cuStreamSynchronize");
  load(driver.StreamBeginCapture, "cuStreamBeginCapture_v2");
  load(driver.StreamEndCapture, "cuStreamEndCapture");
  load(driver.StreamIsCapturing, "cuStreamIsCapturing");
  load(driver.GraphGetNodes, "cuGraphGetNodes");
  load(driver.GraphNodeGetType, "cuGraphNodeGetType");
  load(driver.GraphDestroy, "cuGraphDestroy");
  load(driver.GraphInstantiate, "cuGraphInstantiateWithFlags");
  load(driver.GraphLaunch, "cuGraphLaunch");
  load(driver.GraphExecDestroy, "cuGraphExecDestroy");
  load(driver.MemAllocAsync, "cuMemAllocAsync");
  load(driver.MemFreeAsync, "cuMemFreeAsync");
  load(driver.MemAlloc, "cuMemAlloc_v2");
  load(driver.MemFree, "cuMemFree_v2");
  load(driver.MemHostAlloc, "cuMemHostAlloc");
  load(driver.MemFreeHost, "cuMemFreeHost");
  load(driver.MemsetD8, "cuMemsetD8_v2");
  load(driver.MemGetInfo, "cuMemGetInfo_v2");
  return driver;
}

}  // namespace

const Driver& Driver::get() {
  static const Driver driver = open();
  return driver;
}

void must_driver(const char* what, Driver::Status status) {
  if (status != 0) {
    throw std::runtime_error(std::string(what) + " failed with code " + std::to_string(status));
  }
}

CurrentContext::CurrentContext(Driver::Context context) {
  must_driver("cuCtxGetCurrent", Driver::get().CtxGetCurrent(&before_));
  must_driver("cuCtxSetCurrent", Driver::get().CtxSetCurrent(context));
}

CurrentContext::~CurrentContext() { Driver::get().CtxSetCurrent(before_); }

PrimaryContext::PrimaryContext(int device) {
  must_driver("cuDeviceGet", Driver::get().DeviceGet(&device_, device));
  must_driver("cuDevicePrimaryCtxRetain", Driver::get().DevicePrimaryCtxRetain(&context_, device_));
}

PrimaryContext::~PrimaryContext() { Driver::get().DevicePrimaryCtxRelease(device_); }

}  // namespace attn::gpu
