// The executors that a back end can have: the pool of the process, or the host's threads.
#pragma once

#include <memory>

#include "cpu/cpu_backend.h"
#include "cpu/engine.h"

namespace attn::cpu {

// The pool of the process, with at most `threads` threads. The pool is made when the first
// parallel_for needs it.
std::unique_ptr<Executor> make_pool_executor(int threads);

// The host's threads, at most `limit` of them (0 = as many as the host says, which is asked once).
std::unique_ptr<Executor> make_host_executor(const HostExecutor& host, int limit);

}  // namespace attn::cpu
