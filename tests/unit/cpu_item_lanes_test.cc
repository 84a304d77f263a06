// Every item is handed out once, to whoever asks; a thread that is alone with its lane meets the
// items that it met before.
#include "cpu/item_lanes.h"

#include <gtest/gtest.h>

#include <thread>
#include <vector>

namespace attn::cpu {
namespace {

std::vector<int64_t> taken_by(ItemLanes& lanes, int slot) {
  std::vector<int64_t> items;
  for (int64_t item = lanes.take(slot); item >= 0; item = lanes.take(slot)) items.push_back(item);
  return items;
}

TEST(ItemLanes, OneThreadGetsAllItemsOwnLaneFirst) {
  ItemLanes lanes;
  lanes.reset(7, 3);
  EXPECT_EQ(taken_by(lanes, 1), (std::vector<int64_t>{1, 4, 2, 5, 0, 3, 6}));
  for (int slot = 0; slot < 4; ++slot) EXPECT_EQ(lanes.take(slot), -1);
}

TEST(ItemLanes, RunsOfNeighbours) {
  ItemLanes lanes;
  lanes.reset(7, 3, Deal::kInRuns);
  EXPECT_EQ(lanes.take(2), 5);
  EXPECT_EQ(taken_by(lanes, 1), (std::vector<int64_t>{3, 4, 6, 0, 1, 2}));
}

TEST(ItemLanes, SlotsThatTakeTurnsMeetTheirOwnItems) {
  for (int run = 0; run < 2; ++run) {
    ItemLanes lanes;
    lanes.reset(8, 2);
    for (int64_t i = 0; i < 8; ++i) EXPECT_EQ(lanes.take(static_cast<int>(i % 2)), i);
  }
}

TEST(ItemLanes, FewItemsAndNone) {
  ItemLanes lanes;
  lanes.reset(0, 4);
  EXPECT_EQ(lanes.take(3), -1);
  lanes.reset(1, 1000);
  EXPECT_EQ(lanes.take(999), 0);
  EXPECT_EQ(lanes.take(0), -1);
}

TEST(ItemLanes, ThreadsShareTheItems) {
  constexpr int kThreads = 70;  // more than there are lanes
  constexpr int64_t kItems = 5000;
  ItemLanes lanes;
  lanes.reset(kItems, kThreads);
  std::vector<std::vector<int64_t>> taken(kThreads);
  std::vector<std::thread> threads;
  threads.reserve(kThreads);
  for (int slot = 0; slot < kThreads; ++slot) {
    threads.emplace_back([&, slot] { taken[static_cast<size_t>(slot)] = taken_by(lanes, slot); });
  }
  for (std::thread& thread : threads) thread.join();
  std::vector<int> times(kItems, 0);
  for (const auto& items : taken) {
    for (const int64_t item : items) ++times[static_cast<size_t>(item)];
  }
  EXPECT_EQ(times, std::vector<int>(kItems, 1));
}

}  // namespace
}  // namespace attn::cpu
