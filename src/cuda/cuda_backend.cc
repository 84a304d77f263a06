#include "cuda/cuda_backend.h"

#include <memory>
#include <optional>

#include "core/error.h"
#include "core/packed_lengths.h"
#include "cuda/capture.h"
#include "cuda/cuda_host_help.h"
#include "cuda/cuda_plan.h"
#include "cuda/cuda_session.h"
#include "cuda/host_lengths.h"
#include "cuda/linear_attention_engines.h"
#include "cuda/nvrtc_api.h"
#include "cuda/row_operators.h"
#include "cuda/softmax_call.h"

namespace attn::cuda {
namespace {

// Whether the host may look at the lengths of this call, and what it finds there.
void check_lengths(const CudaContext& context, const CudaPlan& plan, const Lengths& lengths,
                   const Launch& request, bool capturing) {
  if (plan.check_on_host && capturing) throw_error(ATTN_CAPTURE, plan.capture_reason());
  if (are_on_host(lengths.spec)) {
    if (capturing && (request.flags & ATTN_EXECUTE_BAKE_HOST_VALUES) == 0) {
      throw_error(ATTN_CAPTURE,
                  "the lengths are in host memory, and a capture would keep their values of this "
                  "moment: give them in device memory, or set ATTN_EXECUTE_BAKE_HOST_VALUES");
    }
    check_host_lengths(lengths);
  }
  if (plan.check_on_host) {
    check_device_lengths(context, lengths, static_cast<CUstream>(request.stream));
  }
}

std::string version_text(int version) { return cat(version / 1000, ".", version % 1000 / 10); }

class Cuda final : public CudaBackend {
 public:
  explicit Cuda(const CudaOptions& options)
      : context_(options),
        nvrtc_path_(options.nvrtc_path),
        retired_(std::make_shared<RetireList>(context_, options.allocator)),
        kernels_(context_, options, retired_),
        host_help_(make_host_help(context_)) {}
  ~Cuda() override {
    kernels_.release();
    retired_->close();
  }

  std::vector<std::string> engine_names() const override { return all_engine_names(); }
  CudaFacts facts() const override {
    CudaFacts out;
    out.device_name = context_.name;
    out.architecture = context_.architecture;
    out.driver_version = version_text(context_.driver.version);
    out.driver_path = context_.driver.path;
    out.cache_folder = kernels_.disk().folder();
    out.uuid = context_.uuid;
    out.pci_id = context_.pci_id;
    try {
      const Nvrtc& nvrtc = Nvrtc::get(nvrtc_path_);
      out.nvrtc_version = nvrtc.version_text();
      out.nvrtc_path = nvrtc.path();
    } catch (const Error&) {  // the pack may still serve; a plan that needs it says what was tried
    }
    return out;
  }

  BackendCounters counters() const override {
    BackendCounters out;
    out.scratch_allocations = counters_.scratch_allocations.load(std::memory_order_relaxed);
    out.scratch_bytes = counters_.scratch_bytes.load(std::memory_order_relaxed);
    out.kernel_compiles = kernels_.compiles();
    out.disk_cache_hits = kernels_.disk_hits();
    out.disk_cache_misses = kernels_.disk_misses();
    return out;
  }

  void reclaim() override { retired_->drain(); }

  HostHelp* host_help() override { return host_help_.get(); }

  bool is_capturing(void* stream) const override {
    const ContextScope scope(context_);
    return capture_of(context_.driver, static_cast<CUstream>(stream)).active;
  }

  bool supports(const Lowering& call, const PlanRequest& request, std::string* reason) override {
    return can_plan(context_, call, request, reason);
  }

  std::shared_ptr<const BackendPlan> plan(const Lowering& call, const ShapeRange& range,
                                          const PlanRequest& request) override {
    return make_plan(context_, kernels_, call, range, request);
  }

  std::unique_ptr<BackendSession> create_session() override {
    const LoadedKernel* clear = kernels_.get(session_variant("attn_clear_faults"));
    return std::make_unique<CudaSession>(retired_, clear, kernels_.code(), &counters_);
  }

  void execute(const BackendPlan& base, const Lowering& call, BackendSession& base_session,
               const Launch& request) override {
    const auto& plan = static_cast<const CudaPlan&>(base);
    auto& session = static_cast<CudaSession&>(base_session);
    if (is_packed(call)) {
      Lowering bounded = call;
      bound_packed(plan.range, bounded.lengths, *bounded.attention);
      run(plan, bounded, session, request);
    } else if (call.batch > 0) {
      run(plan, call, session, request);
    }
  }

 private:
  void run(const CudaPlan& plan, const Lowering& call, CudaSession& session,
           const Launch& request) {
    const Driver& driver = context_.driver;
    const auto stream = static_cast<CUstream>(request.stream);
    std::optional<ContextScope> scope;
    Capture capture;
    if ((request.flags & ATTN_EXECUTE_EAGER) == 0) {
      scope.emplace(context_);
      capture = capture_of(driver, stream);
    }
    check_lengths(context_, plan, call.lengths, request, capture.active);
    if (is_row_operator(call)) {
      if (plan.check_on_host) check_device_rows(context_, call, stream);
      if (capture.active) session.retain_in(capture.graph);
      run_rows(context_, plan, call, session, request);
      return;
    }
    const CUdeviceptr scratch = workspace(plan, session, request, capture.active);
    // Before the first launch: what fails later leaves nodes in the graph.
    if (capture.active) session.retain_in(capture.graph);
    if (call.linear_attention) {
      launch_linear_attention(driver, plan, *call.linear_attention, session.faults(), scratch,
                              stream);
    } else {
      run_softmax(context_, plan, call, session, request, scratch);
    }
  }

  CUdeviceptr workspace(const CudaPlan& plan, CudaSession& session, const Launch& request,
                        bool capturing) const {
    if (request.workspace == nullptr) {
      return session.scratch(plan.workspace, static_cast<CUstream>(request.stream), capturing);
    }
    if (request.workspace_bytes < plan.workspace) {
      fail_argument("workspace has ", request.workspace_bytes, " bytes; this plan needs ",
                    plan.workspace, " (or a null workspace, for scratch of the session)");
    }
    const auto address = reinterpret_cast<CUdeviceptr>(request.workspace);
    return (address + 255) / 256 * 256;
  }

  CudaContext context_;
  const std::string nvrtc_path_;
  std::shared_ptr<RetireList> retired_;
  KernelStore kernels_;
  std::unique_ptr<HostHelp> host_help_;
  CudaCounters counters_;
};

}  // namespace

std::unique_ptr<CudaBackend> make_cuda_backend(const CudaOptions& options) {
  return std::make_unique<Cuda>(options);
}

}  // namespace attn::cuda
