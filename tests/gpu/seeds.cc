#include "gpu/seeds.h"

#include <gtest/gtest.h>

#include <algorithm>
#include <atomic>
#include <iostream>
#include <thread>
#include <utility>

#include "gpu/warm_up.h"
#include "matrix/matrix.h"

namespace attn::gpu {
namespace {

constexpr size_t kMostFailures = 8;

}  // namespace

void SeedTotals::fail(std::string text) {
  const std::lock_guard lock(mutex_);
  failures_.push_back(std::move(text));
}

std::string SeedTotals::failures() {
  const std::lock_guard lock(mutex_);
  std::string all;
  for (const std::string& failure : failures_) all += failure + "\n";
  return all;
}

bool SeedTotals::done() {
  const std::lock_guard lock(mutex_);
  return failures_.size() >= kMostFailures || has_enough();
}

bool SeedTotals::report_failures() const {
  for (const std::string& failure : failures_) ADD_FAILURE() << failure;
  return failures_.empty();
}

SeedRange rotating_seeds(uint64_t most) {
  const uint64_t first = matrix::rotating_seed();
  std::cout << "seeds begin at " << first << " (ATTN_C_TEST_SEED repeats them)\n";
  const auto count = static_cast<uint64_t>(
      number_from_environment("ATTN_C_TEST_COUNT", static_cast<int64_t>(most)));
  return {first, count, count == most};
}

uint64_t run_seeds(const Gpu& gpu, const SeedRange& range, SeedTotals& totals,
                   const std::function<void(Lane&, uint64_t)>& one) {
  std::atomic<uint64_t> next{0};
  const auto work = [&] {
    try {
      Lane lane(gpu);
      while (!range.whole || !totals.done()) {
        const uint64_t i = next++;
        if (i >= range.most) break;
        one(lane, range.first + i);
      }
    } catch (const std::exception& error) {
      totals.fail(error.what());
    }
  };
  std::vector<std::thread> workers;
  for (int w = 0; w < worker_count(); ++w) workers.emplace_back(work);
  for (std::thread& worker : workers) worker.join();
  return std::min(next.load(), range.most);
}

std::string seed_failure(uint64_t seed, const std::string& engine, const std::string& found,
                         const std::string& problem, const char* filter) {
  const std::string number = std::to_string(seed);
  return "seed " + number + ", engine " + (engine.empty() ? "(chosen)" : engine) + ":\n" + found +
         "\n  " + problem + "\n  repeat: ATTN_C_TEST_SEED=" + number +
         " ATTN_C_TEST_COUNT=1 gpu_tests --gtest_filter=" + filter;
}

}  // namespace attn::gpu
