// The plans of a context: made once a key however many threads ask at once, shared, bounded.
#pragma once

#include <condition_variable>
#include <cstddef>
#include <exception>
#include <functional>
#include <list>
#include <memory>
#include <mutex>

#include "api/plan_key.h"
#include "api/stats.h"
#include "core/backend.h"

namespace attn::api {

// A shared plan with what it is for. Immutable.
class PlanEntry {
 public:
  PlanEntry(PlanKey key, std::shared_ptr<const BackendPlan> plan, ContextStats& stats);
  ~PlanEntry();
  PlanEntry(const PlanEntry&) = delete;
  PlanEntry& operator=(const PlanEntry&) = delete;

  const PlanKey& key() const { return key_; }
  const BackendPlan& plan() const { return *plan_; }

 private:
  PlanKey key_;
  std::shared_ptr<const BackendPlan> plan_;
  ContextStats& stats_;
};

// Threads: any. `make` runs without a lock; when it throws, every caller that waited for it gets
// the same exception and nothing is kept. Until it returns, everybody who asks for the key waits:
// it must not call the host, which may ask too.
class PlanCache {
 public:
  // Scratch that a call may be made to take for the sake of a plan that is there already.
  static constexpr uint64_t kMostSharedWorkspace = uint64_t{64} << 20;

  using Make = std::function<std::shared_ptr<const BackendPlan>(const PlanKey&)>;

  PlanCache(ContextStats& stats, size_t capacity) : stats_(stats), capacity_(capacity) {}

  std::shared_ptr<const PlanEntry> find_or_make(PlanKey key, const Make& make);

  // The most recent ready plan of the call's class, engine and flags whose range holds `range`;
  // null when there is none. A plan for far larger calls may want more than `most_workspace`: it is
  // passed over.
  std::shared_ptr<const PlanEntry> find_covering(const Lowering& call, const std::string& engine,
                                                 uint32_t flags, const ShapeRange& range,
                                                 uint64_t most_workspace = kMostSharedWorkspace);

  // Drops the plans that nobody else holds.
  void trim();

 private:
  struct Slot {
    PlanKey key;
    std::shared_ptr<const PlanEntry> entry;  // once ready
    std::exception_ptr failure;              // once failed
  };
  using SlotList = std::list<std::shared_ptr<Slot>>;

  void move_to_front(SlotList::iterator position);
  void evict(SlotList& evicted);

  ContextStats& stats_;
  const size_t capacity_;
  std::mutex mutex_;
  std::condition_variable changed_;
  SlotList slots_;  // the most recently used first
};

}  // namespace attn::api
