#include "api/plan_cache.h"

#include <algorithm>
#include <utility>

namespace attn::api {

PlanEntry::PlanEntry(PlanKey key, std::shared_ptr<const BackendPlan> plan, ContextStats& stats)
    : key_(std::move(key)), plan_(std::move(plan)), stats_(stats) {
  stats_.plans_live.fetch_add(1, std::memory_order_relaxed);
}

PlanEntry::~PlanEntry() { stats_.plans_live.fetch_sub(1, std::memory_order_relaxed); }

void PlanCache::move_to_front(SlotList::iterator position) {
  slots_.splice(slots_.begin(), slots_, position);
}

// Takes the least recently used ready plans out until the bound holds. They are destroyed by the
// caller, outside the lock.
void PlanCache::evict(SlotList& evicted) {
  auto position = slots_.end();
  while (slots_.size() > capacity_ && position != slots_.begin()) {
    --position;
    if ((*position)->entry == nullptr) continue;
    const auto victim = position++;
    evicted.splice(evicted.end(), slots_, victim);
  }
}

std::shared_ptr<const PlanEntry> PlanCache::find_or_make(PlanKey key, const Make& make) {
  SlotList evicted;
  std::unique_lock lock(mutex_);
  const auto found = std::find_if(slots_.begin(), slots_.end(),
                                  [&key](const auto& slot) { return slot->key == key; });
  if (found != slots_.end()) {
    // The wait below gives the lock away: the slot must live on even if it is evicted meanwhile.
    // NOLINTNEXTLINE(performance-unnecessary-copy-initialization)
    const std::shared_ptr<Slot> slot = *found;
    move_to_front(found);
    stats_.plan_cache_hits.fetch_add(1, std::memory_order_relaxed);
    changed_.wait(lock, [&slot] { return slot->entry != nullptr || slot->failure != nullptr; });
    if (slot->failure != nullptr) std::rethrow_exception(slot->failure);
    return slot->entry;
  }

  const auto slot = std::make_shared<Slot>();
  slot->key = std::move(key);
  slots_.push_front(slot);
  lock.unlock();
  try {
    auto entry = std::make_shared<const PlanEntry>(slot->key, make(slot->key), stats_);
    stats_.plans_created.fetch_add(1, std::memory_order_relaxed);
    lock.lock();
    slot->entry = std::move(entry);
    evict(evicted);
  } catch (...) {
    if (!lock.owns_lock()) lock.lock();
    slot->failure = std::current_exception();
    slots_.remove(slot);
    changed_.notify_all();
    throw;
  }
  changed_.notify_all();
  const std::shared_ptr<const PlanEntry> entry = slot->entry;
  lock.unlock();
  return entry;
}

std::shared_ptr<const PlanEntry> PlanCache::find_covering(const Lowering& call,
                                                          const std::string& engine, uint32_t flags,
                                                          const ShapeRange& range,
                                                          uint64_t most_workspace) {
  const std::lock_guard lock(mutex_);
  for (auto position = slots_.begin(); position != slots_.end(); ++position) {
    const Slot& slot = **position;
    if (slot.entry == nullptr || slot.key.flags != flags || slot.key.engine != engine) continue;
    if (!covers(slot.key.range, range) || !slot.key.same_class(call)) continue;
    if (slot.entry->plan().workspace_bytes() > most_workspace) continue;
    move_to_front(position);
    stats_.plan_cache_hits.fetch_add(1, std::memory_order_relaxed);
    return slots_.front()->entry;
  }
  return nullptr;
}

void PlanCache::trim() {
  SlotList dropped;
  const std::lock_guard lock(mutex_);
  for (auto position = slots_.begin(); position != slots_.end();) {
    const auto current = position++;
    const auto& entry = (*current)->entry;
    if (entry != nullptr && entry.use_count() == 1) {
      dropped.splice(dropped.end(), slots_, current);
    }
  }
}

}  // namespace attn::api
