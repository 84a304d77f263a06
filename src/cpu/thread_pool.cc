#include "cpu/thread_pool.h"

#include <pthread.h>
#include <signal.h>

#include <algorithm>
#include <mutex>
#include <new>

#include "core/float_environment.h"
#include "core/quiet_signals.h"
#include "hwy/cache_control.h"

namespace attn::cpu {
namespace {

constexpr uint64_t kOpen = uint64_t{1} << 31;
constexpr int kSlotShift = 16;
constexpr uint64_t kSlot = uint64_t{1} << kSlotShift;
constexpr uint64_t kSlots = uint64_t{0x7fff} << kSlotShift;
constexpr uint64_t kInside = 0x7fff;
constexpr int kJobShift = 32;

// How long a thread looks before it sleeps: some tens of microseconds, longer than the gaps between
// the stages of one execute, far shorter than a time slice.
constexpr int kSpins = 1000;

// Waits until `word` differs from `seen`.
void wait_for_change(const std::atomic<uint32_t>& word, uint32_t seen) {
  for (int spin = 0; spin < kSpins; ++spin) {
    if (word.load(std::memory_order_acquire) != seen) return;
    hwy::Pause();
  }
  word.wait(seen, std::memory_order_acquire);
}

// The pool is placed in static storage without a destructor: workers may outlive main.
alignas(ThreadPool) unsigned char pool_storage[sizeof(ThreadPool)];
std::atomic<ThreadPool*> pool{nullptr};

}  // namespace

ThreadPool& ThreadPool::instance() {
  ThreadPool* existing = pool.load(std::memory_order_acquire);
  if (existing != nullptr) return *existing;
  static std::once_flag once;
  std::call_once(once, [] {
    pool.store(new (pool_storage) ThreadPool, std::memory_order_release);
    // The child has no workers, and may have inherited a job that another thread was running. Its
    // one thread makes a fresh pool over the old one; nothing else can be looking at it.
    pthread_atfork(nullptr, nullptr, [] { new (pool_storage) ThreadPool; });
  });
  return *pool.load(std::memory_order_acquire);
}

void ThreadPool::run(int tasks, int threads, void (*fn)(void* ctx, int task), void* ctx) {
  const int helpers = std::min({threads, tasks, kMaxThreads}) - 1;
  if (helpers < 1 || taken_.exchange(1, std::memory_order_acquire) != 0) {
    for (int task = 0; task < tasks; ++task) fn(ctx, task);
    return;
  }
  if (workers_.load(std::memory_order_relaxed) < helpers) start_workers(helpers);
  fn_ = fn;
  ctx_ = ctx;
  tasks_ = tasks;
  left_.store(tasks, std::memory_order_relaxed);
  next_.store(kMaxThreads, std::memory_order_relaxed);
  ++job_;
  const uint32_t job = wake_.load(std::memory_order_relaxed) + 1;
  state_.store(uint64_t{job} << kJobShift | kOpen | static_cast<uint64_t>(helpers) << kSlotShift,
               std::memory_order_release);
  wake_.store(job, std::memory_order_release);
  wake_.notify_all();

  drain(0);

  // Close the job: no worker enters any more. Then wait for those that are inside.
  state_.fetch_and(~(kOpen | kSlots), std::memory_order_acq_rel);
  for (;;) {
    const uint32_t seen = finished_.load(std::memory_order_acquire);
    if ((state_.load(std::memory_order_acquire) & kInside) == 0) break;
    wait_for_change(finished_, seen);
  }
  taken_.store(0, std::memory_order_release);
}

bool ThreadPool::claim(int task) {
  std::atomic<uint64_t>& last = claims_[static_cast<size_t>(task)].job;
  if (last.load(std::memory_order_relaxed) == job_) return false;
  if (last.exchange(job_, std::memory_order_relaxed) == job_) return false;
  left_.fetch_sub(1, std::memory_order_relaxed);
  return true;
}

// Tasks until all are taken: the thread's own first, then those of threads that are late. Workers
// come to task 0, which is the caller's, last.
void ThreadPool::drain(int own) {
  const int claims = std::min(tasks_, kMaxThreads);
  for (int i = 0; i < claims && left_.load(std::memory_order_relaxed) > 0; ++i) {
    int task = (own + i) % claims;
    if (own > 0) task = i + 1 < claims ? 1 + (own - 1 + i) % (claims - 1) : 0;
    if (claim(task)) fn_(ctx_, task);
  }
  for (;;) {
    const int task = next_.fetch_add(1, std::memory_order_relaxed);
    if (task >= tasks_) return;
    fn_(ctx_, task);
  }
}

void ThreadPool::start_workers(int wanted) {
  const QuietSignals quiet;
  pthread_attr_t attributes;
  pthread_attr_init(&attributes);
  pthread_attr_setdetachstate(&attributes, PTHREAD_CREATE_DETACHED);
  int started = workers_.load(std::memory_order_relaxed);
  while (started < wanted) {
    pthread_t thread;
    if (pthread_create(&thread, &attributes, &ThreadPool::worker_main, this) != 0) break;
    workers_.store(++started, std::memory_order_relaxed);
  }
  pthread_attr_destroy(&attributes);
}

void* ThreadPool::worker_main(void* self) {
  const FloatEnvironment environment;  // a thread begins with the modes of the one that starts it
  auto* threads = static_cast<ThreadPool*>(self);
  threads->work(threads->numbers_.fetch_add(1, std::memory_order_relaxed) + 1);
  return nullptr;
}

void ThreadPool::work(int number) {
  // A worker begins while the job that it was started for may already be open.
  uint32_t seen = 0;
  for (;;) {
    const uint32_t job = wake_.load(std::memory_order_acquire);
    if (job == seen) {
      wait_for_change(wake_, seen);
      continue;
    }
    seen = job;
    uint64_t state = state_.load(std::memory_order_acquire);
    while ((state & kOpen) != 0 && (state & kSlots) != 0) {
      if (state_.compare_exchange_weak(state, state - kSlot + 1, std::memory_order_acq_rel)) {
        drain(number);
        const uint64_t before = state_.fetch_sub(1, std::memory_order_acq_rel);
        if ((before & kOpen) == 0 && (before & kInside) == 1) {
          finished_.fetch_add(1, std::memory_order_release);
          finished_.notify_one();
        }
        break;
      }
    }
  }
}

}  // namespace attn::cpu
