#include "cpu/attention_amx.h"

#include <algorithm>
#include <string>

#include "cpu/amx_state.h"
#include "cpu/simd_support.h"

namespace attn::cpu {
namespace {

// Two threads share the second-level cache of a processor with AMX, 2 MB.
constexpr int64_t kKeyBlockBytes = 192 << 10;  // of a block's packed keys and values
constexpr int64_t kItemBytes = 512 << 10;      // of an item's packed queries and outputs
constexpr int64_t kMostItemRows = 512;
constexpr size_t kMostScratch = size_t{15} << 20;  // of all workers together
// Below this many multiply-adds the calling thread is done before another one has woken up.
constexpr double kParallelWork = 3e6;
// What bfloat16 takes at least: its weights are rounded to 8 bits.
constexpr int64_t kAveragingRows = 32, kAveragingChannels = 8;
// Query rows of a group from which tiles win over vectors, as measured
// (docs/measurements/prefill-amx-sapphire-rapids.md): packing has to pay, and float32 multiplies
// six times.
constexpr int64_t kPayingRows = 128;
constexpr int64_t kPayingFloat32Rows = 4096;

// Many workers get smaller items, so that the scratch stays bounded: no bit depends on an item's
// size (attention_amx.h).
AmxGeometry geometry_of(const AttentionSpec& spec, int threads) {
  AmxGeometry geo;
  geo.pieces = amx_pieces(spec.type);
  geo.depth = static_cast<int>(round_up(spec.head_size, kAmxStrip));
  geo.v_channels = static_cast<int>(round_up(spec.v_head_size, kAmxStrip));
  const int64_t key_bytes = int64_t{2} * geo.pieces * (geo.depth + geo.v_channels);
  geo.key_block = static_cast<int>(
      std::clamp<int64_t>(kKeyBlockBytes / key_bytes / kAmxStrip, 1, kAmxMostKeys / kAmxStrip) *
      kAmxStrip);
  geo.row_stride = geo.depth + kAmxTile;
  geo.score_stride = geo.key_block + kAmxTile;
  const int64_t row_bytes = int64_t{2} * geo.pieces * geo.depth + int64_t{4} * geo.v_channels;
  geo.item_rows = static_cast<int>(
      std::clamp<int64_t>(kItemBytes / row_bytes / kAmxStrip, 1, kMostItemRows / kAmxStrip) *
      kAmxStrip);
  while (geo.item_rows > kAmxStrip &&
         lay_out(geo, nullptr, nullptr) * static_cast<size_t>(threads) > kMostScratch) {
    geo.item_rows -= kAmxStrip;
  }
  return geo;
}

// Workers that kMostScratch has room for; one always has.
int most_workers(size_t worker_bytes, int threads) {
  const auto room = static_cast<int64_t>(kMostScratch / worker_bytes);
  return static_cast<int>(std::clamp<int64_t>(room, 1, threads));
}

double work_of(const AttentionProblem& problem, std::span<const RowLengths> rows) {
  const AttentionSpec& spec = problem.spec;
  double keys = 0;
  for (const RowLengths& row : rows) keys += static_cast<double>(row.live ? row.total : 0);
  return keys * static_cast<double>(problem.query_rows) * spec.q_heads *
         (spec.head_size + spec.v_head_size);
}

class AmxPrefill : public AttentionEngine {
 public:
  // bfloat16 weights are one piece, rounded to 8 bits, which few rows or channels do not average
  // out: a sink beside one key that matters leaves all of a row with the same rounding.
  bool accepts(const AttentionProblem& problem) const override {
    if (problem.spec.type != kBfloat16) return true;
    return problem.query_rows >= kAveragingRows && problem.spec.v_head_size >= kAveragingChannels;
  }

  bool pays(const AttentionProblem& problem) const override {
    const AttentionSpec& spec = problem.spec;
    const int64_t rows = problem.query_rows * (spec.q_heads / spec.kv_heads);
    return rows >= (spec.type == kFloat32 ? kPayingFloat32Rows : kPayingRows);
  }

  size_t workspace_bytes(const AttentionSpec& spec, const ShapeRange&, int concurrency,
                         SimdLevel) const override {
    // What the most workers with the largest items need, which fewer threads never exceed.
    const size_t worker = lay_out(geometry_of(spec, 1), nullptr, nullptr);
    return std::max(worker, std::min(worker * static_cast<size_t>(concurrency), kMostScratch));
  }

  void run(const AttentionProblem& problem, std::span<const RowLengths> rows,
           std::span<std::byte> scratch, Executor& executor, SimdLevel level) const override {
    const AttentionSpec& spec = problem.spec;
    AmxJob job;
    job.problem = &problem;
    job.rows = rows;
    job.row_kernels = row_kernels(level);
    int threads = executor.concurrency();
    job.geometry = geometry_of(spec, threads);
    job.scratch = scratch.data();
    job.scratch_stride = lay_out(job.geometry, nullptr, nullptr);
    const int64_t heads = problem.batch * spec.kv_heads;
    const int64_t query_rows = problem.query_rows * (spec.q_heads / spec.kv_heads);
    if (heads == 0 || query_rows == 0) return;
    threads = most_workers(job.scratch_stride, threads);
    if (work_of(problem, rows) < kParallelWork) threads = 1;
    // Even items, and enough of them that threads end together.
    int64_t blocks = ceil_div(query_rows, job.geometry.item_rows);
    if (threads > 1) blocks = std::max(blocks, ceil_div(4 * threads, heads));
    job.item_rows = round_up(ceil_div(query_rows, blocks), kAmxStrip);
    job.blocks = ceil_div(query_rows, job.item_rows);
    const int64_t items = heads * job.blocks;
    job.items.reset(items, threads);
    const AmxKernels& kernels = *kernels_at(level);
    const AmxWorker worker = spec.type == kFloat32   ? kernels.float32
                             : spec.type == kFloat16 ? kernels.float16
                                                     : kernels.bfloat16;
    run_workers(executor, threads, items, job, worker);
  }

 private:
  virtual const AmxKernels* kernels_at(SimdLevel level) const = 0;
};

bool answer(const char* reason, std::string* why_not) {
  if (reason != nullptr && why_not != nullptr) *why_not = reason;
  return reason == nullptr;
}

class HardwareAmxPrefill final : public AmxPrefill {
 public:
  const char* name() const override { return "amx-prefill"; }

  bool supports(const AttentionSpec& spec, SimdLevel level, std::string* why_not) const override {
    // The machine first: nothing that is asked for would change it.
    const char* reason = amx_state().usable ? nullptr : amx_state().reason.c_str();
    if (reason == nullptr && kernels_at(level) == nullptr) reason = "AMX needs the level avx512";
    if (reason == nullptr) reason = simd_refusal(spec);
    return answer(reason, why_not);
  }

 private:
  const AmxKernels* kernels_at(SimdLevel level) const override { return amx_kernels(level); }
};

class EmulatedAmxPrefill final : public AmxPrefill {
 public:
  const char* name() const override { return "amx-prefill-emulated"; }
  bool only_forced() const override { return true; }

  bool supports(const AttentionSpec& spec, SimdLevel level, std::string* why_not) const override {
    const char* reason = simd_refusal(spec);
    if (reason == nullptr && kernels_at(level) == nullptr) {
      reason = "this SIMD level has no kernels on this machine";
    }
    return answer(reason, why_not);
  }

 private:
  const AmxKernels* kernels_at(SimdLevel level) const override {
    return amx_emulated_kernels(level);
  }
};

}  // namespace

size_t lay_out(const AmxGeometry& geo, std::byte* base, AmxScratch* scratch) {
  const int64_t depth_steps = geo.depth_steps();
  ScratchCursor cursor(base);
  AmxScratch s;
  s.query = cursor.take<uint16_t>(geo.item_rows / kAmxStrip * depth_steps * geo.step());
  s.keys = cursor.take<uint16_t>(geo.groups() * depth_steps * geo.step());
  s.values = cursor.take<uint16_t>(geo.v_channels / kAmxStrip * geo.groups() * geo.step());
  s.weights = cursor.take<uint16_t>(geo.groups() * geo.step());
  s.output = cursor.take<float>(static_cast<int64_t>(geo.item_rows) * geo.v_channels);
  s.scores = cursor.take<float>(kAmxStrip * geo.score_stride);
  s.row_max = cursor.take<float>(geo.item_rows);
  s.row_sum = cursor.take<float>(geo.item_rows);
  s.ranges = cursor.take<KeyRange>(geo.item_rows);
  s.rows = cursor.take<float>(kAmxTile * geo.row_stride);
  s.transpose = cursor.take<float>(kAmxStrip * kAmxTile);
  s.strips = cursor.take<AmxStrip>(geo.item_rows / kAmxStrip);
  if (scratch != nullptr) *scratch = s;
  return cursor.used();
}

const AttentionEngine& amx_prefill_engine() {
  static const HardwareAmxPrefill engine;
  return engine;
}

const AttentionEngine& emulated_amx_prefill_engine() {
  static const EmulatedAmxPrefill engine;
  return engine;
}

}  // namespace attn::cpu
