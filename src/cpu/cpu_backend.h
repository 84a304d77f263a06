// The CPU back end: planning, choice of engines, workspace, execution.
#pragma once

#include <atomic>
#include <cstdint>
#include <memory>
#include <string>

#include "core/backend.h"

namespace attn::cpu {

// The host's thread pool (attn_executor without its ownership: whoever makes the back end keeps
// `user` alive for as long as the back end lives).
struct HostExecutor {
  void* user = nullptr;
  int32_t (*concurrency)(void* user) = nullptr;
  void (*parallel_for)(void* user, int32_t count, void (*task)(void* task_context, int32_t index),
                       void* task_context) = nullptr;  // null: the library's pool
};

// Counters that a back end adds to; they outlive it and its sessions.
struct CpuStats {
  std::atomic<uint64_t> scratch_allocations{0};  // times that scratch of any session grew
  std::atomic<uint64_t> scratch_bytes{0};        // held now by all sessions
};

struct CpuOptions {
  int thread_count = 0;    // threads of one execute, the caller's included; 0 = all available
  std::string simd_level;  // a name of simd_level.h; empty = the best that the machine has
  HostExecutor executor;
  CpuStats* stats = nullptr;  // optional
};

// A Backend for the processor. Threads: any at once; a session one at a time.
class CpuBackend : public Backend {
 public:
  virtual int thread_count() const = 0;        // threads that one execute may use
  virtual const char* simd_level() const = 0;  // in use
};

// Throws INVALID_ARGUMENT for a negative thread count, an executor without `concurrency`, or an
// unknown SIMD level, UNSUPPORTED for a level that this build or machine lacks; both name what
// there is. Starts no thread.
std::unique_ptr<CpuBackend> make_cpu_backend(const CpuOptions& options);

}  // namespace attn::cpu
