#include "cuda/device_memory.h"

#include <utility>

#include "core/error.h"

namespace attn::cuda {

void RetireList::retire(CUdeviceptr memory) {
  if (memory == 0) return;
  std::lock_guard lock(mutex_);
  if (!closed_) memory_.push_back(memory);
}

void RetireList::drain() {
  std::vector<CUdeviceptr> memory;
  {
    std::lock_guard lock(mutex_);
    memory.swap(memory_);
  }
  if (memory.empty()) return;
  ContextScope scope(*context_);
  RelaxedCapture relaxed(context_->driver);
  for (CUdeviceptr address : memory) context_->driver.MemFree(address);
}

void RetireList::close() {
  drain();
  std::lock_guard lock(mutex_);
  closed_ = true;
}

DeviceBlock::DeviceBlock(std::shared_ptr<RetireList> list, size_t bytes, bool zero)
    : list_(std::move(list)), bytes_(bytes) {
  const Driver& driver = list_->context().driver;
  ContextScope scope(list_->context());
  RelaxedCapture relaxed(driver);
  check(driver, driver.MemAlloc(&memory_, bytes), "cuMemAlloc");
  if (!zero) return;
  // On a stream of its own: the legacy default stream may be waiting for a capture.
  CUstream stream = nullptr;
  CUresult result = driver.StreamCreate(&stream, kStreamNonBlocking);
  if (result == kCudaSuccess) {
    result = driver.MemsetD8Async(memory_, 0, bytes, stream);
    if (result == kCudaSuccess) result = driver.StreamSynchronize(stream);
    driver.StreamDestroy(stream);
  }
  if (result != kCudaSuccess) {
    list_->retire(memory_);
    memory_ = 0;
    check(driver, result, "clearing of session memory");
  }
}

}  // namespace attn::cuda
