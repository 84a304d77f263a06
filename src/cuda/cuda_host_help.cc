#include "cuda/cuda_host_help.h"

#include <cstdlib>

#include "attn_c.h"
#include "core/error.h"

namespace attn::cuda {
namespace {

constexpr size_t kAlignment = 256;

class CudaGraph final : public HostGraph {
 public:
  CudaGraph(const CudaContext& context, CUgraphExec executable)
      : context_(context), executable_(executable) {}
  ~CudaGraph() override {
    const ContextScope scope(context_, ContextScope::kBestEffort);
    context_.driver.GraphExecDestroy(executable_);
  }
  void launch(void* stream) override {
    ContextScope scope(context_);
    check(context_.driver, context_.driver.GraphLaunch(executable_, static_cast<CUstream>(stream)),
          "cuGraphLaunch");
  }

 private:
  const CudaContext& context_;
  CUgraphExec executable_;
};

class CudaHostHelp final : public HostHelp {
 public:
  explicit CudaHostHelp(const CudaContext& context) : context_(context), driver_(context.driver) {}

  void* allocate(uint32_t kind, uint64_t bytes) override {
    const size_t size = bytes == 0 ? 1 : bytes;
    if (kind == ATTN_MEMORY_HOST) {
      void* memory = nullptr;
      if (posix_memalign(&memory, kAlignment, size) != 0) {
        throw_error(ATTN_OUT_OF_MEMORY, cat("no host memory of ", bytes, " bytes"));
      }
      return memory;
    }
    ContextScope scope(context_);
    RelaxedCapture relaxed(driver_);
    if (kind == ATTN_MEMORY_PINNED) {
      void* memory = nullptr;
      check(driver_, driver_.MemHostAlloc(&memory, size, kHostAllocPortableMapped),
            "cuMemHostAlloc");
      return memory;
    }
    CUdeviceptr memory = 0;
    check(driver_, driver_.MemAlloc(&memory, size), "cuMemAlloc");
    return reinterpret_cast<void*>(memory);
  }

  void deallocate(uint32_t kind, void* memory) override {
    if (memory == nullptr) return;
    if (kind == ATTN_MEMORY_HOST) {
      std::free(memory);
      return;
    }
    ContextScope scope(context_);
    RelaxedCapture relaxed(driver_);
    if (kind == ATTN_MEMORY_PINNED) {
      check(driver_, driver_.MemFreeHost(memory), "cuMemFreeHost");
    } else {
      check(driver_, driver_.MemFree(reinterpret_cast<CUdeviceptr>(memory)), "cuMemFree");
    }
  }

  void copy(void* target, const void* source, uint64_t bytes, void* stream) override {
    if (bytes == 0) return;
    if (target == nullptr || source == nullptr) {
      fail_argument(target == nullptr ? "target" : "source", " is null, but bytes is ", bytes);
    }
    ContextScope scope(context_);
    check(driver_,
          driver_.MemcpyAsync(reinterpret_cast<CUdeviceptr>(target),
                              reinterpret_cast<CUdeviceptr>(source), bytes,
                              static_cast<CUstream>(stream)),
          "cuMemcpyAsync");
  }

  void* create_stream() override {
    ContextScope scope(context_);
    CUstream stream = nullptr;
    check(driver_, driver_.StreamCreate(&stream, kStreamNonBlocking), "cuStreamCreate");
    return stream;
  }

  void synchronize(void* stream) override {
    ContextScope scope(context_);
    check(driver_, driver_.StreamSynchronize(static_cast<CUstream>(stream)), "cuStreamSynchronize");
  }

  void release_stream(void* stream) override {
    if (stream == nullptr) return;
    ContextScope scope(context_);
    check(driver_, driver_.StreamDestroy(static_cast<CUstream>(stream)), "cuStreamDestroy");
  }

  void begin_capture(void* stream) override {
    ContextScope scope(context_);
    check(driver_,
          driver_.StreamBeginCapture(static_cast<CUstream>(stream), kCaptureModeThreadLocal),
          "cuStreamBeginCapture");
  }

  std::unique_ptr<HostGraph> end_capture(void* stream) override {
    ContextScope scope(context_);
    CUgraph graph = nullptr;
    check(driver_, driver_.StreamEndCapture(static_cast<CUstream>(stream), &graph),
          "cuStreamEndCapture");
    CUgraphExec executable = nullptr;
    const CUresult result = driver_.GraphInstantiateWithFlags(&executable, graph, 0);
    driver_.GraphDestroy(graph);
    check(driver_, result, "cuGraphInstantiateWithFlags");
    return std::make_unique<CudaGraph>(context_, executable);
  }

 private:
  const CudaContext& context_;
  const Driver& driver_;
};

}  // namespace

std::unique_ptr<HostHelp> make_host_help(const CudaContext& context) {
  return std::make_unique<CudaHostHelp>(context);
}

}  // namespace attn::cuda
