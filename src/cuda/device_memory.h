// Memory and loaded kernels that graphs may be using: freed only when the last holder is gone, and
// then only at a moment when a CUDA call is allowed.
#pragma once

#include <cstdint>
#include <memory>
#include <mutex>
#include <vector>

#include "cuda/cuda_context.h"

namespace attn::cuda {

// What is to be freed waits here until prepare, trim or a session's creation drains it. A graph's
// destructor runs where no CUDA call may be made: it only puts things here. After close() (the back
// end is going) it forgets what graphs still give back: their context may be gone by then.
class RetireList {
 public:
  explicit RetireList(const CudaContext& context) : context_(&context) {}
  void retire(CUdeviceptr memory) noexcept;
  void retire_pinned(void* memory) noexcept;
  void retire_library(CUlibrary library) noexcept;
  void drain();
  void close();
  const CudaContext& context() const { return *context_; }  // while the back end lives

 private:
  template <class T>
  void keep(std::vector<T>& list, T thing) noexcept;

  const CudaContext* context_;
  bool closed_ = false;
  std::mutex mutex_;
  std::vector<CUdeviceptr> memory_;
  std::vector<void*> pinned_;
  std::vector<CUlibrary> libraries_;
};

// A block of device memory. Shared by a session and the graphs that captured launches using it.
class DeviceBlock {
 public:
  // Throws OUT_OF_MEMORY. `zero`: cleared before the call returns.
  DeviceBlock(std::shared_ptr<RetireList> list, size_t bytes, bool zero);
  ~DeviceBlock() { list_->retire(memory_); }
  DeviceBlock(const DeviceBlock&) = delete;
  DeviceBlock& operator=(const DeviceBlock&) = delete;
  CUdeviceptr address() const { return memory_; }
  size_t bytes() const { return bytes_; }

 private:
  std::shared_ptr<RetireList> list_;
  CUdeviceptr memory_ = 0;
  size_t bytes_ = 0;
};

// Zeroed pinned memory that the device can address. Shared as DeviceBlock is.
class PinnedBlock {
 public:
  // Throws OUT_OF_MEMORY.
  PinnedBlock(std::shared_ptr<RetireList> list, size_t bytes);
  ~PinnedBlock() { list_->retire_pinned(memory_); }
  PinnedBlock(const PinnedBlock&) = delete;
  PinnedBlock& operator=(const PinnedBlock&) = delete;
  void* host() const { return memory_; }
  CUdeviceptr device() const { return address_; }

 private:
  std::shared_ptr<RetireList> list_;
  void* memory_ = nullptr;
  CUdeviceptr address_ = 0;
};

}  // namespace attn::cuda
