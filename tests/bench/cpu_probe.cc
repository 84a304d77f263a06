// What the machine can do, as functions for tests/bench/probe.py: reading memory once, and fused
// multiply-adds out of registers, by any number of threads.
//
// They are measured between the operators of a case, so that clocks that change and neighbours on a
// shared machine touch both. Threads: one caller at a time.
#define HWY_IS_DEBUG_BUILD 0
#if defined(__x86_64__)
#define HWY_BASELINE_TARGETS HWY_SSE4
#define HWY_DISABLED_TARGETS (HWY_SSSE3 | HWY_AVX3_DL | HWY_SCALAR | HWY_EMU128)
#endif

#include <algorithm>
#include <cstddef>
#include <cstdint>

#include "bench/cpu_probe.h"

#undef HWY_TARGET_INCLUDE
#define HWY_TARGET_INCLUDE "bench/cpu_probe.cc"
#include "hwy/foreach_target.h"
#include "hwy/highway.h"

HWY_BEFORE_NAMESPACE();
namespace probe {
namespace HWY_NAMESPACE {
namespace hn = hwy::HWY_NAMESPACE;
using D = hn::ScalableTag<uint32_t>;
using DF = hn::ScalableTag<float>;

// Bits of all that was read, so that no load can be left out.
uint32_t read(const uint8_t* from, int64_t bytes) {
  constexpr D d{};
  constexpr int64_t kBytes = static_cast<int64_t>(HWY_LANES(uint8_t));
  auto a = hn::Zero(d), b = a, c = a, e = a;
  int64_t i = 0;
  for (; i + 4 * kBytes <= bytes; i += 4 * kBytes) {
    const auto* at = reinterpret_cast<const uint32_t*>(from + i);
    constexpr int kStep = static_cast<int>(HWY_LANES(uint32_t));
    a = hn::Or(a, hn::LoadU(d, at));
    b = hn::Or(b, hn::LoadU(d, at + kStep));
    c = hn::Or(c, hn::LoadU(d, at + 2 * kStep));
    e = hn::Or(e, hn::LoadU(d, at + 3 * kStep));
  }
  uint32_t all = hn::GetLane(hn::MaxOfLanes(d, hn::Or(hn::Or(a, b), hn::Or(c, e))));
  for (; i < bytes; ++i) all |= from[i];
  return all;
}

// `count` rounds of twelve multiply-adds that do not wait for each other.
float multiply_add(int64_t count) {
  constexpr DF d{};
  const auto factor = hn::Set(d, 0.999f), term = hn::Set(d, 0.001f);
  auto a = hn::Set(d, 1.0f), b = hn::Set(d, 2.0f), c = hn::Set(d, 3.0f), e = hn::Set(d, 4.0f);
  auto f = hn::Set(d, 5.0f), g = hn::Set(d, 6.0f), h = hn::Set(d, 7.0f), i = hn::Set(d, 8.0f);
  auto j = hn::Set(d, 9.0f), k = hn::Set(d, 10.0f), l = hn::Set(d, 11.0f), m = hn::Set(d, 12.0f);
  for (int64_t round = 0; round < count; ++round) {
    a = hn::MulAdd(a, factor, term), b = hn::MulAdd(b, factor, term);
    c = hn::MulAdd(c, factor, term), e = hn::MulAdd(e, factor, term);
    f = hn::MulAdd(f, factor, term), g = hn::MulAdd(g, factor, term);
    h = hn::MulAdd(h, factor, term), i = hn::MulAdd(i, factor, term);
    j = hn::MulAdd(j, factor, term), k = hn::MulAdd(k, factor, term);
    l = hn::MulAdd(l, factor, term), m = hn::MulAdd(m, factor, term);
  }
  const auto sums = hn::Add(
      hn::Add(hn::Add(a, b), hn::Add(c, e)),
      hn::Add(hn::Add(hn::Add(f, g), hn::Add(h, i)), hn::Add(hn::Add(j, k), hn::Add(l, m))));
  return hn::GetLane(hn::SumOfLanes(d, sums));
}

extern const Kernels kKernels;
const Kernels kKernels = {read, multiply_add, 12 * 2 * static_cast<int64_t>(HWY_LANES(float))};

}  // namespace HWY_NAMESPACE
}  // namespace probe
HWY_AFTER_NAMESPACE();

#if HWY_ONCE
#include <atomic>
#include <memory>
#include <thread>
#include <vector>

namespace probe {
namespace {

const Kernels& kernels() {
#if defined(__x86_64__)
  if (__builtin_cpu_supports("avx512f") && __builtin_cpu_supports("avx512bw") &&
      __builtin_cpu_supports("avx512dq") && __builtin_cpu_supports("avx512vl")) {
    return N_AVX3::kKernels;
  }
  if (__builtin_cpu_supports("avx2") && __builtin_cpu_supports("fma")) return N_AVX2::kKernels;
  return N_SSE4::kKernels;
#else
  return N_NEON::kKernels;
#endif
}

struct Work {
  const void* const* blocks;
  const int64_t* bytes;
  int64_t count;
  int64_t flops;
  int threads;
};

std::atomic<uint32_t> sink{0};

// The part of one thread: an equal share of all bytes, on cache lines, or of all operations.
void run_part(const Work& work, int thread) {
  if (work.flops > 0) {
    const float sum = kernels().multiply_add(work.flops / work.threads / kernels().flops);
    sink.fetch_or(sum > 0 ? 1 : 0, std::memory_order_relaxed);
    return;
  }
  int64_t all = 0;
  for (int64_t i = 0; i < work.count; ++i) all += work.bytes[i];
  const int64_t from = all * thread / work.threads / 64 * 64;
  const int64_t to = thread + 1 == work.threads ? all : all * (thread + 1) / work.threads / 64 * 64;
  uint32_t bits = 0;
  int64_t at = 0;
  for (int64_t i = 0; i < work.count; at += work.bytes[i], ++i) {
    const int64_t first = std::max(from - at, int64_t{0});
    const int64_t last = std::min(to - at, work.bytes[i]);
    if (first >= last) continue;
    bits |= kernels().read(static_cast<const uint8_t*>(work.blocks[i]) + first, last - first);
  }
  sink.fetch_or(bits, std::memory_order_relaxed);
}

// Threads that look for work for some microseconds before they sleep, as those of a library do.
class Crew {
 public:
  explicit Crew(int threads) : threads_(threads) {
    for (int i = 1; i < threads; ++i) members_.emplace_back([this, i] { serve(i); });
  }
  ~Crew() {
    work_ = nullptr;
    call();
    for (std::thread& member : members_) member.join();
  }
  Crew(const Crew&) = delete;
  Crew& operator=(const Crew&) = delete;

  int threads() const { return threads_; }

  void run(const Work& work) {
    work_ = &work;
    left_.store(threads_ - 1, std::memory_order_relaxed);
    call();
    run_part(work, 0);
    for (int left; (left = left_.load(std::memory_order_acquire)) != 0;) left_.wait(left);
  }

 private:
  void call() {
    turn_.fetch_add(1, std::memory_order_release);
    turn_.notify_all();
  }

  void serve(int thread) {
    for (uint32_t turn = 0;;) {
      for (int spin = 0; spin < 2000 && turn_.load(std::memory_order_acquire) == turn; ++spin) {
        std::atomic_signal_fence(std::memory_order_seq_cst);
      }
      turn_.wait(turn, std::memory_order_acquire);
      ++turn;
      if (work_ == nullptr) return;
      run_part(*work_, thread);
      if (left_.fetch_sub(1, std::memory_order_acq_rel) == 1) left_.notify_one();
    }
  }

  const int threads_;
  const Work* work_ = nullptr;
  std::atomic<uint32_t> turn_{0};
  std::atomic<int> left_{0};
  std::vector<std::thread> members_;
};

void run(const Work& work) {
  static std::unique_ptr<Crew> crew;
  if (crew == nullptr || crew->threads() != work.threads) {
    crew = std::make_unique<Crew>(work.threads);
  }
  crew->run(work);
}

}  // namespace
}  // namespace probe

extern "C" {

// Reads blocks[i][0, bytes[i]) for all i < count once.
__attribute__((visibility("default"))) void probe_read(const void* const* blocks,
                                                       const int64_t* bytes, int64_t count,
                                                       int threads) {
  probe::run({blocks, bytes, count, 0, threads});
}

// About `flops` operations of multiply-adds, which count two.
__attribute__((visibility("default"))) void probe_product(int64_t flops, int threads) {
  probe::run({nullptr, nullptr, 0, std::max<int64_t>(flops, 1), threads});
}
}
#endif  // HWY_ONCE
