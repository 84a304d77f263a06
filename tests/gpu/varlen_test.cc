// VarlenAttention and PackedVarlenAttention on the device: random problems under every engine, with
// lengths in device or in host memory, broken ones as faults, and replays with others.
#include <gtest/gtest.h>

#include <iostream>
#include <map>
#include <utility>

#include "gpu/seeds.h"
#include "matrix/varlen_case.h"

namespace attn::gpu {
namespace {

using matrix::VarlenCase;

constexpr int64_t kProblems = 500;  // that the generic engine must have accepted
constexpr int64_t kFast = 100;      // most that are run with each other one, of few head sizes
constexpr uint64_t kMostSeeds = 5000;

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

class Totals final : public SeedTotals {
 public:
  explicit Totals(std::vector<std::string> fast_engines) : fast_engines_(std::move(fast_engines)) {}
  void add(const std::string& engine, Verdict verdict) {
    const std::lock_guard lock(mutex_);
    ++(verdict == Verdict::kRefused ? refused_ : accepted_)[engine];
  }
  int64_t accepted(const std::string& engine) {
    const std::lock_guard lock(mutex_);
    return count(engine);
  }
  void report(uint64_t drawn, bool whole) {
    std::cout << drawn << " problems drawn\n";
    for (const auto& [engine, served] : accepted_) {
      std::cout << "  " << (engine.empty() ? "(chosen)" : engine) << ": accepted " << served
                << ", refused " << refused_[engine] << "\n";
    }
    if (!report_failures() || !whole) return;
    EXPECT_GE(count("generic"), kProblems);
    for (const std::string& engine : fast_engines_) EXPECT_GE(count(engine), kFast / 4) << engine;
  }

 private:
  int64_t count(const std::string& engine) const {
    const auto found = accepted_.find(engine);
    return found != accepted_.end() ? found->second : 0;
  }
  bool has_enough() const override {
    for (const std::string& engine : fast_engines_) {
      if (count(engine) < kFast / 4) return false;
    }
    return count("generic") >= kProblems;
  }
  const std::vector<std::string> fast_engines_;
  std::map<std::string, int64_t> accepted_, refused_;
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
    totals.fail(seed_failure(seed, engine, result.text, c.text(), "GpuVarlen.RotatingSeeds"));
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
  const SeedRange range = rotating_seeds(kMostSeeds);
  std::vector<std::string> engines = {"split-decode", "mma-prefill", "float32-prefill"};
  if (gpu.architecture() == "sm_90") engines.emplace_back("wgmma-prefill");
  Totals totals(engines);
  const uint64_t drawn = run_seeds(
      gpu, range, totals, [&](Lane& lane, uint64_t seed) { run_seed(lane, seed, totals); });
  totals.report(drawn, range.whole);
}

}  // namespace
}  // namespace attn::gpu
