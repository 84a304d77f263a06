#include "cpu/linear_attention_recurrent.h"

#include <algorithm>

#include "cpu/linear_attention.h"
#include "cpu/simd_rows.h"
#include "cpu/simd_support.h"

namespace attn::cpu {
namespace {

constexpr int kPadding = 16;            // floats: the longest vector
constexpr int64_t kBlockFloats = 64;    // the widest block of columns at any level
constexpr int64_t kCacheFloats = 8192;  // of a first-level cache, for one block of the state

// Below this many multiply-adds the calling thread is done before another one has woken up.
constexpr double kParallelProducts = 256 * 1024;

class Recurrent final : public LinearAttentionEngine {
 public:
  const char* name() const override { return "recurrent"; }

  bool supports(const LinearAttentionSpec& spec, SimdLevel level,
                std::string* why_not) const override {
    const char* reason = nullptr;
    if (!spec.unit_channel) reason = "channels are not contiguous";
    if (reason == nullptr && recurrent_kernels(level) == nullptr) {
      reason = "this SIMD level has no kernels on this machine";
    }
    if (reason != nullptr && why_not != nullptr) *why_not = reason;
    return reason == nullptr;
  }

  bool prefers(const LinearAttentionSpec&, int64_t, SimdLevel) const override { return true; }

  size_t workspace_bytes(const LinearAttentionSpec& spec, int concurrency,
                         SimdLevel) const override {
    return lay_out(geometry_of(spec), nullptr, nullptr) * static_cast<size_t>(concurrency);
  }

  void run(const LinearAttentionProblem& problem, std::span<std::byte> scratch, Executor& executor,
           SimdLevel level) const override {
    const LinearAttentionSpec& spec = problem.spec;
    const int64_t states = problem.batch * spec.kv_heads;
    const double elements = static_cast<double>(states) * spec.head_size * spec.v_head_size;
    const double steps = static_cast<double>(std::max<int64_t>(problem.tokens, 1));
    const int threads = elements * steps < kParallelProducts ? 1 : executor.concurrency();

    RecurrentJob job;
    job.problem = &problem;
    job.geometry = geometry_of(spec);
    job.scratch = scratch.data();
    job.scratch_stride = lay_out(job.geometry, nullptr, nullptr);
    // Columns are independent, so that where they are cut changes no bit: few states are cut into
    // spans until every thread has two items.
    const int64_t most = ceil_div(spec.v_head_size, kBlockFloats);
    const int64_t wanted = threads == 1 ? 1 : ceil_div(2 * static_cast<int64_t>(threads), states);
    job.span_size = ceil_div(most, std::min(most, wanted)) * kBlockFloats;
    job.spans = ceil_div(spec.v_head_size, job.span_size);
    const int64_t items = states * job.spans;
    job.items.reset(items, threads, Deal::kInRuns);
    const RecurrentKernels& kernels = *recurrent_kernels(level);
    run_workers(executor, threads, items, job, worker_of(kernels, spec.type));
  }

 private:
  static RecurrentWorker worker_of(const RecurrentKernels& kernels, DType type) {
    if (type == kFloat32) return kernels.float32;
    return type == kFloat16 ? kernels.float16 : kernels.bfloat16;
  }
};

}  // namespace

RecurrentGeometry geometry_of(const LinearAttentionSpec& spec) {
  RecurrentGeometry geo;
  geo.depth = static_cast<int>(round_up(spec.head_size, kPadding));
  geo.columns = static_cast<int>(round_up(spec.v_head_size, kBlockFloats));
  geo.outputs = static_cast<int>(outputs_of_state(spec));
  while (geo.block_vectors > 1 && geo.block_vectors * kPadding * geo.depth > kCacheFloats) {
    geo.block_vectors /= 2;
  }
  return geo;
}

size_t lay_out(const RecurrentGeometry& geo, std::byte* base, RecurrentScratch* scratch) {
  ScratchCursor cursor(base);
  const int64_t depth = geo.depth;
  RecurrentScratch s;
  s.state = cursor.take<float>(depth * geo.columns);
  s.change = cursor.take<float>(geo.columns);
  s.read_key = cursor.take<float>(kTokenTile * depth);
  s.write_key = cursor.take<float>((kTokenTile + 1) * depth);
  s.query = cursor.take<float>(kTokenTile * depth * geo.outputs);
  s.decay = cursor.take<float>(depth);
  s.keep = cursor.take<float>(depth);
  s.rescale = cursor.take<float>(kTokenTile * depth);
  s.sums = cursor.take<double>(depth);
  s.dots = cursor.take<float>(static_cast<int64_t>(kTokenTile) * geo.outputs);
  if (scratch != nullptr) *scratch = s;
  return cursor.used();
}

const LinearAttentionEngine& recurrent_engine() {
  static const Recurrent engine;
  return engine;
}

Cost linear_attention_cost(const LinearAttentionSpec& spec, const ShapeRange& range) {
  const auto size = [](int64_t count) { return static_cast<double>(std::max<int64_t>(count, 0)); };
  const double batch = size(range.batch), tokens = size(range.query_rows);
  const double dk = size(spec.head_size), dv = size(spec.v_head_size);
  const double states = batch * spec.kv_heads;
  const double outputs = static_cast<double>(outputs_of_state(spec));
  const bool decays = spec.decay != DecayForm::kNone;
  Cost cost;
  cost.flops =
      states * tokens * dk * dv * (2 + 2 * outputs + (spec.delta ? 2 : 0) + (decays ? 1 : 0));
  double token = dk * (spec.q_heads + size(spec.key_heads)) + dv * spec.kv_heads * (1 + outputs);
  if (decays) token += spec.kv_heads * (spec.decay == DecayForm::kPerKey ? dk : 1);
  if (spec.delta) token += spec.kv_heads;
  cost.bytes = batch * tokens * token * static_cast<double>(size_of(spec.type));
  const int bound = (spec.has_past ? 1 : 0) + (spec.has_present ? 1 : 0);
  cost.bytes += states * dk * dv * bound * static_cast<double>(size_of(spec.state_type));
  return cost;
}

}  // namespace attn::cpu
