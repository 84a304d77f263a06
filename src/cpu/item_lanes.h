// Work items for threads, dealt so that from call to call a thread meets the same items again.
//
// What a decode step or a layer works on is what the call before left in the caches of the
// processors. An item that another thread takes this time comes out of that thread's cache, which
// costs as much as memory does where the processors share no cache, and twice that for what was
// written. So each thread has a lane of items of its own, and helps other lanes when it is done.
#pragma once

#include <algorithm>
#include <array>
#include <atomic>
#include <cstddef>
#include <cstdint>

namespace attn::cpu {

// How items get into lanes: one after the other, where the first ones last longest; or in runs,
// where neighbours lie side by side in memory, so that what a processor fetches ahead is its own.
enum class Deal { kInTurn, kInRuns };

class ItemLanes {
 public:
  // Items [0, items) for `threads` threads with slots from 0 on. Before the threads start.
  void reset(int64_t items, int threads, Deal deal = Deal::kInTurn) {
    items_ = items;
    deal_ = deal;
    lanes_ = static_cast<int>(std::clamp<int64_t>(std::min<int64_t>(threads, items), 1, kMost));
    for (int i = 0; i < lanes_; ++i) lane(i).taken.store(0, std::memory_order_relaxed);
  }

  // The next item for the thread of this slot, or -1 where none is left. Items of a lane come in
  // ascending order, so that long items that stand first begin first.
  int64_t take(int slot) {
    for (int i = 0; i < lanes_; ++i) {
      const int own = (slot + i) % lanes_;
      std::atomic<int64_t>& taken = lane(own).taken;
      const int64_t count = first_of(own + 1) - first_of(own);
      if (taken.load(std::memory_order_relaxed) >= count) continue;
      const int64_t n = taken.fetch_add(1, std::memory_order_relaxed);
      if (n < count) return deal_ == Deal::kInRuns ? first_of(own) + n : own + n * lanes_;
    }
    return -1;
  }

 private:
  static constexpr int kMost = 64;  // more threads share lanes
  struct alignas(64) Lane {
    std::atomic<int64_t> taken{0};
  };
  Lane& lane(int i) { return all_[static_cast<size_t>(i)]; }
  // Items of the lanes before this one; lane i has as many as items i, i + lanes, ... are.
  int64_t first_of(int i) const {
    return items_ / lanes_ * i + std::min<int64_t>(items_ % lanes_, i);
  }

  int64_t items_ = 0;
  int lanes_ = 1;
  Deal deal_ = Deal::kInTurn;
  std::array<Lane, kMost> all_;
};

}  // namespace attn::cpu
