#include "cuda/cuda_backend.h"

#include <algorithm>
#include <memory>
#include <optional>

#include "core/error.h"
#include "core/lengths.h"
#include "cuda/cuda_host_help.h"
#include "cuda/cuda_plan.h"
#include "cuda/cuda_session.h"
#include "cuda/host_lengths.h"
#include "cuda/launch_params.h"
#include "cuda/linear_attention_engines.h"
#include "cuda/nvrtc_api.h"
#include "cuda/row_operators.h"

namespace attn::cuda {
namespace {

// How the rows of a KV update, `rows` of each of `heads` heads (key and value counted apart) of
// each batch row, are cut: into items for the warps, of one row each while that does not give every
// warp of the device something to do, of several where there is more; and items into blocks, which
// are several times more than run at once where there is that much.
void cut_update(int64_t batch, int64_t heads, int64_t rows, int64_t multiprocessors,
                attnk::KvUpdateParams& out) {
  constexpr int64_t kWarps = 8, kMostRowsLog2 = 4, kMostRounds = 32;
  constexpr int64_t kCountable = int64_t{1} << 30;
  const auto items = [&](int64_t log2) {
    return heads * ((rows + (int64_t{1} << log2) - 1) >> log2);
  };
  int64_t log2 = 0;
  while ((int64_t{1} << log2) < rows &&
         (items(log2) > kCountable ||
          (log2 < kMostRowsLog2 && batch * items(log2 + 1) >= kWarps * multiprocessors))) {
    ++log2;
  }
  const int64_t rounds = batch * items(log2) / (kWarps * multiprocessors * 16);
  out.item_rows_log2 = log2;
  out.items_per_chunk = kWarps * std::clamp<int64_t>(rounds, 1, kMostRounds);
  out.chunks = std::max<int64_t>(1, (items(log2) + out.items_per_chunk - 1) / out.items_per_chunk);
}

struct Capture {
  bool active = false;
  CUgraph graph = nullptr;
};

Capture capture_of(const Driver& driver, CUstream stream) {
  int status = kCaptureStatusNone;
  unsigned long long id = 0;
  Capture capture;
  check(driver, driver.StreamGetCaptureInfo(stream, &status, &id, &capture.graph, nullptr, nullptr),
        "cuStreamGetCaptureInfo");
  capture.active = status == kCaptureStatusActive;
  return capture;
}

// Whether the host may look at the lengths of this call, and what it finds there.
void check_lengths(const CudaContext& context, const CudaPlan& plan, const Lengths& lengths,
                   const Launch& request, bool capturing) {
  if (plan.check_on_host && capturing) throw_error(ATTN_CAPTURE, plan.capture_reason());
  if (lengths.spec.values == Placement::kHost) {
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

const AttentionChoice& choose(const CudaPlan& plan, const AttentionProblem& problem) {
  for (const AttentionChoice& choice : plan.attention) {
    if (choice.engine->accepts(problem)) return choice;
  }
  fail_unsupported("the attention engine ", plan.attention.front().engine->name(),
                   " is forced but does not take these shapes, strides or addresses");
}

// Whether the keys before the new ones are where the attention reads them before the KV update
// runs: it only appends, or there is no cache. Explicit positions are checked by the update alone.
bool starts_early(const Lowering& call) {
  const auto stays = [](const CacheUpdateSpec& cache) { return !cache.active || cache.in_place; };
  return !call.kv_update || (stays(call.kv_update->spec.key) && stays(call.kv_update->spec.value));
}

// Parts are merged by counters of the session, one for each (sequence, key head, row tile).
void check_counters(const AttentionProblem& problem, const LaunchShape& shape) {
  const int64_t units = shape.blocks / std::max<int64_t>(shape.splits, 1);
  if (shape.splits > 1 && units > kCounters) {
    fail_unsupported("a batch of ", problem.batch, " needs ", units, " merges at once for results ",
                     "that do not depend on the batch; there are ", kCounters);
  }
}

int64_t rows_to_visit(const CacheUpdateSpec& spec, const CacheUpdate& update, int64_t new_rows) {
  if (!spec.active) return 0;
  return spec.in_place ? new_rows : update.present.rows;
}

std::string version_text(int version) { return cat(version / 1000, ".", version % 1000 / 10); }

class Cuda final : public CudaBackend {
 public:
  explicit Cuda(const CudaOptions& options)
      : context_(options),
        nvrtc_path_(options.nvrtc_path),
        retired_(std::make_shared<RetireList>(context_)),
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
    retired_->drain();
    return make_plan(context_, kernels_, call, range, request);
  }

  std::unique_ptr<BackendSession> create_session() override {
    const LoadedKernel* clear = kernels_.get(session_variant("attn_clear_faults"));
    return std::make_unique<CudaSession>(retired_, clear, &counters_);
  }

  void execute(const BackendPlan& base, const Lowering& call, BackendSession& base_session,
               const Launch& request) override {
    const auto& plan = static_cast<const CudaPlan&>(base);
    auto& session = static_cast<CudaSession&>(base_session);
    if (call.batch == 0) return;
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
      run_rows(context_, plan, call, session, request);
      if (capture.active) session.retain_in(capture.graph, kernels_.code());
      return;
    }
    const CUdeviceptr scratch = workspace(plan, session, request, capture.active);
    if (call.linear_attention) {
      launch_linear_attention(driver, plan, *call.linear_attention, session.faults(), scratch,
                              stream);
      if (capture.active) session.retain_in(capture.graph, kernels_.code());
      return;
    }

    attnk::KvUpdateParams update{};
    fill_lengths(call.lengths, update.lengths);
    if (plan.store_lengths != nullptr) {
      const CUdeviceptr stored = scratch + rows_bytes(plan.range.batch);
      update.lengths.values = reinterpret_cast<const attnk::i32*>(stored);
      update.lengths.value_stride = 1;
    }
    int64_t rows = 0;
    if (call.kv_update) {
      const KvUpdateProblem& kv = *call.kv_update;
      fill_kv_update(kv, update);
      rows = std::max(rows_to_visit(kv.spec.key, kv.key, kv.new_rows),
                      rows_to_visit(kv.spec.value, kv.value, kv.new_rows));
    }
    update.rows = reinterpret_cast<attnk::RowLengths*>(scratch);
    update.faults = session.faults();
    update.record = session.device_record();
    update.label = request.label;
    update.batch = call.batch;
    cut_update(call.batch, 2 * update.kv_heads, rows, context_.multiprocessors, update);

    const bool has_attention = call.attention && call.attention->query_rows > 0;
    attnk::AttentionParams attention{};
    const AttentionChoice* choice = nullptr;
    LaunchShape shape;
    if (has_attention) {
      choice = &choose(plan, *call.attention);
      shape = choice->engine->shape(*call.attention, context_, plan.batch_invariant);
      check_counters(*call.attention, shape);
      fill_attention(*call.attention, attention);
      if (call.attention->spec.key_fresh && !call.attention->spec.key_cached) {
        attention.key = attention.key_fresh;
      }
      if (call.attention->spec.value_fresh && !call.attention->spec.value_cached) {
        attention.value = attention.value_fresh;
      }
      attention.rows = update.rows;
      attention.faults = update.faults;
      attention.record = update.record;
      attention.early = starts_early(call);
      if (attention.early != 0) attention.lengths = update.lengths;
      attention.partials = reinterpret_cast<float*>(scratch + plan.partials_offset);
      attention.counters = session.counters();
      attention.splits = shape.splits;
      attention.last = 1;
    }

    if (plan.store_lengths != nullptr) {
      store_lengths(driver, *plan.store_lengths, call.lengths,
                    reinterpret_cast<CUdeviceptr>(update.lengths.values), stream);
    }
    void* update_arguments[] = {&update};
    launch_kernel(driver, *plan.kv_update, call.batch * update.chunks, plan.kv_update->threads,
                  stream, update_arguments, false);
    if (has_attention) {
      void* arguments[] = {&attention};
      launch_kernel(driver, *choice->kernel, shape.blocks, choice->kernel->threads, stream,
                    arguments, context_.overlaps_launches);
    } else {
      attnk::FaultState* faults = session.faults();
      attnk::FaultRecord* record = session.device_record();
      void* arguments[] = {static_cast<void*>(&faults), static_cast<void*>(&record)};
      launch_kernel(driver, *plan.end_call, 1, 1, stream, arguments, false);
    }
    if (capture.active) session.retain_in(capture.graph, kernels_.code());
  }

 private:
  CUdeviceptr workspace(const CudaPlan& plan, CudaSession& session, const Launch& request,
                        bool capturing) const {
    if (request.workspace == nullptr) return session.scratch(plan.workspace, capturing);
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
