#include "cpu/thread_pool.h"

#include <pthread.h>
#include <signal.h>
#include <sys/wait.h>
#include <unistd.h>

#include <atomic>
#include <memory>
#include <thread>
#include <vector>

#include <gtest/gtest.h>

#include "cpu/executor.h"

// Without this ThreadSanitizer ends a child that starts threads, which is what is tested here.
extern "C" __attribute__((visibility("default"))) const char* __tsan_default_options() {
  return "die_after_fork=0";
}

namespace attn::cpu {
namespace {

struct Tally {
  explicit Tally(int tasks) : calls(static_cast<size_t>(tasks)) {}
  std::vector<std::atomic<int>> calls;
  static void count(void* self, int task) {
    static_cast<Tally*>(self)->calls[static_cast<size_t>(task)].fetch_add(1);
  }
  bool each_once() const {
    for (const std::atomic<int>& c : calls) {
      if (c.load() != 1) return false;
    }
    return true;
  }
};

TEST(CpuThreadPool, EveryTaskRunsOnce) {
  for (const int threads : {1, 2, 4, 9}) {
    for (const int tasks : {0, 1, 2, 3, 64, 1000, 3000}) {
      Tally tally(tasks);
      ThreadPool::instance().run(tasks, threads, &Tally::count, &tally);
      EXPECT_TRUE(tally.each_once()) << tasks << " tasks, " << threads << " threads";
    }
  }
}

TEST(CpuThreadPool, ManySmallJobsInARow) {
  for (int job = 0; job < 20000; ++job) {
    Tally tally(3);
    ThreadPool::instance().run(3, 3, &Tally::count, &tally);
    ASSERT_TRUE(tally.each_once()) << "job " << job;
  }
}

TEST(CpuThreadPool, CallersOfSeveralThreadsDoNotDisturbEachOther) {
  std::atomic<int> failures{0};
  std::vector<std::thread> callers;
  for (int caller = 0; caller < 4; ++caller) {
    callers.emplace_back([&failures] {
      for (int job = 0; job < 2000; ++job) {
        Tally tally(5);
        ThreadPool::instance().run(5, 3, &Tally::count, &tally);
        if (!tally.each_once()) failures.fetch_add(1);
      }
    });
  }
  for (std::thread& caller : callers) caller.join();
  EXPECT_EQ(failures.load(), 0);
}

TEST(CpuThreadPool, JobsInsideTasksRunInline) {
  struct Outer {
    std::atomic<int> inner{0};
    static void outer_task(void* self, int) {
      ThreadPool::instance().run(
          4, 4, [](void* s, int) { static_cast<Outer*>(s)->inner.fetch_add(1); }, self);
    }
  } outer;
  ThreadPool::instance().run(8, 4, &Outer::outer_task, &outer);
  EXPECT_EQ(outer.inner.load(), 32);
}

// All threads of a job meet at a barrier: only as many tasks as threads can do that at once.
TEST(CpuThreadPool, ThreadsWorkAtOnce) {
  struct Meeting {
    std::atomic<int> arrived{0};
    static void meet(void* self, int) {
      auto& arrived = static_cast<Meeting*>(self)->arrived;
      arrived.fetch_add(1);
      while (arrived.load() < 3) std::this_thread::yield();
    }
  } meeting;
  ThreadPool::instance().run(3, 3, &Meeting::meet, &meeting);
  EXPECT_EQ(meeting.arrived.load(), 3);
  EXPECT_GE(ThreadPool::instance().workers(), 2);
}

// What it worked on in one job is in its processor's caches in the next.
TEST(CpuThreadPool, TheCallerBeginsWithTaskZero) {
  struct First {
    std::thread::id of_zero;
    std::atomic<int> arrived{0};
    static void note(void* self, int task) {
      auto& first = *static_cast<First*>(self);
      if (task == 0) first.of_zero = std::this_thread::get_id();
      first.arrived.fetch_add(1);
      while (first.arrived.load() < 3) std::this_thread::yield();
    }
  };
  Tally all(9);  // so that there are workers of higher numbers than the jobs below have tasks
  ThreadPool::instance().run(9, 9, &Tally::count, &all);
  for (int job = 0; job < 200; ++job) {
    First first;
    ThreadPool::instance().run(3, 3, &First::note, &first);
    ASSERT_EQ(first.of_zero, std::this_thread::get_id()) << "job " << job;
  }
}

TEST(CpuThreadPool, WorkersBlockSignals) {
  struct Masks {
    std::atomic<int> arrived{0};
    pthread_t caller = pthread_self();
    std::atomic<int> unblocked{0};
    static void look(void* self, int) {
      auto& masks = *static_cast<Masks*>(self);
      masks.arrived.fetch_add(1);
      while (masks.arrived.load() < 3) std::this_thread::yield();
      if (pthread_equal(pthread_self(), masks.caller)) return;
      sigset_t blocked;
      pthread_sigmask(SIG_BLOCK, nullptr, &blocked);
      for (const int number : {SIGINT, SIGTERM, SIGUSR1, SIGCHLD, SIGPROF}) {
        if (sigismember(&blocked, number) != 1) masks.unblocked.fetch_add(1);
      }
    }
  } masks;
  sigset_t before;
  pthread_sigmask(SIG_BLOCK, nullptr, &before);
  ThreadPool::instance().run(3, 3, &Masks::look, &masks);
  EXPECT_EQ(masks.unblocked.load(), 0);
  sigset_t after;
  pthread_sigmask(SIG_BLOCK, nullptr, &after);
  EXPECT_EQ(sigismember(&after, SIGUSR1), sigismember(&before, SIGUSR1));
}

TEST(CpuThreadPool, ChildAfterForkStartsOver) {
  Tally before(8);
  ThreadPool::instance().run(8, 3, &Tally::count, &before);
  ASSERT_TRUE(before.each_once());
  const pid_t child = fork();
  ASSERT_GE(child, 0);
  if (child == 0) {
    alarm(20);  // a child that hangs dies by SIGALRM
    bool good = ThreadPool::instance().workers() == 0;
    for (int job = 0; job < 50; ++job) {
      Tally tally(8);
      ThreadPool::instance().run(8, 3, &Tally::count, &tally);
      good = good && tally.each_once();
    }
    _exit(good ? 0 : 1);
  }
  int status = 0;
  ASSERT_EQ(waitpid(child, &status, 0), child);
  EXPECT_TRUE(WIFEXITED(status)) << "signal " << WTERMSIG(status);
  EXPECT_EQ(WEXITSTATUS(status), 0);
}

// A fork while another thread is in the middle of a job leaves the pool taken in the child.
TEST(CpuThreadPool, ForkInTheMiddleOfAJobDoesNotHang) {
  struct Gate {
    std::atomic<bool> inside{false}, open{false};
    static void wait(void* self, int) {
      auto& gate = *static_cast<Gate*>(self);
      gate.inside.store(true);
      while (!gate.open.load()) std::this_thread::yield();
    }
  } gate;
  std::thread other([&gate] { ThreadPool::instance().run(2, 2, &Gate::wait, &gate); });
  while (!gate.inside.load()) std::this_thread::yield();
  const pid_t child = fork();
  if (child == 0) {
    alarm(20);
    Tally tally(8);
    ThreadPool::instance().run(8, 3, &Tally::count, &tally);
    _exit(tally.each_once() && ThreadPool::instance().workers() == 2 ? 0 : 1);
  }
  gate.open.store(true);
  other.join();
  ASSERT_GE(child, 0);
  int status = 0;
  ASSERT_EQ(waitpid(child, &status, 0), child);
  EXPECT_TRUE(WIFEXITED(status)) << "signal " << WTERMSIG(status);
  EXPECT_EQ(WEXITSTATUS(status), 0);
}

TEST(CpuExecutor, PoolExecutorKeepsItsLimit) {
  EXPECT_EQ(make_pool_executor(3)->concurrency(), 3);
  EXPECT_EQ(make_pool_executor(0)->concurrency(), 1);
  EXPECT_EQ(make_pool_executor(1 << 20)->concurrency(), ThreadPool::kMaxThreads);
  const std::unique_ptr<Executor> one = make_pool_executor(1);
  struct Where {
    pthread_t caller = pthread_self();
    int elsewhere = 0;
    static void look(void* self, int) {
      auto& where = *static_cast<Where*>(self);
      if (!pthread_equal(pthread_self(), where.caller)) ++where.elsewhere;
    }
  } where;
  one->parallel_for(100, &Where::look, &where);
  EXPECT_EQ(where.elsewhere, 0);
}

struct HostCalls {
  int32_t threads = 4;
  int asked = 0;
  int loops = 0;
  int32_t last_count = 0;
  HostExecutor executor() {
    return {this,
            [](void* self) {
              return ++static_cast<HostCalls*>(self)->asked, static_cast<HostCalls*>(self)->threads;
            },
            [](void* self, int32_t count, void (*task)(void*, int32_t), void* ctx) {
              auto& calls = *static_cast<HostCalls*>(self);
              ++calls.loops;
              calls.last_count = count;
              for (int32_t i = count - 1; i >= 0; --i) task(ctx, i);  // any order is legal
            }};
  }
};

TEST(CpuExecutor, HostExecutorGetsTheLoops) {
  HostCalls calls;
  const std::unique_ptr<Executor> host = make_host_executor(calls.executor(), 0);
  EXPECT_EQ(host->concurrency(), 4);
  Tally tally(7);
  host->parallel_for(7, &Tally::count, &tally);
  EXPECT_TRUE(tally.each_once());
  EXPECT_EQ(calls.loops, 1);
  EXPECT_EQ(calls.last_count, 7);
  Tally single(1);
  host->parallel_for(1, &Tally::count, &single);
  EXPECT_TRUE(single.each_once());
  EXPECT_EQ(calls.loops, 1);  // not worth a call
  EXPECT_EQ(calls.asked, 1);
}

TEST(CpuExecutor, LimitsCapTheHost) {
  HostCalls calls;
  EXPECT_EQ(make_host_executor(calls.executor(), 2)->concurrency(), 2);
  EXPECT_EQ(make_host_executor(calls.executor(), 9)->concurrency(), 4);
  calls.threads = -1;
  EXPECT_EQ(make_host_executor(calls.executor(), 0)->concurrency(), 1);
}

}  // namespace
}  // namespace attn::cpu
