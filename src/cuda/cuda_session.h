// One order of executions on a CUDA device: fault words, counters and scratch.
#pragma once

#include <atomic>
#include <cstdint>
#include <memory>

#include "common/params.h"
#include "core/backend.h"
#include "cuda/device_memory.h"
#include "cuda/kernel_store.h"

namespace attn::cuda {

// Blocks of a split decode that may wait for each other: one counter each.
inline constexpr int64_t kCounters = 16384;

struct CudaCounters {
  std::atomic<uint64_t> scratch_allocations{0};
  std::atomic<uint64_t> scratch_bytes{0};
};

class CudaSession final : public BackendSession {
 public:
  // `code` holds every kernel that the session's executions launch.
  CudaSession(std::shared_ptr<RetireList> list, const LoadedKernel* clear_kernel,
              std::shared_ptr<LoadedLibraries> code, CudaCounters* counters);
  ~CudaSession() override;
  CudaSession(const CudaSession&) = delete;
  CudaSession& operator=(const CudaSession&) = delete;

  FaultReport poll_faults() override;
  void clear_faults(void* stream) override;
  uint64_t scratch_bytes() const override { return scratch_ ? scratch_->bytes() : 0; }
  void trim() override { drop_scratch(); }

  // Scratch of at least `bytes` for what `stream` runs next; grown (not while `capturing`: throws
  // CAPTURE) and never moved while a graph holds it.
  CUdeviceptr scratch(size_t bytes, CUstream stream, bool capturing);
  // Keeps state, scratch and the kernels' code alive for as long as `graph` and what is made of it.
  void retain_in(CUgraph graph);

  attnk::FaultState* faults() const;
  attnk::FaultRecord* device_record() const {
    return reinterpret_cast<attnk::FaultRecord*>(pinned_->device());
  }
  const attnk::FaultRecord& record() const {
    return *static_cast<const attnk::FaultRecord*>(pinned_->host());
  }
  uint32_t* counters() const;

 private:
  std::shared_ptr<DeviceBlock> drop_scratch();
  std::shared_ptr<RetireList> list_;
  const LoadedKernel* clear_kernel_;
  std::shared_ptr<LoadedLibraries> code_;
  CudaCounters* counters_;
  std::shared_ptr<DeviceBlock> state_;  // FaultState, then kCounters counters
  std::shared_ptr<DeviceBlock> scratch_;
  std::shared_ptr<PinnedBlock> pinned_;  // the FaultRecord
};

}  // namespace attn::cuda
