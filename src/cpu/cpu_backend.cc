#include "cpu/cpu_backend.h"

#include <algorithm>
#include <new>
#include <span>

#include "core/error.h"
#include "core/float_environment.h"
#include "core/lengths.h"
#include "core/packed_lengths.h"
#include "cpu/cpu_info.h"
#include "cpu/cpu_plan.h"
#include "cpu/engine.h"
#include "cpu/executor.h"
#include "cpu/packed_rows.h"

namespace attn::cpu {
namespace {

// Scratch of one order of executions. Grows when a plan first needs more, goes back by trim alone.
class CpuSession final : public BackendSession {
 public:
  explicit CpuSession(CpuStats* stats) : stats_(stats) {}
  ~CpuSession() override { release(); }
  CpuSession(const CpuSession&) = delete;
  CpuSession& operator=(const CpuSession&) = delete;

  // Lengths are checked before anything runs: there is never a fault.
  FaultReport poll_faults() override { return {}; }
  void clear_faults(void* /*stream*/) override {}
  uint64_t scratch_bytes() const override { return bytes_; }
  void trim() override { release(); }

  std::byte* scratch(size_t bytes) {
    if (bytes > bytes_) grow(bytes);
    return scratch_;
  }

 private:
  void grow(size_t bytes) {
    // Old contents are worth nothing, so the old memory goes first.
    release();
    void* memory = ::operator new(bytes, std::align_val_t{kScratchAlignment}, std::nothrow);
    if (memory == nullptr) {
      throw_error(ATTN_OUT_OF_MEMORY, cat("no memory for ", bytes, " bytes of scratch"));
    }
    scratch_ = static_cast<std::byte*>(memory);
    bytes_ = bytes;
    if (stats_ == nullptr) return;
    stats_->scratch_allocations.fetch_add(1, std::memory_order_relaxed);
    stats_->scratch_bytes.fetch_add(bytes, std::memory_order_relaxed);
  }

  void release() {
    ::operator delete(scratch_, std::align_val_t{kScratchAlignment});
    if (stats_ != nullptr) stats_->scratch_bytes.fetch_sub(bytes_, std::memory_order_relaxed);
    scratch_ = nullptr;
    bytes_ = 0;
  }

  CpuStats* const stats_;
  std::byte* scratch_ = nullptr;
  size_t bytes_ = 0;
};

// The caller's workspace, or the session's scratch: aligned, at least what the plan needs.
std::byte* choose_workspace(const CpuPlan& plan, CpuSession& session, const Launch& launch) {
  const size_t need = plan.workspace_bytes();
  if (launch.workspace == nullptr) return session.scratch(need);
  if (launch.workspace_bytes < need) {
    fail_argument("workspace has ", launch.workspace_bytes, " bytes; this plan needs ", need,
                  " (or a null workspace, for scratch of the session)");
  }
  const auto address = reinterpret_cast<uintptr_t>(launch.workspace);
  const uintptr_t misalignment = address % kScratchAlignment;
  const uintptr_t skip = misalignment == 0 ? 0 : kScratchAlignment - misalignment;
  return static_cast<std::byte*>(launch.workspace) + skip;
}

// Null when nothing is to be written.
const AttentionEngine* choose_attention(const CpuPlan& plan, const Lowering& call) {
  if (!call.attention.has_value() || call.attention->query_rows == 0) return nullptr;
  const bool alone = plan.attention().size() == 1;
  for (const AttentionEngine* engine : plan.attention()) {
    if (!engine->accepts(*call.attention)) continue;
    if (alone || engine->pays(*call.attention)) return engine;
  }
  fail_unsupported("the attention engine ", plan.attention().front()->name(),
                   " is forced but does not take ", call.attention->query_rows, " query rows with ",
                   call.attention->max_total, " keys");
}

class Cpu final : public CpuBackend {
 public:
  Cpu(SimdLevel level, std::unique_ptr<Executor> executor, CpuStats* stats)
      : executor_(std::move(executor)), stats_(stats) {
    context_.level = level;
    context_.concurrency = executor_->concurrency();
  }

  int thread_count() const override { return context_.concurrency; }
  const char* simd_level() const override { return name_of(context_.level); }
  std::vector<std::string> engine_names() const override { return all_engine_names(); }

  bool supports(const Lowering& call, const PlanRequest& request, std::string* reason) override {
    return can_plan(context_, call, request, reason);
  }

  std::shared_ptr<const BackendPlan> plan(const Lowering& call, const ShapeRange& range,
                                          const PlanRequest& request) override {
    return make_plan(context_, call, range, request);
  }

  std::unique_ptr<BackendSession> create_session() override {
    return std::make_unique<CpuSession>(stats_);
  }

  void execute(const BackendPlan& plan, const Lowering& call, BackendSession& session,
               const Launch& launch) override {
    const auto& cpu_plan = static_cast<const CpuPlan&>(plan);
    if (!is_packed(call)) return run(cpu_plan, call, session, launch);
    Lowering bounded = call;
    bound_packed(cpu_plan.range(), bounded.lengths, *bounded.attention);
    run(cpu_plan, bounded, session, launch);
  }

 private:
  void run(const CpuPlan& cpu_plan, const Lowering& call, BackendSession& session,
           const Launch& launch) {
    const AttentionEngine* attention = choose_attention(cpu_plan, call);
    std::byte* scratch = choose_workspace(cpu_plan, static_cast<CpuSession&>(session), launch);
    const std::span<RowLengths> rows(reinterpret_cast<RowLengths*>(scratch),
                                     static_cast<size_t>(call.batch));
    resolve_lengths(call.lengths, rows);
    if (call.rotary.has_value()) check_positions(*call.rotary);
    if (call.scatter.has_value()) check_write_indices(*call.scatter);
    // Nothing below fails.
    if (is_packed(call)) clear_loose_rows(*call.attention, rows);
    if (call.batch == 0) return;
    const FloatEnvironment environment;
    const size_t lengths_bytes = rows_bytes(call.batch);
    const std::span<std::byte> stage_scratch(
        scratch + lengths_bytes, cpu_plan.workspace_bytes() - kScratchAlignment - lengths_bytes);
    if (call.kv_update.has_value()) {
      cpu_plan.kv_update()->run(*call.kv_update, rows, stage_scratch, *executor_, context_.level);
    }
    if (call.rotary.has_value()) {
      cpu_plan.rotary()->run(*call.rotary, stage_scratch, *executor_, context_.level);
    }
    if (call.scatter.has_value()) cpu_plan.scatter()->run(*call.scatter, *executor_);
    if (call.linear_attention.has_value()) {
      const LinearAttentionProblem& problem = *call.linear_attention;
      choose_linear_attention(cpu_plan.linear_attention(), problem.spec, problem.tokens,
                              context_.level)
          .run(problem, stage_scratch, *executor_, context_.level);
    }
    if (attention == nullptr) return;
    if (is_packed(call)) {
      attention->run(as_long_as_needed(*call.attention, rows), rows, stage_scratch, *executor_,
                     context_.level);
    } else {
      attention->run(*call.attention, rows, stage_scratch, *executor_, context_.level);
    }
  }

  PlanContext context_;
  const std::unique_ptr<Executor> executor_;
  CpuStats* const stats_;
};

std::string level_names(const std::vector<SimdLevel>& levels) {
  std::string text;
  for (const SimdLevel level : levels) {
    if (!text.empty()) text += ", ";
    text += name_of(level);
  }
  return text;
}

SimdLevel choose_level(const std::string& name) {
  if (name.empty()) return best_simd_level();
  const std::vector<SimdLevel>& available = available_simd_levels();
  SimdLevel level{};
  if (!parse_simd_level(name, &level)) {
    fail_argument("simd_level is \"", name, "\", which is no level; this machine has ",
                  level_names(available));
  }
  if (std::find(available.begin(), available.end(), level) == available.end()) {
    fail_unsupported("simd_level is \"", name, "\", which this machine does not have; it has ",
                     level_names(available));
  }
  return level;
}

std::unique_ptr<Executor> choose_executor(const CpuOptions& options) {
  if (options.thread_count < 0) {
    fail_argument("thread_count is ", options.thread_count,
                  ": it must be at least 0 (0 = all that the process may use)");
  }
  if (options.executor.parallel_for != nullptr) {
    if (options.executor.concurrency == nullptr) {
      fail_argument("executor has parallel_for but no concurrency");
    }
    return make_host_executor(options.executor, options.thread_count);
  }
  return make_pool_executor(options.thread_count > 0 ? options.thread_count : available_cores());
}

}  // namespace

std::unique_ptr<CpuBackend> make_cpu_backend(const CpuOptions& options) {
  return std::make_unique<Cpu>(choose_level(options.simd_level), choose_executor(options),
                               options.stats);
}

}  // namespace attn::cpu
