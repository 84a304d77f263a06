// The counters of a context. Each is exact by itself; together they are no snapshot.
#pragma once

#include <atomic>
#include <cstdint>

namespace attn::api {

struct ContextStats {
  std::atomic<uint64_t> plans_created{0};
  std::atomic<uint64_t> plan_cache_hits{0};
  std::atomic<uint64_t> plans_live{0};
  std::atomic<uint64_t> ops_live{0};
  std::atomic<uint64_t> sessions_live{0};
  std::atomic<uint64_t> bindings_live{0};
  std::atomic<uint64_t> scratch_allocations{0};  // of the context's allocator; the back end has its
  std::atomic<uint64_t> scratch_bytes{0};        // own
  alignas(64) std::atomic<uint64_t> executions{0};
};

// Counts an object for as long as it lives.
class LiveCount {
 public:
  explicit LiveCount(std::atomic<uint64_t>& counter) : counter_(counter) {
    counter_.fetch_add(1, std::memory_order_relaxed);
  }
  ~LiveCount() { counter_.fetch_sub(1, std::memory_order_relaxed); }
  LiveCount(const LiveCount&) = delete;
  LiveCount& operator=(const LiveCount&) = delete;

 private:
  std::atomic<uint64_t>& counter_;
};

}  // namespace attn::api
