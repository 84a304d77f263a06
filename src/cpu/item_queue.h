// Many small work items that threads share: rows to copy or to transform.
#pragma once

#include <algorithm>
#include <atomic>
#include <cstdint>

#include "cpu/engine.h"

namespace attn::cpu {

// Base of a job. Items are [0, items); the rest is run_items' own.
struct ItemQueue {
  int64_t items = 0;
  int64_t grab = 1;  // items that a thread takes at once: a decode step has many tiny ones
  std::atomic<int64_t> next{0};
};

// Runs run_item(job, item, slot) for every item of the job, an ItemQueue; slots are below the
// executor's concurrency, and no two threads have the same. `bytes` is what is read and written:
// little of it stays on the calling thread. `run_item` is a lambda without captures.
template <class Job, class RunItem>
void run_items(Executor& executor, int64_t bytes, Job& job, RunItem /*run_item*/) {
  // Below this much traffic another thread costs more than it brings.
  constexpr int64_t kParallelBytes = 128 << 10;
  constexpr int64_t kGrabsPerTask = 8;  // so that threads end together
  const auto task = [](void* ctx, int slot) {
    Job& shared = *static_cast<Job*>(ctx);
    for (;;) {
      const int64_t first = shared.next.fetch_add(shared.grab, std::memory_order_relaxed);
      if (first >= shared.items) return;
      const int64_t end = std::min(first + shared.grab, shared.items);
      for (int64_t item = first; item < end; ++item) RunItem{}(shared, item, slot);
    }
  };
  const int64_t tasks =
      bytes < kParallelBytes ? 1 : std::min<int64_t>(executor.concurrency(), job.items);
  if (tasks <= 1) {
    job.grab = job.items;
    task(&job, 0);
  } else {
    job.grab = std::max<int64_t>(1, job.items / (tasks * kGrabsPerTask));
    executor.parallel_for(static_cast<int>(tasks), task, &job);
  }
}

}  // namespace attn::cpu
