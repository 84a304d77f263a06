// The worker threads of the process: one pool, shared by every context.
#pragma once

#include <array>
#include <atomic>
#include <cstdint>

#include "cpu/engine.h"

namespace attn::cpu {

// Made on first need, never destroyed: workers sleep between jobs and nothing runs at exit. Workers
// block all signals, so that handlers run on the host's threads only.
//
// One job at a time: a caller that finds the pool taken (by another thread, or because it is itself
// inside a task) runs its tasks by itself. The caller always works too. In a child after fork the
// pool starts over, since no worker came along.
//
// A job lives in the pool's fields while the state word is open. All of its facts that workers race
// for are in that one word, so that a worker that wakes late can never enter a job that has ended:
//
//   bits 63..32  number of the job      bits 30..16  workers that may still enter
//   bit  31      open                   bits 14..0   workers inside
class ThreadPool {
 public:
  static constexpr int kMaxThreads = 1024;  // the calling one included

  // The pool of this process.
  static ThreadPool& instance();

  // Calls fn(ctx, t) once for every t in [0, tasks) on at most `threads` threads and returns when
  // all have returned. Threads: any at once. A worker that cannot be started is done without.
  // Every thread begins with the same task in each job, the calling one with 0: what it worked on
  // in the last job is then in its processor's caches.
  void run(int tasks, int threads, void (*fn)(void* ctx, int task), void* ctx);

  // Workers started so far; for tests.
  int workers() const { return workers_.load(std::memory_order_relaxed); }

 private:
  ThreadPool() = default;
  // A task of the job that is open; `job` is the last one that had somebody take it.
  struct alignas(64) Claim {
    std::atomic<uint64_t> job{0};
  };

  static void* worker_main(void* self);
  void start_workers(int wanted);
  void work(int number);
  void drain(int own);
  bool claim(int task);

  std::atomic<uint32_t> taken_{0};     // a caller owns the job fields
  std::atomic<uint32_t> wake_{0};      // changes with every job: what workers sleep on
  std::atomic<uint32_t> finished_{0};  // changes when the last worker leaves a closed job
  std::atomic<int> workers_{0};
  std::atomic<int> numbers_{0};  // given to workers
  alignas(64) std::atomic<uint64_t> state_{0};
  alignas(64) std::atomic<int> left_{0};  // tasks of the job that nobody has taken
  std::atomic<int> next_{0};              // of those that have no claim, the next
  alignas(64) int tasks_ = 0;
  uint64_t job_ = 0;  // number of the job, which claims are marked with
  void (*fn_)(void* ctx, int task) = nullptr;
  void* ctx_ = nullptr;
  std::array<Claim, kMaxThreads> claims_;  // of the first tasks
};

}  // namespace attn::cpu
