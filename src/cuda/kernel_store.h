// The kernels of one CUDA context: looked up in the pack, then on disk, then compiled, then loaded;
// each once, however many threads ask.
#pragma once

#include <atomic>
#include <cstdint>
#include <future>
#include <map>
#include <memory>
#include <mutex>
#include <span>
#include <string>
#include <utility>
#include <vector>

#include "cuda/cubin_pack.h"
#include "cuda/cuda_context.h"
#include "cuda/device_memory.h"
#include "cuda/disk_cache.h"
#include "cuda/kernel_variant.h"
#include "cuda/nvrtc_api.h"

namespace attn::cuda {

struct LoadedKernel {
  CUfunction function = nullptr;
  unsigned threads = 0;
  unsigned shared_bytes = 0;
  std::string origin;  // "pack", "disk cache" or "NVRTC"
};

// Throws UNSUPPORTED where a grid is larger than devices take.
void check_blocks(int64_t blocks);

// Launches one-dimensional grids. `arguments` points to one pointer a kernel parameter. `overlap`:
// may begin while the kernel before it in the stream ends (the kernel itself waits for its
// results).
void launch_kernel(const Driver& driver, const LoadedKernel& kernel, int64_t blocks,
                   unsigned threads, CUstream stream, void** arguments, bool overlap);

// Compiles a variant for a target as the store does. Throws COMPILE. Any threads at once.
CompiledKernel compile_kernel(const Nvrtc& nvrtc, const std::string& target,
                              const KernelVariant& variant, bool line_info);

// Loaded code, unloaded when the store and every graph that may launch it are gone.
class LoadedLibraries {
 public:
  explicit LoadedLibraries(std::shared_ptr<RetireList> list) : list_(std::move(list)) {}
  ~LoadedLibraries();
  LoadedLibraries(const LoadedLibraries&) = delete;
  LoadedLibraries& operator=(const LoadedLibraries&) = delete;
  void add(CUlibrary library);

 private:
  std::shared_ptr<RetireList> list_;
  std::mutex mutex_;
  std::vector<CUlibrary> libraries_;
};

class KernelStore {
 public:
  KernelStore(const CudaContext& context, const CudaOptions& options,
              std::shared_ptr<RetireList> list);

  // The kernel, ready to launch in the context. Throws COMPILE, UNAVAILABLE (no compiler and not in
  // the pack) or DEVICE. The pointer lives as long as the store.
  const LoadedKernel* get(const KernelVariant& variant);

  // Compiles what is missing of these at once, on threads of its own; get() then only looks up.
  void prefetch(std::span<const KernelVariant> variants);

  // The code of every kernel of this store: who holds it may launch them.
  std::shared_ptr<LoadedLibraries> code() const { return code_; }
  // Before the back end goes: what no graph holds may be unloaded then.
  void release() { code_.reset(); }

  uint64_t compiles() const { return compiles_; }
  uint64_t disk_hits() const { return disk_hits_; }
  uint64_t disk_misses() const { return disk_misses_; }
  const DiskCache& disk() const { return disk_; }

 private:
  struct Library {
    CUlibrary handle = nullptr;
    std::string origin;
    std::string compiler;  // of a cubin that was compiled here: "NVRTC 13.5"; else empty
  };
  const LoadedKernel* find(const std::string& name);  // null: not there yet
  const Library& library(const KernelVariant& variant);
  std::string find_cubin(const KernelVariant& variant, Library* out);

  const CudaContext& context_;
  std::shared_ptr<LoadedLibraries> code_;
  std::string nvrtc_path_;
  DiskCache disk_;
  CubinPack pack_;
  std::mutex mutex_;
  std::map<std::string, std::shared_future<Library>> libraries_;  // by variant text
  std::map<std::string, LoadedKernel> kernels_;       // by text, entry, shared bytes and threads
  std::mutex loading_mutex_;                          // taken before mutex_
  std::map<std::string, int64_t> most_shared_bytes_;  // asked for, by text and entry
  std::atomic<uint64_t> compiles_{0}, disk_hits_{0}, disk_misses_{0};
};

}  // namespace attn::cuda
