// Checks the SIMD attention engines against a plain double loop on random problems.
//
//   kernel_check [problems] [seed] [engine]
//
// Prints the largest relative errors an engine, type and level, and every problem that fails.
#include <algorithm>
#include <cmath>
#include <cstdio>
#include <cstdlib>
#include <map>
#include <string>
#include <thread>

#include "cpu/engine.h"
#include "kernel_case.h"

namespace attn::bench {
namespace {

// Threads for every call, several tasks each.
struct TestExecutor final : cpu::Executor {
  explicit TestExecutor(int n) : threads(n) {}
  int threads;
  int concurrency() const override { return threads; }
  void parallel_for(int tasks, void (*fn)(void*, int), void* ctx) override {
    std::vector<std::thread> all;
    for (int t = 0; t < tasks; ++t) all.emplace_back(fn, ctx, t);
    for (std::thread& t : all) t.join();
  }
};

struct Reference {
  std::vector<double> out;  // (B, Hq, S, Dv) like the output's own strides
  std::vector<double> lse;
};

double dot(const Case& c, int64_t q_at, const Buffer& keys, int64_t k_at) {
  double sum = 0;
  for (int d = 0; d < c.shape.spec.head_size; ++d) sum += c.q.at(q_at + d) * keys.at(k_at + d);
  return sum;
}

Reference solve(const Case& c) {
  const AttentionProblem& p = c.problem;
  const AttentionSpec& s = p.spec;
  Reference ref{std::vector<double>(static_cast<size_t>(c.out.count)),
                std::vector<double>(static_cast<size_t>(c.lse.count), -INFINITY)};
  for (int64_t b = 0; b < p.batch; ++b)
    for (int64_t h = 0; h < s.q_heads; ++h)
      for (int64_t i = 0; i < p.query_rows; ++i) {
        const RowLengths& len = c.shape.rows[static_cast<size_t>(b)];
        const int64_t kv = h / (s.q_heads / s.kv_heads);
        const int64_t pos = len.query_start + i;
        std::vector<std::pair<int64_t, double>> seen;
        for (int64_t j = 0; len.live && j < len.total; ++j) {
          if (s.causal && j > pos) continue;
          if (s.left_window >= 0 && j < pos - s.left_window) continue;
          if (s.right_window >= 0 && j > pos + s.right_window) continue;
          const bool fresh = s.key_fresh && j >= len.past;
          const View4& kview = fresh ? p.key_fresh : p.key;
          double x = s.scale * dot(c, b * p.query.batch + h * p.query.head + i * p.query.row,
                                   fresh ? c.fresh_k : c.k,
                                   b * kview.batch + kv * kview.head +
                                       (fresh ? j - len.past : j) * kview.row);
          if (s.softcap != 0) x = s.softcap * std::tanh(x / s.softcap);
          if (s.mask != MaskKind::kNone) {
            if (j >= p.mask_columns) continue;
            const int64_t at = b * p.mask_batch + h * p.mask_head + i * p.mask_row + j;
            if (s.mask == MaskKind::kBoolean) {
              if (static_cast<const uint8_t*>(p.mask)[at] == 0) continue;
            } else {
              const double m = c.mask.at(at);
              if (m == -INFINITY) continue;
              x += m;
            }
          }
          seen.emplace_back(j, x);
        }
        if (seen.empty()) continue;
        double top = -INFINITY;
        for (const auto& [j, x] : seen) top = std::max(top, x);
        double total = 0;
        for (auto& [j, x] : seen) total += x = std::exp(x - top);
        const size_t at = static_cast<size_t>((b * s.q_heads + h) * p.query_rows + i);
        ref.lse[at] = top + std::log(total);
        if (s.sink == Sink::kZero) total += std::exp(-top);
        if (s.sink == Sink::kPerHead) total += std::exp(c.sink.at(h) - top);
        double* out = ref.out.data() + b * p.output.batch + h * p.output.head + i * p.output.row;
        for (const auto& [j, w] : seen) {
          const bool fresh = s.value_fresh && j >= len.past;
          const View4& view = fresh ? p.value_fresh : p.value;
          const Buffer& values = fresh ? c.fresh_v : c.v;
          const int64_t row =
              b * view.batch + kv * view.head + (fresh ? j - len.past : j) * view.row;
          for (int d = 0; d < s.v_head_size; ++d) out[d] += w / total * values.at(row + d);
        }
      }
  return ref;
}

CaseShape draw(std::mt19937& rng, float* spread) {
  const auto pick = [&](std::initializer_list<int> of) { return of.begin()[rng() % of.size()]; };
  const auto below = [&](int64_t n) {
    return static_cast<int64_t>(rng() % static_cast<uint64_t>(n));
  };
  CaseShape c;
  AttentionSpec& s = c.spec;
  const DType types[] = {kFloat32, kFloat16, kBfloat16};
  s.type = types[rng() % 3];
  s.kv_heads = pick({1, 1, 2, 3});
  s.q_heads = s.kv_heads * pick({1, 2, 3, 4, 5, 8});
  s.head_size = pick({64, 80, 96, 128, 192, 256, 1, 7, 33, 72, 100, 300});
  s.v_head_size = rng() % 3 == 0 ? pick({64, 128, 1, 5, 31, 200}) : s.head_size;
  s.scale = 1.0 / std::sqrt(s.head_size);
  *spread = static_cast<float>(pick({1, 1, 3, 6}));
  s.causal = rng() % 2 == 0;
  if (rng() % 3 == 0) s.left_window = below(150);
  if (rng() % 6 == 0) s.right_window = below(50);
  if (rng() % 4 == 0) s.softcap = pick({5, 30, 50});
  s.sink = static_cast<Sink>(rng() % 3);
  s.mask = static_cast<MaskKind>(pick({0, 0, 1, 2}));
  s.mask_type = types[rng() % 3];
  s.log_sum_exp = rng() % 2 == 0;
  s.key_fresh = rng() % 3 == 0;
  s.value_fresh = rng() % 3 == 0;
  c.bshd = rng() % 2 == 0;
  c.batch = pick({1, 1, 2, 3});
  c.query_rows = pick({1, 1, 2, 3, 7, 17, 40, 64, 130});
  c.capacity = c.query_rows + below(rng() % 8 == 0 ? 4096 / c.query_rows : 300) + 1;
  for (int64_t b = 0; b < c.batch; ++b) {
    RowLengths r;
    r.live = rng() % 10 != 0;
    r.total = 1 + below(c.capacity);
    r.past = below(r.total + 1);
    r.appended = r.total - r.past;
    r.query_start = r.total - c.query_rows;
    if (rng() % 8 == 0) r.query_start = 0;
    if (!r.live) r = {};
    c.rows.push_back(r);
  }
  if (s.mask != MaskKind::kNone) {
    c.mask_batch = rng() % 2 ? c.batch : 1;
    c.mask_heads = rng() % 2 ? s.q_heads : 1;
    c.mask_rows = rng() % 2 ? c.query_rows : 1;
    c.mask_columns = rng() % 4 ? c.capacity : 1 + below(c.capacity);
  }
  return c;
}

struct Worst {
  double all = 0, row = 0, lse = 0;
  int64_t problems = 0;
};

int check(int64_t problems, uint64_t seed, const std::string& only) {
  std::map<std::string, Worst> worst;
  int failed = 0;
  for (int64_t n = 0; n < problems; ++n) {
    std::mt19937 rng(static_cast<uint32_t>(seed + static_cast<uint64_t>(n)));
    Case c;
    float spread = 1;
    c.shape = draw(rng, &spread);
    make(c, rng, spread);
    const AttentionSpec& s = c.shape.spec;
    const Reference ref = solve(c);
    const double limit = s.type == kFloat32 ? 2e-6 : s.type == kFloat16 ? 6e-4 : 5e-3;
    for (const cpu::AttentionEngine* engine :
         {&cpu::simd_decode_engine(), &cpu::simd_prefill_engine()}) {
      if (!only.empty() && only != engine->name()) continue;
      if (!engine->accepts(c.problem)) continue;
      for (cpu::SimdLevel level : cpu::available_simd_levels()) {
        if (!engine->supports(s, level, nullptr)) continue;
        std::vector<uint64_t> first_bits;
        for (int threads : {1, 3}) {
          std::memset(c.out.data(), 0xff, c.out.storage.size() * 8);
          std::memset(c.lse.data(), 0xff, c.lse.storage.size() * 8);
          TestExecutor executor(threads);
          const ShapeRange range{c.shape.batch, c.shape.query_rows, c.problem.max_total};
          const size_t bytes = engine->workspace_bytes(s, range, threads, level);
          std::vector<std::byte> memory(bytes + 128, std::byte{0xff});
          const size_t shift = 64 - reinterpret_cast<uintptr_t>(memory.data()) % 64;
          engine->run(c.problem, c.shape.rows, {memory.data() + shift, bytes}, executor, level);
          bool bad = !std::all_of(memory.begin() + static_cast<int64_t>(shift + bytes),
                                  memory.end(), [](std::byte x) { return x == std::byte{0xff}; });
          double error = 0, norm = 0, row_worst = 0, lse_worst = 0;
          const int64_t rows = c.out.count / s.v_head_size;
          for (int64_t r = 0; r < rows; ++r) {
            double row_error = 0, row_norm = 0;
            for (int64_t d = r * s.v_head_size; d < (r + 1) * s.v_head_size; ++d) {
              const double want = ref.out[static_cast<size_t>(d)], got = c.out.at(d);
              if (!(std::abs(got) < 1e30)) bad = true;
              row_error += (got - want) * (got - want);
              row_norm += want * want;
            }
            error += row_error;
            norm += row_norm;
            if (row_norm == 0 && row_error != 0) bad = true;
            // A row of few channels can cancel to nearly nothing, and a large sink pushes a row
            // below what float16 can hold: no yardstick by itself.
            if (row_norm > 1e-6 * s.v_head_size && s.v_head_size >= 32) {
              row_worst = std::max(row_worst, std::sqrt(row_error / row_norm));
            }
            const double want = ref.lse[static_cast<size_t>(r)], got = c.lse.at(r);
            if (s.log_sum_exp && want != got) {
              const double e = std::abs(want - got) / (1 + std::abs(want));
              lse_worst = std::max(lse_worst, e < 1e30 ? e : 1e30);
            }
          }
          const double total = norm > 0 ? std::sqrt(error / norm) : 0;
          Worst& w = worst[std::string(engine->name()) + " " + name_of(level) + " " +
                           attn::name_of(s.type)];
          w.all = std::max(w.all, total);
          w.row = std::max(w.row, row_worst);
          w.lse = std::max(w.lse, lse_worst);
          w.problems += threads == 1;
          if (first_bits.empty()) first_bits = c.out.storage;
          if (bad || !(total <= limit) || !(row_worst <= 4 * limit) || lse_worst > 2e-6 ||
              first_bits != c.out.storage) {
            ++failed;
            std::printf(
                "FAIL seed %llu %s %s %s threads %d: B%lld S%lld cap %lld Hq %d Hkv %d "
                "D %d Dv %d causal %d left %lld right %lld mask %d cap %g sink %d spread %g"
                "%s: error %.3g row %.3g lse %.3g%s\n",
                static_cast<unsigned long long>(seed + static_cast<uint64_t>(n)), engine->name(),
                name_of(level), attn::name_of(s.type), threads,
                static_cast<long long>(c.shape.batch), static_cast<long long>(c.shape.query_rows),
                static_cast<long long>(c.shape.capacity), s.q_heads, s.kv_heads, s.head_size,
                s.v_head_size, s.causal, static_cast<long long>(s.left_window),
                static_cast<long long>(s.right_window), static_cast<int>(s.mask), s.softcap,
                static_cast<int>(s.sink), static_cast<double>(spread),
                bad ? " (not finite, or nonzero for an empty row)" : "", total, row_worst,
                lse_worst, first_bits != c.out.storage ? " bits differ" : "");
          }
        }
      }
    }
  }
  for (const auto& [name, w] : worst) {
    std::printf("%-32s %6lld problems  error %.3g  row %.3g  lse %.3g\n", name.c_str(),
                static_cast<long long>(w.problems), w.all, w.row, w.lse);
  }
  std::printf("%d failed\n", failed);
  return failed == 0 && !worst.empty() ? 0 : 1;
}

}  // namespace
}  // namespace attn::bench

int main(int argc, char** argv) {
  const int64_t problems = argc > 1 ? std::atoll(argv[1]) : 300;
  const uint64_t seed = argc > 2 ? std::strtoull(argv[2], nullptr, 10) : 1;
  return attn::bench::check(problems, seed, argc > 3 ? argv[3] : "");
}
