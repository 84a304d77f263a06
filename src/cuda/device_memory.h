// Memory and loaded kernels that graphs may be using: freed only when the last holder is gone, and
// then only at a moment when a CUDA call is allowed.
#pragma once

#include <cstdint>
#include <memory>
#include <mutex>
#include <vector>

#include "cuda/cuda_context.h"

namespace attn::cuda {

// Memory of the host's allocator, or of the driver where there is none.
struct RetiredMemory {
  uint32_t kind = 0;  // ATTN_MEMORY_DEVICE or ATTN_MEMORY_PINNED
  void* memory = nullptr;
  size_t bytes = 0;
};

// Where memory comes from, and where what is to be freed waits until prepare, trim or a session's
// creation drains it. A graph's destructor runs where no CUDA call may be made: it only puts things
// here. After close() (the back end is going) it forgets what graphs still give back: their context
// may be gone by then.
class RetireList {
 public:
  // `allocator` null: cuMemAlloc and cuMemHostAlloc.
  RetireList(const CudaContext& context, const HostAllocator* allocator)
      : context_(&context), allocator_(allocator) {}
  // Memory that is aligned to 256 bytes, ordered on `stream` where the host's allocator gives it
  // (null: usable at once). The CUDA context must be current. Throws OUT_OF_MEMORY.
  // Where memory is short, what waits here goes first.
  void* allocate(uint32_t kind, size_t bytes, CUstream stream);
  // Gives back at once, behind what `stream` holds; false where only drain() can.
  bool free_on(const RetiredMemory& memory, CUstream stream) noexcept;
  void retire(const RetiredMemory& memory) noexcept;
  void retire_library(CUlibrary library) noexcept;
  bool drain();  // whether anything was freed
  void close();
  const CudaContext& context() const { return *context_; }  // while the back end lives

 private:
  template <class T>
  void keep(std::vector<T>& list, T thing) noexcept;

  void* try_to_allocate(uint32_t kind, size_t bytes, CUstream stream);
  void free_now(const RetiredMemory& memory) noexcept;

  const CudaContext* context_;
  const HostAllocator* allocator_;
  bool closed_ = false;
  std::mutex mutex_;
  std::vector<RetiredMemory> memory_;
  std::vector<CUlibrary> libraries_;
};

// A block of device memory. Shared by a session and the graphs that captured launches using it.
class DeviceBlock {
 public:
  // Throws OUT_OF_MEMORY. `stream`: what uses the block first is behind it.
  DeviceBlock(std::shared_ptr<RetireList> list, size_t bytes, CUstream stream);
  // Cleared before the call returns, for any stream.
  static std::shared_ptr<DeviceBlock> zeroed(const std::shared_ptr<RetireList>& list, size_t bytes);
  ~DeviceBlock() { list_->retire(memory_); }
  DeviceBlock(const DeviceBlock&) = delete;
  DeviceBlock& operator=(const DeviceBlock&) = delete;
  CUdeviceptr address() const { return reinterpret_cast<CUdeviceptr>(memory_.memory); }
  size_t bytes() const { return memory_.bytes; }
  // For the last holder: gives the memory back behind what `stream` holds, where that can be.
  void free_on(CUstream stream) noexcept;

 private:
  std::shared_ptr<RetireList> list_;
  RetiredMemory memory_;
};

// Zeroed pinned memory that the device can address. Shared as DeviceBlock is.
class PinnedBlock {
 public:
  // Throws OUT_OF_MEMORY.
  PinnedBlock(std::shared_ptr<RetireList> list, size_t bytes);
  ~PinnedBlock() { list_->retire(memory_); }
  PinnedBlock(const PinnedBlock&) = delete;
  PinnedBlock& operator=(const PinnedBlock&) = delete;
  void* host() const { return memory_.memory; }
  CUdeviceptr device() const { return address_; }

 private:
  std::shared_ptr<RetireList> list_;
  RetiredMemory memory_;
  CUdeviceptr address_ = 0;
};

}  // namespace attn::cuda
