#include "cpu/attention_generic.h"

#include <algorithm>
#include <atomic>

#include "core/error.h"
#include "cpu/attention_generic_block.h"

namespace attn::cpu {
namespace {

// Below this much work another thread costs more than it brings.
constexpr double kParallelFlops = 65536;

struct Job {
  const AttentionProblem* problem = nullptr;
  const RowLengths* rows = nullptr;
  const RowKernels* kernels = nullptr;
  std::byte* scratch = nullptr;
  int64_t blocks = 0;  // of one head
  int64_t items = 0;
  std::atomic<int64_t> next{0};
};

template <class Acc>
void run_task(void* ctx, int task) {
  Job& job = *static_cast<Job*>(ctx);
  const AttentionProblem& problem = *job.problem;
  const size_t stride = generic::scratch_bytes<Acc>(problem.spec);
  const generic::Scratch<Acc> scratch = generic::lay_out<Acc>(
      problem.spec, job.scratch + static_cast<size_t>(task) * stride, job.kernels);
  for (;;) {
    const int64_t item = job.next.fetch_add(1, std::memory_order_relaxed);
    if (item >= job.items) return;
    const int64_t block = item % job.blocks;
    const int64_t head = item / job.blocks % problem.spec.q_heads;
    const int64_t batch = item / job.blocks / problem.spec.q_heads;
    generic::Block<Acc>(problem, job.rows[batch], scratch, batch, head, block * generic::kBlockRows)
        .run();
  }
}

bool is_mask_type(DType mask, DType type) {
  return mask == kFloat32 || mask == kFloat16 || mask == kBfloat16 ||
         (mask == kFloat64 && type == kFloat64);
}

class GenericAttention final : public AttentionEngine {
 public:
  const char* name() const override { return "generic"; }

  bool supports(const AttentionSpec& spec, SimdLevel /*level*/,
                std::string* why_not) const override {
    std::string reason;
    const bool is_double = spec.type == kFloat64;
    if (!is_double && spec.type != kFloat32 && spec.type != kFloat16 && spec.type != kBfloat16) {
      reason = cat("no attention of type ", name_of(spec.type));
    } else if (is_double && (spec.query_transform.any() || spec.key_transform.any())) {
      reason = "no norm or rotary embedding of type float64";
    } else if (spec.mask == MaskKind::kAdditive && !is_mask_type(spec.mask_type, spec.type)) {
      reason = cat("no mask of type ", name_of(spec.mask_type), " with ", name_of(spec.type));
    }
    if (reason.empty()) return true;
    if (why_not != nullptr) *why_not = std::move(reason);
    return false;
  }

  bool accepts(const AttentionProblem& /*problem*/) const override { return true; }

  size_t workspace_bytes(const AttentionSpec& spec, const ShapeRange& /*range*/, int concurrency,
                         SimdLevel /*level*/) const override {
    const size_t thread = spec.type == kFloat64 ? generic::scratch_bytes<double>(spec)
                                                : generic::scratch_bytes<float>(spec);
    return static_cast<size_t>(concurrency) * thread;
  }

  void run(const AttentionProblem& problem, std::span<const RowLengths> rows,
           std::span<std::byte> scratch, Executor& executor, SimdLevel level) const override {
    const AttentionSpec& spec = problem.spec;
    Job job;
    job.problem = &problem;
    job.rows = rows.data();
    job.kernels = row_kernels(level);
    job.scratch = scratch.data();
    job.blocks = (problem.query_rows + generic::kBlockRows - 1) / generic::kBlockRows;
    job.items = problem.batch * spec.q_heads * job.blocks;
    if (job.items == 0) return;
    // Floating point: the product of all sizes may leave the range of an integer.
    const double flops = 2.0 * static_cast<double>(problem.batch) * spec.q_heads *
                         static_cast<double>(problem.query_rows) *
                         static_cast<double>(problem.max_total) *
                         (spec.head_size + spec.v_head_size);
    const int64_t tasks =
        flops < kParallelFlops ? 1 : std::min<int64_t>(executor.concurrency(), job.items);
    void (*task)(void*, int) = spec.type == kFloat64 ? &run_task<double> : &run_task<float>;
    if (tasks <= 1) {
      task(&job, 0);
    } else {
      executor.parallel_for(static_cast<int>(tasks), task, &job);
    }
  }
};

}  // namespace

const AttentionEngine& generic_attention_engine() {
  static const GenericAttention engine;
  return engine;
}

}  // namespace attn::cpu
