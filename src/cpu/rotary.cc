#include "cpu/rotary.h"

#include <algorithm>
#include <cstdlib>

#include "core/error.h"
#include "cpu/item_queue.h"
#include "cpu/row_transform.h"
#include "cpu/row_transform_simd.h"

namespace attn::cpu {
namespace {

constexpr size_t kCacheLine = 64;
constexpr int64_t kItemRows = 32;  // of a work item: one call of the SIMD kernel

struct Job : ItemQueue {
  const RotaryProblem* problem = nullptr;
  const RowKernels* kernels = nullptr;
  // A work item is up to kItemRows rows along the axis (of heads and rows) whose steps are smaller.
  bool along_heads = false;
  int64_t outer = 0, inner = 0, inner_items = 0;
  std::byte* scratch = nullptr;
  size_t scratch_stride = 0;
};

char* element(const View4& view, int64_t size, int64_t batch, int64_t head, int64_t row) {
  return static_cast<char*>(view.data) +
         (batch * view.batch + head * view.head + row * view.row) * size;
}

void run_item(const Job& job, int64_t item, float* scratch) {
  const RotaryProblem& problem = *job.problem;
  const RotarySpec& spec = problem.spec;
  const int64_t first = item % job.inner_items * kItemRows;
  const int64_t outer = item / job.inner_items % job.outer;
  const int64_t batch = item / job.inner_items / job.outer;
  const int64_t count = std::min(kItemRows, job.inner - first);
  const int64_t size = size_of(spec.type);
  const RowTransform transform = transform_of(problem, batch);
  const void* source[kItemRows];
  int64_t position[kItemRows];
  for (int64_t i = 0; i < count; ++i) {
    const int64_t head = job.along_heads ? first + i : outer;
    const int64_t row = job.along_heads ? outer : first + i;
    source[i] = element(problem.input, size, batch, head, row);
    position[i] = row_position(spec.transform, transform, batch, row, row);
  }
  const int64_t head = job.along_heads ? first : outer;
  const int64_t row = job.along_heads ? outer : first;
  char* to = element(problem.output, size, batch, head, row);
  const int64_t step = job.along_heads ? problem.output.head : problem.output.row;
  if (job.kernels != nullptr) {
    const RowBatch rows{spec.type, spec.head_size, static_cast<int>(count), source, position};
    job.kernels->to_rows(rows, spec.transform, transform, to, step);
    return;
  }
  for (int64_t i = 0; i < count; ++i) {
    const int64_t at = job.along_heads ? outer : first + i;
    transform_row(nullptr, spec.transform, transform, spec.type, source[i], problem.input.channel,
                  spec.head_size, batch, at, at, scratch);
    store_row(nullptr, spec.type, scratch, spec.head_size, to + i * step * size,
              problem.output.channel);
  }
}

bool refuse(std::string* why_not, std::string reason) {
  if (why_not != nullptr) *why_not = std::move(reason);
  return false;
}

class Rotary final : public RotaryEngine {
 public:
  Rotary(const char* name, bool simd) : name_(name), simd_(simd) {}

  const char* name() const override { return name_; }

  bool supports(const RotarySpec& spec, SimdLevel level, std::string* why_not) const override {
    if (!simd_) return true;
    if (row_kernels(level) == nullptr) {
      return refuse(why_not, cat("no SIMD code for the level ", name_of(level)));
    }
    if (!spec.unit_channel) return refuse(why_not, "channels do not lie side by side");
    if (!spec.transform.unit_strides) {
      return refuse(why_not, "rotary table columns do not lie side by side");
    }
    return true;
  }

  size_t workspace_bytes(const RotarySpec& spec, const ShapeRange& /*range*/, int concurrency,
                         SimdLevel /*level*/) const override {
    return static_cast<size_t>(concurrency) * thread_scratch(spec);
  }

  void run(const RotaryProblem& problem, std::span<std::byte> scratch, Executor& executor,
           SimdLevel level) const override {
    Job job;
    job.problem = &problem;
    job.kernels = simd_ ? row_kernels(level) : nullptr;
    const int64_t heads = problem.spec.heads;
    job.along_heads = std::llabs(problem.output.head) < std::llabs(problem.output.row);
    job.outer = job.along_heads ? problem.rows : heads;
    job.inner = job.along_heads ? heads : problem.rows;
    job.inner_items = (job.inner + kItemRows - 1) / kItemRows;
    job.items = problem.batch * job.outer * job.inner_items;
    job.scratch = scratch.data();
    job.scratch_stride = thread_scratch(problem.spec);
    if (job.items == 0) return;
    const int64_t bytes = 2 * problem.batch * heads * problem.rows * problem.spec.head_size *
                          size_of(problem.spec.type);
    run_items(executor, bytes, job, [](const Job& shared, int64_t item, int slot) {
      std::byte* own = shared.scratch + static_cast<size_t>(slot) * shared.scratch_stride;
      run_item(shared, item, reinterpret_cast<float*>(own));
    });
  }

 private:
  // Floats of one row, whole cache lines.
  size_t thread_scratch(const RotarySpec& spec) const {
    if (simd_) return 0;
    const size_t bytes = sizeof(float) * static_cast<size_t>(std::max(spec.head_size, 0));
    return (bytes + kCacheLine - 1) / kCacheLine * kCacheLine;
  }

  const char* const name_;
  const bool simd_;
};

}  // namespace

const RotaryEngine& simd_rotary_engine() {
  static const Rotary engine("simd-rotary", true);
  return engine;
}

const RotaryEngine& generic_rotary_engine() {
  static const Rotary engine("generic-rotary", false);
  return engine;
}

}  // namespace attn::cpu
