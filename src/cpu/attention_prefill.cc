#include "cpu/attention_prefill.h"

#include <algorithm>

#include "cpu/machine_model.h"
#include "cpu/simd_support.h"

namespace attn::cpu {
namespace {

// The largest that bring something; caches below 32 KiB and 512 KiB make them smaller.
constexpr int64_t kFirstLevelFloats = 3072;        // of a band's queries
constexpr int64_t kKeyBlockFloats = 32768;         // of a block's packed keys and values
constexpr int64_t kWideBlockFloats = 65536;        // the same, while a block has
constexpr int64_t kFewKeys = 128;                  // no more keys: outputs are read once a block
constexpr int64_t kItemFloats = 73728;             // of an item's queries and outputs
constexpr size_t kMostScratch = size_t{15} << 20;  // of all workers together
// Below this many multiply-adds the calling thread is done before another one has woken up.
constexpr double kParallelWork = 3e5;

// The part of a cache that is `eighths` of it, in floats, but no more than `most`.
int64_t cache_floats(int64_t cache_bytes, double eighths, int64_t most) {
  const auto floats = static_cast<int64_t>(static_cast<double>(cache_bytes) / 32 * eighths);
  return std::min(floats, most);
}

// Many workers get smaller items, so that the scratch stays bounded: no bit depends on an item's
// size (attention_prefill.h).
PrefillGeometry geometry_of(const AttentionSpec& spec, const PrefillKernels& kernels, int threads) {
  const MachineCaches& caches = machine_caches();
  const int64_t band_floats = cache_floats(caches.first_level, 3, kFirstLevelFloats);
  const int64_t block_floats = cache_floats(caches.second_level, 2, kKeyBlockFloats);
  const int64_t wide_floats = cache_floats(caches.second_level, 4, kWideBlockFloats);
  const int64_t item_floats = cache_floats(caches.second_level, 4.5, kItemFloats);
  PrefillGeometry geo;
  geo.tile_rows = kernels.tile_rows;
  geo.panel = kernels.panel;
  geo.v_channels = static_cast<int>(round_up(spec.v_head_size, kernels.panel));
  const int64_t width = spec.head_size + geo.v_channels;
  const int64_t few = std::min(wide_floats / width, kFewKeys);
  const int64_t keys = std::max(block_floats / width, few) / geo.panel * geo.panel;
  geo.key_block = static_cast<int>(std::clamp<int64_t>(keys, geo.panel, kScoreStride));
  const int64_t tiles = band_floats / (static_cast<int64_t>(spec.head_size) * geo.tile_rows);
  geo.band_rows =
      geo.tile_rows * static_cast<int>(std::clamp<int64_t>(tiles, 1, kMaxBandRows / geo.tile_rows));
  geo.value_stride = static_cast<int64_t>(geo.key_block) * geo.panel + 16;
  geo.row_stride = round_up(spec.head_size, 16) + 16;
  const int64_t bands = item_floats / (width * geo.band_rows);
  geo.item_rows = geo.band_rows * static_cast<int>(std::clamp<int64_t>(bands, 1, 32));
  while (geo.item_rows > geo.band_rows &&
         lay_out(spec, geo, nullptr, nullptr) * static_cast<size_t>(threads) > kMostScratch) {
    geo.item_rows -= geo.band_rows;
  }
  return geo;
}

// Workers that kMostScratch has room for; one always has.
int most_workers(size_t worker_bytes, int threads) {
  const auto room = static_cast<int64_t>(kMostScratch / worker_bytes);
  return static_cast<int>(std::clamp<int64_t>(room, 1, threads));
}

class SimdPrefill final : public AttentionEngine {
 public:
  const char* name() const override { return "simd-prefill"; }

  bool supports(const AttentionSpec& spec, SimdLevel level, std::string* why_not) const override {
    const char* reason = simd_refusal(spec);
    if (reason == nullptr && prefill_kernels(level) == nullptr) {
      reason = "this SIMD level has no kernels on this machine";
    }
    if (reason != nullptr && why_not != nullptr) *why_not = reason;
    return reason == nullptr;
  }

  bool accepts(const AttentionProblem&) const override { return true; }

  size_t workspace_bytes(const AttentionSpec& spec, const ShapeRange&, int concurrency,
                         SimdLevel level) const override {
    // What the most workers with the largest items need, which fewer threads never exceed.
    const PrefillGeometry geo = geometry_of(spec, *prefill_kernels(level), 1);
    const size_t worker = lay_out(spec, geo, nullptr, nullptr);
    return std::max(worker, std::min(worker * static_cast<size_t>(concurrency), kMostScratch));
  }

  void run(const AttentionProblem& problem, std::span<const RowLengths> rows,
           std::span<std::byte> scratch, Executor& executor, SimdLevel level) const override {
    const AttentionSpec& spec = problem.spec;
    const PrefillKernels& kernels = *prefill_kernels(level);
    PrefillJob job;
    job.problem = &problem;
    job.rows = rows;
    job.row_kernels = row_kernels(level);
    int threads = executor.concurrency();
    job.geometry = geometry_of(spec, kernels, threads);
    job.scratch = scratch.data();
    job.scratch_stride = lay_out(spec, job.geometry, nullptr, nullptr);
    const int64_t heads = problem.batch * spec.kv_heads;
    const int64_t query_rows = problem.query_rows * (spec.q_heads / spec.kv_heads);
    if (heads == 0 || query_rows == 0) return;
    threads = most_workers(job.scratch_stride, threads);
    if (work_of(problem, rows) < kParallelWork) threads = 1;
    // Even items, and enough of them that threads end together.
    int64_t blocks = ceil_div(query_rows, job.geometry.item_rows);
    if (threads > 1) blocks = std::max(blocks, ceil_div(4 * threads, heads));
    job.item_rows = round_up(ceil_div(query_rows, blocks), job.geometry.band_rows);
    job.blocks = ceil_div(query_rows, job.item_rows);
    const int64_t items = heads * job.blocks;
    job.items.reset(items, threads);
    run_workers(executor, threads, items, job, worker_of(kernels, spec.type));
  }

 private:
  static PrefillWorker worker_of(const PrefillKernels& kernels, DType type) {
    if (type == kFloat32) return kernels.float32;
    return type == kFloat16 ? kernels.float16 : kernels.bfloat16;
  }

  static double work_of(const AttentionProblem& problem, std::span<const RowLengths> rows) {
    const AttentionSpec& spec = problem.spec;
    double keys = 0;
    for (const RowLengths& row : rows) keys += static_cast<double>(row.live ? row.total : 0);
    return keys * static_cast<double>(problem.query_rows) * spec.q_heads *
           (spec.head_size + spec.v_head_size);
  }
};

}  // namespace

size_t lay_out(const AttentionSpec& spec, const PrefillGeometry& geo, std::byte* base,
               PrefillScratch* scratch) {
  const int64_t depth = spec.head_size;
  ScratchCursor cursor(base);
  PrefillScratch s;
  s.query = cursor.take<float>(geo.item_rows * depth + 16);
  s.output = cursor.take<float>(static_cast<int64_t>(geo.item_rows) * geo.v_channels);
  s.keys = cursor.take<float>(geo.key_block * depth);
  s.values = cursor.take<float>(geo.v_channels / geo.panel * geo.value_stride);
  s.scores = cursor.take<float>(geo.band_rows * kScoreStride + 16);
  s.factors = cursor.take<float>(geo.band_rows);
  s.row_max = cursor.take<float>(geo.item_rows);
  s.row_sum = cursor.take<float>(geo.item_rows);
  s.ranges = cursor.take<KeyRange>(geo.item_rows);
  s.rows = cursor.take<float>(geo.tile_rows * geo.row_stride);
  s.tiles = cursor.take<PrefillTile>(geo.item_rows / geo.tile_rows);
  if (scratch != nullptr) *scratch = s;
  return cursor.used();
}

const AttentionEngine& simd_prefill_engine() {
  static const SimdPrefill engine;
  return engine;
}

}  // namespace attn::cpu
