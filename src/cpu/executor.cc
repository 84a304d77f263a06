#include "cpu/executor.h"

#include <algorithm>

#include "core/error.h"
#include "core/float_environment.h"
#include "cpu/thread_pool.h"

namespace attn::cpu {
namespace {

class PoolExecutor final : public Executor {
 public:
  explicit PoolExecutor(int threads) : threads_(std::clamp(threads, 1, ThreadPool::kMaxThreads)) {}

  int concurrency() const override { return threads_; }

  void parallel_for(int tasks, void (*fn)(void* ctx, int task), void* ctx) override {
    if (tasks <= 1 || threads_ == 1) {
      for (int task = 0; task < tasks; ++task) fn(ctx, task);
      return;
    }
    ThreadPool::instance().run(tasks, threads_, fn, ctx);
  }

 private:
  const int threads_;
};

class HostThreads final : public Executor {
 public:
  HostThreads(const HostExecutor& host, int limit)
      : host_(host), threads_(std::clamp(host.concurrency(host.user), 1, ThreadPool::kMaxThreads)) {
    if (limit > 0) threads_ = std::min(threads_, limit);
  }

  int concurrency() const override { return threads_; }

  void parallel_for(int tasks, void (*fn)(void* ctx, int task), void* ctx) override {
    if (tasks <= 1 || threads_ == 1) {
      for (int task = 0; task < tasks; ++task) fn(ctx, task);
      return;
    }
    struct Call {
      void (*fn)(void* ctx, int task);
      void* ctx;
    } call{fn, ctx};
    try {
      host_.parallel_for(
          host_.user, tasks,
          [](void* self, int32_t task) {
            const FloatEnvironment environment;  // the host's threads have modes of their own
            const Call& c = *static_cast<const Call*>(self);
            c.fn(c.ctx, task);
          },
          &call);
    } catch (...) {  // tasks throw nothing
      throw_error(
          ATTN_INTERNAL,
          "the context's executor.parallel_for threw, which it may not; outputs of this call "
          "are undefined");
    }
  }

 private:
  const HostExecutor host_;
  int threads_;
};

}  // namespace

std::unique_ptr<Executor> make_pool_executor(int threads) {
  return std::make_unique<PoolExecutor>(threads);
}

std::unique_ptr<Executor> make_host_executor(const HostExecutor& host, int limit) {
  return std::make_unique<HostThreads>(host, limit);
}

}  // namespace attn::cpu
