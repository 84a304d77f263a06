#include "cuda/device_memory.h"

#include <cstring>
#include <new>
#include <utility>

#include "core/error.h"

namespace attn::cuda {
namespace {

constexpr uint64_t kAlignment = 256;  // what cuMemAlloc gives at least

}  // namespace

// By destructors: where the list cannot grow, what was to be freed is lost.
template <class T>
void RetireList::keep(std::vector<T>& list, T thing) noexcept {
  std::lock_guard lock(mutex_);
  if (closed_) return;
  try {
    list.push_back(thing);
  } catch (const std::bad_alloc&) {
  }
}

void* RetireList::allocate(uint32_t kind, size_t bytes, CUstream stream) {
  try {
    return try_to_allocate(kind, bytes, stream);
  } catch (const Error& error) {
    if (error.status() != ATTN_OUT_OF_MEMORY || !drain()) throw;
  }
  return try_to_allocate(kind, bytes, stream);
}

void* RetireList::try_to_allocate(uint32_t kind, size_t bytes, CUstream stream) {
  if (allocator_ != nullptr) return allocator_->allocate(kind, bytes, kAlignment, stream);
  const Driver& driver = context_->driver;
  if (kind == ATTN_MEMORY_PINNED) {
    void* memory = nullptr;
    check(driver, driver.MemHostAlloc(&memory, bytes, kHostAllocPortableMapped), "cuMemHostAlloc");
    return memory;
  }
  CUdeviceptr address = 0;
  check(driver, driver.MemAlloc(&address, bytes), "cuMemAlloc");
  return reinterpret_cast<void*>(address);
}

bool RetireList::free_on(const RetiredMemory& memory, CUstream stream) noexcept {
  if (allocator_ == nullptr) return false;
  allocator_->deallocate(memory.kind, memory.memory, memory.bytes, stream);
  return true;
}

void RetireList::free_now(const RetiredMemory& memory) noexcept {
  if (free_on(memory, nullptr)) return;
  if (memory.kind == ATTN_MEMORY_PINNED) {
    context_->driver.MemFreeHost(memory.memory);
  } else {
    context_->driver.MemFree(reinterpret_cast<CUdeviceptr>(memory.memory));
  }
}

void RetireList::retire(const RetiredMemory& memory) noexcept {
  if (memory.memory != nullptr) keep(memory_, memory);
}

void RetireList::retire_library(CUlibrary library) noexcept {
  if (library != nullptr) keep(libraries_, library);
}

bool RetireList::drain() {
  std::vector<RetiredMemory> memory;
  std::vector<CUlibrary> libraries;
  {
    std::lock_guard lock(mutex_);
    memory.swap(memory_);
    libraries.swap(libraries_);
  }
  if (memory.empty() && libraries.empty()) return false;
  // A context that cannot be entered is lost, and the driver's memory with it; the host's allocator
  // still gets its own back.
  const ContextScope scope(*context_, ContextScope::kBestEffort);
  if (!scope.entered()) {
    for (const RetiredMemory& one : memory) free_on(one, nullptr);
    return allocator_ != nullptr;
  }
  RelaxedCapture relaxed(context_->driver);
  for (const RetiredMemory& one : memory) free_now(one);
  for (CUlibrary library : libraries) context_->driver.LibraryUnload(library);
  return true;
}

void RetireList::close() {
  drain();
  std::lock_guard lock(mutex_);
  closed_ = true;
}

DeviceBlock::DeviceBlock(std::shared_ptr<RetireList> list, size_t bytes, CUstream stream)
    : list_(std::move(list)), memory_{ATTN_MEMORY_DEVICE, nullptr, bytes} {
  ContextScope scope(list_->context());
  RelaxedCapture relaxed(list_->context().driver);
  memory_.memory = list_->allocate(ATTN_MEMORY_DEVICE, bytes, stream);
}

std::shared_ptr<DeviceBlock> DeviceBlock::zeroed(const std::shared_ptr<RetireList>& list,
                                                 size_t bytes) {
  const Driver& driver = list->context().driver;
  ContextScope scope(list->context());
  RelaxedCapture relaxed(driver);
  auto block = std::make_shared<DeviceBlock>(list, bytes, nullptr);
  // On a stream of its own: the legacy default stream may be waiting for a capture.
  CUstream stream = nullptr;
  const char* call = "cuStreamCreate";
  CUresult result = driver.StreamCreate(&stream, kStreamNonBlocking);
  if (result == kCudaSuccess) {
    call = "cuMemsetD8Async";
    result = driver.MemsetD8Async(block->address(), 0, bytes, stream);
    if (result == kCudaSuccess) {
      call = "cuStreamSynchronize";
      result = driver.StreamSynchronize(stream);
    }
    driver.StreamDestroy(stream);
  }
  check(driver, result, call);
  return block;
}

void DeviceBlock::free_on(CUstream stream) noexcept {
  if (list_->free_on(memory_, stream)) memory_ = {};
}

PinnedBlock::PinnedBlock(std::shared_ptr<RetireList> list, size_t bytes)
    : list_(std::move(list)), memory_{ATTN_MEMORY_PINNED, nullptr, bytes} {
  const Driver& driver = list_->context().driver;
  ContextScope scope(list_->context());
  RelaxedCapture relaxed(driver);
  memory_.memory = list_->allocate(ATTN_MEMORY_PINNED, bytes, nullptr);
  std::memset(memory_.memory, 0, bytes);
  const CUresult result = driver.MemHostGetDevicePointer(&address_, memory_.memory, 0);
  if (result != kCudaSuccess) {
    list_->retire(memory_);
    check(driver, result, "cuMemHostGetDevicePointer");
  }
}

}  // namespace attn::cuda
