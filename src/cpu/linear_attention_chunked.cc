#include "cpu/linear_attention_chunked.h"

#include <algorithm>
#include <numeric>

#include "cpu/linear_attention.h"
#include "cpu/simd_rows.h"
#include "cpu/simd_support.h"

namespace attn::cpu {
namespace {

// Below this many multiply-adds the calling thread is done before another one has woken up.
constexpr double kParallelProducts = 256 * 1024;

// Time in units of a multiply-add of the chunk's products, so that measured calls of both engines
// are told apart (head sizes 64 to 256, 12 to 512 tokens).
constexpr double kStateMoves = 24;  // an element of the state into registers and back, once a chunk
constexpr double kTokenPasses = 5;  // an element of the state and a token in "recurrent"
constexpr double kPairWork = 24;    // a pair of tokens: its weights

// Of `tokens` tokens in chunks of `chunk` with the tiles of a level, for one state.
double chunked_time(const LinearAttentionSpec& spec, int64_t tokens, int64_t chunk,
                    int64_t tile_rows) {
  const double elements = static_cast<double>(spec.head_size) * spec.v_head_size;
  const auto outputs = static_cast<double>(outputs_of_state(spec));
  const double reads = outputs + (spec.delta ? 1 : 0);
  const auto time_of = [&](int64_t count) {
    const auto rows = static_cast<double>(round_up(count, tile_rows));
    const double pairs = rows * (rows + static_cast<double>(tile_rows)) / 2;
    return rows * elements * reads + static_cast<double>(count) * elements +
           kStateMoves * elements +
           reads * pairs * (static_cast<double>(spec.head_size) + spec.v_head_size + kPairWork);
  };
  const int64_t rest = tokens % chunk;
  const int64_t whole = tokens / chunk;
  return static_cast<double>(whole) * time_of(chunk) + (rest > 0 ? time_of(rest) : 0);
}

double recurrent_time(const LinearAttentionSpec& spec, int64_t tokens) {
  const double outputs = static_cast<double>(outputs_of_state(spec));
  return static_cast<double>(tokens) * spec.head_size * spec.v_head_size *
         (kTokenPasses + 2 * (outputs - 1));
}

// States of one batch row that read the same keys and queries.
int like_states(const LinearAttentionSpec& spec) {
  const int keys = spec.kv_heads / spec.key_heads;
  const int queries = std::max(spec.kv_heads / spec.q_heads, 1);
  return std::gcd(keys, queries);
}

// The largest divisor of `count` up to `most`.
int divisor_up_to(int count, int most) {
  for (int d = std::min(count, most); d > 1; --d) {
    if (count % d == 0) return d;
  }
  return 1;
}

ChunkedGeometry geometry_of(const LinearAttentionSpec& spec, const ChunkedKernels& kernels) {
  ChunkedGeometry geo;
  geo.tile_rows = kernels.tile_rows;
  geo.panel = kernels.panel;
  geo.outputs = static_cast<int>(outputs_of_state(spec));
  geo.shared = divisor_up_to(like_states(spec), kMaxSharedStates);
  geo.panels = static_cast<int>(ceil_div(spec.v_head_size, geo.panel));
  const int64_t state_rows = round_up(spec.head_size, geo.tile_rows);
  geo.panel_floats = state_rows * geo.panel;
  // A cache line more than the channels take, so that like channels of the tokens fall into
  // different cache sets.
  geo.key_stride = round_up(state_rows, 16) + 16;
  constexpr int64_t kMany = 1 << 20;
  double best = 0;
  for (int chunk = geo.tile_rows; chunk <= kMaxChunk; chunk += geo.tile_rows) {
    const int64_t chunks = kMany / chunk;
    const double time = chunked_time(spec, chunks * chunk, chunk, geo.tile_rows) /
                        static_cast<double>(chunks * chunk);
    if (geo.chunk != 0 && time >= best) continue;
    best = time;
    geo.chunk = chunk;
  }
  geo.pair_stride = round_up(geo.chunk, geo.panel);
  return geo;
}

class Chunked final : public LinearAttentionEngine {
 public:
  const char* name() const override { return "chunked"; }

  bool supports(const LinearAttentionSpec& spec, SimdLevel level,
                std::string* why_not) const override {
    const char* reason = nullptr;
    if (!spec.unit_channel) reason = "channels are not contiguous";
    if (spec.decay == DecayForm::kPerKey) {
      reason = "a decay for each key channel is no factor of products of keys";
    }
    if (spec.head_size > kMaxHeadSize) reason = "key heads of more than 1024 channels";
    if (reason == nullptr && chunked_kernels(level) == nullptr) {
      reason = "this SIMD level has no kernels on this machine";
    }
    if (reason != nullptr && why_not != nullptr) *why_not = reason;
    return reason == nullptr;
  }

  bool prefers(const LinearAttentionSpec& spec, int64_t tokens, SimdLevel level) const override {
    const ChunkedKernels& kernels = *chunked_kernels(level);
    if (tokens < kernels.tile_rows) return false;
    const ChunkedGeometry geo = geometry_of(spec, kernels);
    return chunked_time(spec, tokens, geo.chunk, geo.tile_rows) < recurrent_time(spec, tokens);
  }

  size_t workspace_bytes(const LinearAttentionSpec& spec, int concurrency,
                         SimdLevel level) const override {
    const ChunkedGeometry geo = geometry_of(spec, *chunked_kernels(level));
    return lay_out(geo, spec.head_size, nullptr, nullptr) * static_cast<size_t>(concurrency);
  }

  void run(const LinearAttentionProblem& problem, std::span<std::byte> scratch, Executor& executor,
           SimdLevel level) const override {
    const LinearAttentionSpec& spec = problem.spec;
    const ChunkedKernels& kernels = *chunked_kernels(level);
    const int64_t states = problem.batch * spec.kv_heads;
    const double elements = static_cast<double>(states) * spec.head_size * spec.v_head_size;
    const double steps = static_cast<double>(std::max<int64_t>(problem.tokens, 1));
    const int threads = elements * steps < kParallelProducts ? 1 : executor.concurrency();

    ChunkedJob job;
    job.problem = &problem;
    job.geometry = geometry_of(spec, kernels);
    job.scratch = scratch.data();
    job.scratch_stride = lay_out(job.geometry, spec.head_size, nullptr, nullptr);
    // Which states are carried together, and where columns are cut, changes no bit: what would
    // leave threads without two items each is cut.
    const int64_t wanted = threads == 1 ? 1 : 2 * static_cast<int64_t>(threads);
    job.shared = job.geometry.shared;
    while (job.shared > 1 && states / job.shared < wanted) {
      job.shared = divisor_up_to(job.shared, job.shared - 1);
    }
    const int64_t groups = states / job.shared;
    const int64_t spans = std::min<int64_t>(job.geometry.panels, ceil_div(wanted, groups));
    job.span_panels = ceil_div(job.geometry.panels, spans);
    job.spans = ceil_div(job.geometry.panels, job.span_panels);
    const int64_t items = groups * job.spans;
    job.items.reset(items, threads);
    run_workers(executor, threads, items, job, worker_of(kernels, spec.type));
  }

 private:
  static ChunkedWorker worker_of(const ChunkedKernels& kernels, DType type) {
    if (type == kFloat32) return kernels.float32;
    return type == kFloat16 ? kernels.float16 : kernels.bfloat16;
  }
};

}  // namespace

size_t lay_out(const ChunkedGeometry& geo, int64_t head_size, std::byte* base,
               ChunkedScratch* scratch) {
  ScratchCursor cursor(base);
  const int64_t chunk = geo.chunk, pairs = chunk * geo.pair_stride, outputs = geo.outputs;
  ChunkedScratch s;
  s.state = cursor.take<float>(geo.shared * geo.panels * geo.panel_floats);
  s.key = cursor.take<float>(chunk * geo.key_stride);
  s.query = cursor.take<float>(outputs * chunk * geo.key_stride);
  s.packed_key = cursor.take<float>(geo.pair_stride * head_size);
  s.key_pairs = cursor.take<double>(pairs);
  s.query_pairs = cursor.take<float>(outputs * pairs);
  s.change_weights = cursor.take<double>(pairs);
  s.exact = cursor.take<double>(chunk * geo.panel);
  s.output_weights = cursor.take<float>(outputs * pairs);
  s.change = cursor.take<float>(geo.panels * chunk * geo.panel);
  s.held = cursor.take<float>(chunk * geo.panel);
  s.seen = cursor.take<float>(outputs * geo.panels * chunk * geo.panel);
  s.sums = cursor.take<double>(chunk);
  s.beta = cursor.take<float>(chunk);
  s.read = cursor.take<float>(geo.pair_stride);
  s.change_read = cursor.take<float>(chunk);
  s.output_read = cursor.take<float>(chunk);
  s.write = cursor.take<float>(geo.pair_stride);
  s.decays = cursor.take<float>(geo.pair_stride);
  if (scratch != nullptr) *scratch = s;
  return cursor.used();
}

const LinearAttentionEngine& chunked_engine() {
  static const Chunked engine;
  return engine;
}

}  // namespace attn::cpu
