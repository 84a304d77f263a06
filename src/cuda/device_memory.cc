#include "cuda/device_memory.h"

#include <cstring>
#include <new>
#include <utility>

#include "core/error.h"

namespace attn::cuda {

// By destructors: where the list cannot grow, what was to be freed is lost.
template <class T>
void RetireList::keep(std::vector<T>& list, T thing) noexcept {
  if (thing == T{}) return;
  std::lock_guard lock(mutex_);
  if (closed_) return;
  try {
    list.push_back(thing);
  } catch (const std::bad_alloc&) {
  }
}

void RetireList::retire(CUdeviceptr memory) noexcept { keep(memory_, memory); }

void RetireList::retire_pinned(void* memory) noexcept { keep(pinned_, memory); }

void RetireList::retire_library(CUlibrary library) noexcept { keep(libraries_, library); }

void RetireList::drain() {
  std::vector<CUdeviceptr> memory;
  std::vector<void*> pinned;
  std::vector<CUlibrary> libraries;
  {
    std::lock_guard lock(mutex_);
    memory.swap(memory_);
    pinned.swap(pinned_);
    libraries.swap(libraries_);
  }
  if (memory.empty() && pinned.empty() && libraries.empty()) return;
  // A context that cannot be entered is lost, and its memory with it.
  const ContextScope scope(*context_, ContextScope::kBestEffort);
  if (!scope.entered()) return;
  RelaxedCapture relaxed(context_->driver);
  for (CUdeviceptr address : memory) context_->driver.MemFree(address);
  for (void* host : pinned) context_->driver.MemFreeHost(host);
  for (CUlibrary library : libraries) context_->driver.LibraryUnload(library);
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
  const char* call = "cuStreamCreate";
  CUresult result = driver.StreamCreate(&stream, kStreamNonBlocking);
  if (result == kCudaSuccess) {
    call = "cuMemsetD8Async";
    result = driver.MemsetD8Async(memory_, 0, bytes, stream);
    if (result == kCudaSuccess) {
      call = "cuStreamSynchronize";
      result = driver.StreamSynchronize(stream);
    }
    driver.StreamDestroy(stream);
  }
  if (result != kCudaSuccess) {
    list_->retire(memory_);
    memory_ = 0;
    check(driver, result, call);
  }
}

PinnedBlock::PinnedBlock(std::shared_ptr<RetireList> list, size_t bytes) : list_(std::move(list)) {
  const Driver& driver = list_->context().driver;
  ContextScope scope(list_->context());
  RelaxedCapture relaxed(driver);
  check(driver, driver.MemHostAlloc(&memory_, bytes, kHostAllocPortableMapped), "cuMemHostAlloc");
  std::memset(memory_, 0, bytes);
  const CUresult result = driver.MemHostGetDevicePointer(&address_, memory_, 0);
  if (result != kCudaSuccess) {
    list_->retire_pinned(memory_);
    check(driver, result, "cuMemHostGetDevicePointer");
  }
}

}  // namespace attn::cuda
