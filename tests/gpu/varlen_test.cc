// VarlenAttention and PackedVarlenAttention on the device: random problems under every engine, with
// lengths in device or in host memory, broken ones as faults, and replays with others.
#include <gtest/gtest.h>

#include <atomic>
#include <iostream>
#include <map>
#include <mutex>
#include <thread>

#include "gpu/run.h"
#include "gpu/warm_up.h"
#include "matrix/varlen_case.h"

namespace attn::gpu {
namespace {

using matrix::VarlenCase;

constexpr int64_t kProblems = 500;  // that the generic engine must have accepted
constexpr int64_t kFast = 100;      // most that are run with each other one, of few head sizes
constexpr uint64_t kMostSeeds = 5000;
constexpr size_t kMostFailures = 8;

// Lengths stay in host memory in some problems.
std::vector<Mirror::NamedTensor> tensors_of(VarlenCase& c, bool lengths_on_host) {
  const std::vector<test::Tensor*> all = c.all();
  std::vector<Mirror::NamedTensor> tensors;
  for (size_t i = 0; i < all.size(); ++i) {
    const bool is_length = i == 3 || i == 4;
    if (is_length && lengths_on_host) continue;
    tensors.push_back({all[i], "tensor " + std::to_string(i)});
  }
  return tensors;
}

class Totals {
 public:
  explicit Totals(std::vector<std::string> fast_engines) : fast_engines_(std::move(fast_engines)) {}
  void add(const std::string& engine, Verdict verdict) {
    const std::lock_guard lock(mutex_);
    ++(verdict == Verdict::kRefused ? refused_ : accepted_)[engine];
  }
  void fail(std::string text) {
    const std::lock_guard lock(mutex_);
    failures_.push_back(std::move(text));
  }
  int64_t accepted(const std::string& engine) {
    const std::lock_guard lock(mutex_);
    return accepted_[engine];
  }
  std::string failures() {
    const std::lock_guard lock(mutex_);
    std::string all;
    for (const std::string& failure : failures_) all += failure + "\n";
    return all;
  }
  bool done() {
    const std::lock_guard lock(mutex_);
    if (failures_.size() >= kMostFailures) return true;
    for (const std::string& engine : fast_engines_) {
      if (accepted_[engine] < kFast / 4) return false;
    }
    return accepted_["generic"] >= kProblems;
  }
  void report(uint64_t drawn) {
    std::cout << drawn << " problems drawn\n";
    for (const auto& [engine, count] : accepted_) {
      std::cout << "  " << (engine.empty() ? "(chosen)" : engine) << ": accepted " << count
                << ", refused " << refused_[engine] << "\n";
    }
    for (const std::string& failure : failures_) ADD_FAILURE() << failure;
    if (!failures_.empty()) return;
    EXPECT_GE(accepted_["generic"], kProblems);
    for (const std::string& engine : fast_engines_) {
      EXPECT_GE(accepted_[engine], kFast / 4) << engine;
    }
  }

 private:
  const std::vector<std::string> fast_engines_;
  std::mutex mutex_;
  std::map<std::string, int64_t> accepted_, refused_;
  std::vector<std::string> failures_;
};

// A problem that breaks a length rule is refused where the host reads the lengths; else it faults.
RunResult run(Lane& lane, VarlenCase& c, const std::string& engine, bool on_host) {
  DeviceCase device(lane, c, tensors_of(c, on_host), engine);
  RunResult result = device.prepare();
  if (result.verdict != Verdict::kPassed) return result;
  ExpectedFaults faults;
  faults.bits = c.faults();
  if (faults.bits == 0) return device.execute(faults);
  if (!on_host) {
    result = device.execute(faults);
    must("session_clear_faults", [&](attn_error* error) {
      return attn_session_clear_faults(lane.session.get(), lane.stream.get(), error);
    });
    lane.stream.wait();
    return result;
  }
  result = device.execute({});
  const bool refused =
      result.verdict == Verdict::kFailed && result.text.find("execute") != std::string::npos;
  if (!refused) return {Verdict::kFailed, "lengths in host memory were not refused", {}};
  return {Verdict::kPassed, "", {}};
}

void run_seed(Lane& lane, uint64_t seed, Totals& totals) {
  for (const std::string& engine :
       {std::string("generic"), std::string(), std::string("split-decode"),
        std::string("mma-prefill"), std::string("float32-prefill"), std::string("wgmma-prefill")}) {
    const bool fast = engine != "generic";
    VarlenCase c(seed);
    c.log_sum_exp_room = 2;
    if (fast && (!c.has_model_sizes() || totals.accepted(engine) >= kFast)) continue;
    const RunResult result = run(lane, c, engine, seed % 3 == 0);
    if (result.verdict != Verdict::kFailed) {
      totals.add(engine, result.verdict);
      continue;
    }
    totals.fail("seed " + std::to_string(seed) + ", engine " +
                (engine.empty() ? "(chosen)" : engine) + ":\n" + result.text + "\n  " + c.text() +
                "\n  repeat: ATTN_C_TEST_SEED=" + std::to_string(seed) +
                " ATTN_C_TEST_COUNT=1 gpu_tests --gtest_filter=GpuVarlen.*");
    return;
  }
}

class GpuVarlen : public GpuTest {};

// Few and fixed: for compute-sanitizer.
TEST_F(GpuVarlen, AFew) {
  Lane lane(Gpu::first());
  Totals totals({});
  for (uint64_t seed = 1; seed <= 12; ++seed) run_seed(lane, seed, totals);
  EXPECT_EQ(totals.failures(), "");
  EXPECT_EQ(totals.accepted("generic"), 12);
}

TEST_F(GpuVarlen, RotatingSeeds) {
  const Gpu& gpu = Gpu::first();
  const uint64_t first = matrix::rotating_seed();
  const auto most = static_cast<uint64_t>(
      number_from_environment("ATTN_C_TEST_COUNT", static_cast<int64_t>(kMostSeeds)));
  std::cout << "seeds begin at " << first << " (ATTN_C_TEST_SEED repeats them)\n";
  std::vector<std::string> engines = {"split-decode", "mma-prefill", "float32-prefill"};
  if (gpu.architecture() == "sm_90") engines.emplace_back("wgmma-prefill");
  Totals totals(engines);
  std::atomic<uint64_t> next{0};
  std::vector<std::thread> workers;
  for (int w = 0; w < worker_count(); ++w) {
    workers.emplace_back([&] {
      try {
        Lane lane(gpu);
        while (!totals.done() || most < kMostSeeds) {
          const uint64_t i = next++;
          if (i >= most) break;
          run_seed(lane, first + i, totals);
        }
      } catch (const std::exception& error) {
        totals.fail(error.what());
      }
    });
  }
  for (std::thread& worker : workers) worker.join();
  totals.report(std::min(next.load(), most));
}

}  // namespace
}  // namespace attn::gpu
