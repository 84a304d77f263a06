// Times the SIMD attention engines alone, without the C API.
//
//   kernel_attention [decode|prefill|small] [threads] [level] [head size]
//
// One line a case: shape, best and median time, and how far from the machine's limits it is
// (multiply-adds counted twice, causal ones halved; bytes of keys and values read once).
#include <algorithm>
#include <cmath>
#include <cstdio>
#include <cstdlib>
#include <ctime>
#include <string>

#include "cpu/engine.h"
#include "cpu/executor.h"
#include "kernel_case.h"

namespace attn::bench {
namespace {

// Wall time; with one thread its processor time, which other programs disturb less.
double now(bool alone) {
  timespec time{};
  clock_gettime(alone ? CLOCK_THREAD_CPUTIME_ID : CLOCK_MONOTONIC, &time);
  return static_cast<double>(time.tv_sec) + static_cast<double>(time.tv_nsec) * 1e-9;
}

void time_case(const cpu::AttentionEngine& engine, cpu::SimdLevel level, cpu::Executor& executor,
               Case& c) {
  const AttentionProblem& p = c.problem;
  const ShapeRange range{p.batch, p.query_rows, p.max_total};
  const size_t bytes = engine.workspace_bytes(p.spec, range, executor.concurrency(), level);
  std::vector<std::byte> memory(bytes + 64);
  const size_t shift = (64 - reinterpret_cast<uintptr_t>(memory.data()) % 64) % 64;
  const std::span<std::byte> scratch{memory.data() + shift, bytes};
  const bool alone = executor.concurrency() == 1;
  const auto run = [&] { engine.run(p, c.shape.rows, scratch, executor, level); };
  run();
  double start = now(alone);
  run();
  const double once = std::max(now(alone) - start, 1e-8);
  const int inner = static_cast<int>(std::clamp(2e-3 / once, 1.0, 20000.0));
  std::vector<double> times;
  const double stop = now(alone) + 0.7;
  while (now(alone) < stop || times.size() < 3) {
    start = now(alone);
    for (int i = 0; i < inner; ++i) run();
    times.push_back((now(alone) - start) / inner);
  }
  std::sort(times.begin(), times.end());
  const double best = times.front(), median = times[times.size() / 2];
  const AttentionSpec& s = p.spec;
  const double width = s.head_size + s.v_head_size;
  double pairs = static_cast<double>(p.batch * p.query_rows) * static_cast<double>(p.max_total);
  if (s.causal && p.query_rows > 1) {
    pairs -=
        static_cast<double>(p.batch * p.query_rows) * static_cast<double>(p.query_rows - 1) / 2;
  }
  const double flops = 2 * pairs * s.q_heads * width;
  const double read = static_cast<double>(p.batch * p.max_total * s.kv_heads) * width *
                      static_cast<double>(size_of(s.type));
  std::printf(
      "%-12s %-8s %-9s B%-2lld Hq%-2d Hkv%-2d D%-3d S%-5lld T%-5lld best %9.2f us "
      "median %9.2f us  %6.1f GFLOP/s %6.2f GB/s  scratch %zu KiB\n",
      engine.name(), name_of(level), attn::name_of(s.type), static_cast<long long>(p.batch),
      s.q_heads, s.kv_heads, s.head_size, static_cast<long long>(p.query_rows),
      static_cast<long long>(p.max_total), best * 1e6, median * 1e6, flops / median * 1e-9,
      read / median * 1e-9, bytes / 1024);
  std::fflush(stdout);
}

void run_case(cpu::SimdLevel level, cpu::Executor& executor, DType type, int64_t batch, int q_heads,
              int kv_heads, int size, int64_t rows, int64_t total) {
  Case c;
  AttentionSpec& s = c.shape.spec;
  s.type = type;
  s.q_heads = q_heads;
  s.kv_heads = kv_heads;
  s.head_size = s.v_head_size = size;
  s.scale = 1 / std::sqrt(size);
  s.causal = true;
  c.shape.batch = batch;
  c.shape.query_rows = rows;
  c.shape.capacity = total;
  for (int64_t b = 0; b < batch; ++b) {
    c.shape.rows.push_back({total - rows, rows, total, total - rows, true});
  }
  std::mt19937 rng(1);
  make(c, rng, 1);
  const cpu::AttentionEngine& decode = cpu::simd_decode_engine();
  const cpu::AttentionEngine& engine =
      decode.accepts(c.problem) ? decode : cpu::simd_prefill_engine();
  time_case(engine, level, executor, c);
}

}  // namespace
}  // namespace attn::bench

int main(int argc, char** argv) {
  using namespace attn;
  const std::string what = argc > 1 ? argv[1] : "decode";
  const int threads = argc > 2 ? std::atoi(argv[2]) : 2;
  cpu::SimdLevel level = cpu::best_simd_level();
  if (argc > 3 && !cpu::parse_simd_level(argv[3], &level)) return 2;
  const int only = argc > 4 ? std::atoi(argv[4]) : 0;
  const auto executor = cpu::make_pool_executor(threads);
  if (what == "small") {
    for (int64_t total : {1, 16, 128}) {
      bench::run_case(level, *executor, kFloat32, 1, 1, 1, 64, 1, total);
    }
    return 0;
  }
  const struct {
    int q, kv;
  } heads[] = {{32, 8}, {8, 1}};
  for (DType type : {kFloat32, kFloat16, kBfloat16}) {
    for (const auto& h : heads) {
      for (int size : {64, 128, 256}) {
        if (only != 0 && size != only) continue;
        if (what == "decode") {
          for (int64_t batch : {1, 8}) {
            for (int64_t total : {512, 2048, 8192}) {
              bench::run_case(level, *executor, type, batch, h.q, h.kv, size, 1, total);
            }
          }
        } else {
          for (int64_t rows : {128, 512, 2048}) {
            bench::run_case(level, *executor, type, 1, h.q, h.kv, size, rows, rows);
          }
        }
      }
    }
  }
  return 0;
}
