#include "cpu/attention_decode.h"

#include <algorithm>
#include <new>

#include "cpu/simd_support.h"

namespace attn::cpu {
namespace {

constexpr int64_t kBlockBytes = 16 * 1024;
constexpr int kPadding = 16;  // floats: the longest vector

// Below this much work the calling thread is done before another one has woken up.
constexpr double kParallelBytes = 256 * 1024;  // of keys and values
constexpr double kParallelProducts = 1e6;

DecodeGeometry geometry_of(const AttentionSpec& spec, int64_t query_rows) {
  DecodeGeometry geo;
  geo.rows = static_cast<int>(
      std::min<int64_t>(query_rows * (spec.q_heads / spec.kv_heads), kMaxDecodeRows));
  geo.depth = static_cast<int>(round_up(spec.head_size, kPadding));
  geo.v_channels = static_cast<int>(round_up(spec.v_head_size, kPadding));
  return geo;
}

// Items are split into spans when there are fewer than two for each thread.
bool splits(int64_t items, int threads) { return items < 2 * static_cast<int64_t>(threads); }

int64_t most_spans(int64_t keys) {
  return std::clamp<int64_t>(ceil_div(keys, kSpanKeys), 1, kMaxSpans);
}

class SimdDecode final : public AttentionEngine {
 public:
  const char* name() const override { return "simd-decode"; }

  bool supports(const AttentionSpec& spec, SimdLevel level, std::string* why_not) const override {
    const char* reason = simd_refusal(spec);
    if (reason == nullptr && spec.key_fresh && spec.key_transform.any()) {
      reason = "new keys are normed or rotated while they are read";
    }
    if (reason == nullptr && spec.q_heads / spec.kv_heads > kMaxDecodeRows) {
      reason = "more than 16 query heads share a key head";
    }
    if (reason == nullptr && decode_kernels(level) == nullptr) {
      reason = "this SIMD level has no kernels on this machine";
    }
    if (reason != nullptr && why_not != nullptr) *why_not = reason;
    return reason == nullptr;
  }

  bool accepts(const AttentionProblem& problem) const override {
    const AttentionSpec& spec = problem.spec;
    return problem.query_rows * (spec.q_heads / spec.kv_heads) <= kMaxDecodeRows;
  }

  size_t workspace_bytes(const AttentionSpec& spec, const ShapeRange& range, int concurrency,
                         SimdLevel) const override {
    const DecodeGeometry geo = geometry_of(spec, range.query_rows);
    size_t bytes = lay_out(geo, nullptr, static_cast<DecodeScratch*>(nullptr)) *
                   static_cast<size_t>(concurrency);
    if (concurrency > 1) {
      const int64_t items = std::min<int64_t>(range.batch * spec.kv_heads, 2 * concurrency - 1);
      const int64_t spans = most_spans(range.total);
      bytes += static_cast<size_t>(items * spans) *
               lay_out(geo, nullptr, static_cast<DecodeSums*>(nullptr));
      bytes += static_cast<size_t>(round_up(items * 4, 64));
    }
    return bytes;
  }

  void run(const AttentionProblem& problem, std::span<const RowLengths> rows,
           std::span<std::byte> scratch, Executor& executor, SimdLevel level) const override {
    const AttentionSpec& spec = problem.spec;
    const DecodeKernels& kernels = *decode_kernels(level);
    DecodeJob job;
    job.problem = &problem;
    job.rows = rows;
    job.row_kernels = row_kernels(level);
    job.geometry = geometry_of(spec, problem.query_rows);
    job.items = problem.batch * spec.kv_heads;
    if (job.items == 0 || job.geometry.rows == 0) return;
    int64_t total = 0;
    int64_t longest = 0;
    for (const RowLengths& row : rows) {
      total += row.live ? row.total : 0;
      longest = std::max(longest, row.live ? row.total : 0);
    }
    const double channels =
        static_cast<double>(total) * spec.kv_heads * (spec.head_size + spec.v_head_size);
    int threads = executor.concurrency();
    if (channels * static_cast<double>(size_of(spec.type)) < kParallelBytes &&
        channels * job.geometry.rows < kParallelProducts) {
      threads = 1;
    }
    job.units = job.items;
    job.max_spans = 0;
    job.scratch = scratch.data();
    job.scratch_stride = lay_out(job.geometry, nullptr, static_cast<DecodeScratch*>(nullptr));
    const int64_t spans = most_spans(longest);
    if (threads > 1 && spans > 1 && splits(job.items, threads)) {
      job.max_spans = spans;
      job.units = job.items * spans;
      ScratchCursor cursor(scratch.data());
      cursor.take<std::byte>(static_cast<int64_t>(job.scratch_stride) * threads);
      job.kept_stride = lay_out(job.geometry, nullptr, static_cast<DecodeSums*>(nullptr));
      job.kept = cursor.take<std::byte>(job.units * static_cast<int64_t>(job.kept_stride));
      job.open_spans = cursor.take<std::atomic<int32_t>>(job.items);
      for (int64_t i = 0; i < job.items; ++i) new (job.open_spans + i) std::atomic<int32_t>(0);
    }
    run_workers(executor, threads, job.units, job, worker_of(kernels, spec.type));
  }

 private:
  static DecodeWorker worker_of(const DecodeKernels& kernels, DType type) {
    if (type == kFloat32) return kernels.float32;
    return type == kFloat16 ? kernels.float16 : kernels.bfloat16;
  }
};

DecodeSums take_sums(const DecodeGeometry& geo, ScratchCursor& cursor) {
  DecodeSums sums;
  sums.max = cursor.take<float>(geo.rows);
  sums.sum = cursor.take<float>(geo.rows);
  sums.output = cursor.take<float>(static_cast<int64_t>(geo.rows) * geo.v_channels);
  return sums;
}

}  // namespace

// More than four rows walk over a block more than once: it should stay in the first-level cache.
int decode_block(const AttentionSpec& spec, int rows) {
  int block = kDecodeBlock;
  const int64_t row_bytes = std::max(spec.head_size, spec.v_head_size) * size_of(spec.type);
  while (rows > 4 && block > 16 && block * row_bytes > kBlockBytes) block /= 2;
  return block;
}

size_t lay_out(const DecodeGeometry& geo, std::byte* base, DecodeScratch* scratch) {
  ScratchCursor cursor(base);
  DecodeScratch s;
  s.query = cursor.take<float>(static_cast<int64_t>(geo.rows) * geo.depth);
  s.scores = cursor.take<float>(geo.rows * kDecodeBlock + kPadding);
  s.factors = cursor.take<float>(geo.rows);
  s.ranges = cursor.take<KeyRange>(geo.rows);
  s.span = take_sums(geo, cursor);
  s.total = take_sums(geo, cursor);
  if (scratch != nullptr) *scratch = s;
  return cursor.used();
}

size_t lay_out(const DecodeGeometry& geo, std::byte* base, DecodeSums* sums) {
  ScratchCursor cursor(base);
  const DecodeSums taken = take_sums(geo, cursor);
  if (sums != nullptr) *sums = taken;
  return cursor.used();
}

const AttentionEngine& simd_decode_engine() {
  static const SimdDecode engine;
  return engine;
}

}  // namespace attn::cpu
