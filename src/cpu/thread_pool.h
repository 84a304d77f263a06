// The worker threads of the process: one pool, shared by every context.
#pragma once

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
  void run(int tasks, int threads, void (*fn)(void* ctx, int task), void* ctx);

  // Workers started so far; for tests.
  int workers() const { return workers_.load(std::memory_order_relaxed); }

 private:
  ThreadPool() = default;
  static void* worker_main(void* self);
  void start_workers(int wanted);
  void work();
  void drain();

  std::atomic<uint32_t> taken_{0};     // a caller owns the job fields
  std::atomic<uint32_t> wake_{0};      // changes with every job: what workers sleep on
  std::atomic<uint32_t> finished_{0};  // changes when the last worker leaves a closed job
  std::atomic<int> workers_{0};
  alignas(64) std::atomic<uint64_t> state_{0};
  alignas(64) std::atomic<int> next_{0};  // next task of the job
  int tasks_ = 0;
  void (*fn_)(void* ctx, int task) = nullptr;
  void* ctx_ = nullptr;
};

}  // namespace attn::cpu
