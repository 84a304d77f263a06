// A host with callbacks that counts what it is asked.
#pragma once

#include <gtest/gtest.h>

#include <atomic>
#include <cstdint>
#include <cstdlib>
#include <mutex>
#include <string>
#include <vector>

#include "attn_c.h"

namespace attn::test {

struct Host {
  std::atomic<int> released{0};
  std::atomic<int> parallel_calls{0};
  std::atomic<int> allocations{0};
  std::atomic<int64_t> held{0};
  std::mutex mutex;
  std::vector<std::string> lines;

  static void release(void* user) { ++static_cast<Host*>(user)->released; }

  attn_logger logger() {
    attn_logger logger = ATTN_LOGGER_INIT;
    logger.user = this;
    logger.release_user = &release;
    logger.minimum_severity = ATTN_LOG_DEBUG;
    logger.log = [](void* user, int32_t, const char* text) {
      Host& host = *static_cast<Host*>(user);
      const std::lock_guard lock(host.mutex);
      host.lines.push_back(text);
    };
    return logger;
  }

  attn_executor executor() {
    attn_executor executor = ATTN_EXECUTOR_INIT;
    executor.user = this;
    executor.release_user = &release;
    executor.concurrency = [](void*) -> int32_t { return 2; };
    executor.parallel_for = [](void* user, int32_t count, void (*task)(void*, int32_t),
                               void* task_context) {
      ++static_cast<Host*>(user)->parallel_calls;
      for (int32_t i = count - 1; i >= 0; --i) task(task_context, i);
    };
    return executor;
  }

  attn_allocator allocator() {
    attn_allocator allocator = ATTN_ALLOCATOR_INIT;
    allocator.user = this;
    allocator.release_user = &release;
    allocator.allocate = [](void* user, uint32_t kind, uint64_t bytes, uint64_t alignment,
                            void* stream) -> void* {
      Host& host = *static_cast<Host*>(user);
      EXPECT_EQ(kind, ATTN_MEMORY_HOST);
      EXPECT_EQ(stream, nullptr);
      ++host.allocations;
      host.held += static_cast<int64_t>(bytes);
      return std::aligned_alloc(alignment, (bytes + alignment - 1) / alignment * alignment);
    };
    allocator.deallocate = [](void* user, uint32_t, void* memory, uint64_t bytes, void*) {
      static_cast<Host*>(user)->held -= static_cast<int64_t>(bytes);
      std::free(memory);
    };
    return allocator;
  }
};

}  // namespace attn::test
