// What the SIMD attention engines share on the host's side.
#pragma once

#include <algorithm>
#include <cstdint>

#include "core/problem.h"
#include "cpu/engine.h"

namespace attn::cpu {

// Why no SIMD engine runs this spec, or null.
const char* simd_refusal(const AttentionSpec& spec);

// Runs `worker(job, slot)` on up to `threads` threads, no more than there are items; one thread
// means the calling one. Job has an item counter that the workers share.
template <class Job>
void run_workers(Executor& executor, int threads, int64_t items, Job& job,
                 void (*worker)(Job& job, int slot)) {
  const int tasks = static_cast<int>(std::min<int64_t>(threads, items));
  if (tasks <= 1) {
    worker(job, 0);
    return;
  }
  struct Call {
    Job* job;
    void (*worker)(Job& job, int slot);
  } call{&job, worker};
  executor.parallel_for(
      tasks,
      [](void* ctx, int task) {
        Call& c = *static_cast<Call*>(ctx);
        c.worker(*c.job, task);
      },
      &call);
}

}  // namespace attn::cpu
